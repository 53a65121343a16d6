"""Trainings that plain Python starts: their arguments are parsed as any launcher's are, where a Trainer's parser reads
them. Each error was seen by starting the line with transformers 5.23.0."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerocfg.linter.engine import lint_runs
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.releases import with_versions

HF = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "(args,) = HfArgumentParser(TrainingArguments).{parse}\n"
    "Trainer(model=load(), args=args).train()\n"
)
PARSED = HF.format(parse="parse_args_into_dataclasses()")
LENIENT = HF.format(parse="parse_args_into_dataclasses(return_remaining_strings=True)")
OWN = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--per_device_train_batch_size')\n"
    "p.add_argument('--save_stepss')\np.add_argument('--warmup_ratio')\np.parse_args()\n"
)
WORDS = "--output_dir out --per_device_train_batch_size 1"
REMOVED = f"{WORDS} --warmup_ratio 0.1\n"
SLIP = f"{WORDS} --save_stepss 100\n"


@pytest.mark.parametrize(
    ("line", "script", "expected"),
    [
        (f"python train.py {REMOVED}", PARSED, [("ZC801", "error")]),
        (f"python train.py {SLIP}", PARSED, [("ZC841", "warning")]),
        (f"CUDA_VISIBLE_DEVICES=0 python3 -u train.py {REMOVED}", PARSED, [("ZC801", "error")]),
        (f"python -m train {REMOVED}", PARSED, [("ZC801", "error")]),
        (f"python train.py {WORDS}\n", PARSED, []),
        (f"python train.py {REMOVED}", LENIENT, []),
        (f"python train.py {REMOVED}", OWN, []),
        (f"python train.py {SLIP}", OWN, []),
        (f"python elsewhere.py {REMOVED}", PARSED, []),
        ("python train.py --warmup_ratio 0.1\n", PARSED, []),  # no word tells that it trains
        (f"pip install x; python -c 'print()' {REMOVED}", PARSED, []),
    ],
)
def test_arguments_on_a_line(
    line: str, script: str, expected: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"run.sh": line, "train.py": script, "requirements.txt": "transformers==5.23.0\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = lint_runs(with_versions(find_runs([Path()], Files())[0], {})).diagnostics
    assert [(one.code, one.severity.value) for one in found if one.severity.value != "note"] == expected


def test_what_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Trainer is the script's, and nothing else than Python starts it."""
    (tmp_path / "run.sh").write_text(f"python train.py {WORDS}\n", encoding="utf-8")
    (tmp_path / "train.py").write_text(PARSED, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (run,) = find_runs([Path()], Files())[0]
    assert run.launch is not None
    assert (run.name, run.consumer, run.launch.launcher) == ("run.sh:1", "transformers", "python")
