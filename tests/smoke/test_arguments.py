"""Training arguments that a smoke-run's own loop does not parse, and the script's parser refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from zerocfg.cli.commands.build import command as build
from zerocfg.smoke.judge import lint_findings
from zerocfg.smoke.judge.diagnosis import diagnose
from zerocfg.smoke.judge.lint_findings import check_arguments
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.model.certificate import Check
from zerocfg.smoke.prepare.folder import RunFolder, read
from zerocfg.smoke.prepare.linked_run import linked_run

OLD = {"trl": "0.17.0", "transformers": "4.51.3", "deepspeed": "0.16.9", "accelerate": "1.6.0"}
NEW = {"trl": "1.16.0", "transformers": "5.23.0", "deepspeed": "0.19.8", "accelerate": "1.15.0"}
FILES = {
    "zerocfg.yaml": "version: 1\nruns:\n  grpo:\n    consumer: trl\n    script: train.py\n    recipe: grpo.yaml\n"
    "    engine: deepspeed\n    hardware: 2xA100-80GB\n    model: {parameters: 1000000, hidden_size: 64}\n",
    "train.py": "from trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, TrlParser\n\n"
    "script, arguments, model = TrlParser((ScriptArguments, GRPOConfig, ModelConfig)).parse_args_and_config()\n"
    "GRPOTrainer(model.model_name_or_path, args=arguments).train()\n",
    "grpo.yaml": "output_dir: out\nbf16: true\nmax_steps: 4\nper_device_train_batch_size: 4\nnum_generations: 4\n"
    "max_prompt_length: 512\nwarmup_ratio: 0.1\noverwrite_output_dir: true\n",
    "requirements.txt": "".join(f"{name}=={release}\n" for name, release in OLD.items()),
}
REFUSED = Check(
    "training arguments",
    "accepted by the parser",
    "refused: max_prompt_length, warmup_ratio, overwrite_output_dir",
    False,
)
"""TRL 1.16.0 with transformers 5.23.0 says the same: unrecognised arguments."""


@pytest.fixture
def built(tmp_path: Path) -> RunFolder:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    done = CliRunner().invoke(build, [str(tmp_path), "-o", str(tmp_path / "built")])
    assert done.exit_code == 0, done.output
    return read(tmp_path / "built" / "grpo")


def installed(monkeypatch: pytest.MonkeyPatch, releases: dict[str, str]) -> None:
    monkeypatch.setattr(lint_findings, "_installed", lambda: {name: f"=={one}" for name, one in releases.items()})


def checks(folder: RunFolder) -> list[Check]:
    return check_arguments(lint_findings.lint_findings(linked_run(folder)))


def test_what_the_project_builds_for_is_not_what_is_installed(
    built: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, OLD)
    assert checks(built) == []
    installed(monkeypatch, NEW)
    assert checks(built) == [REFUSED]


def test_each_of_them_is_explained(built: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, NEW)
    found = diagnose(built, [REFUSED], Outcome([{"rank": 0}]))
    assert [(one.code, one.line, one.why) for one in found] == [
        ("ZC840", 6, "check:training arguments"),
        ("ZC801", 7, "check:training arguments"),
        ("ZC801", 8, "check:training arguments"),
    ]


def test_hand_written_configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        if name != "zerocfg.yaml":
            (tmp_path / name).write_text(text)
    (tmp_path / "train.sh").write_text("accelerate launch --num_processes 2 --multi_gpu train.py --config grpo.yaml\n")
    installed(monkeypatch, OLD)
    assert checks(read(tmp_path)) == []
    installed(monkeypatch, NEW)
    assert checks(read(tmp_path)) == [REFUSED]
