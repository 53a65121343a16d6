"""What is emitted loads in the real libraries, and means there what the sources mean there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from tests.build.conftest import EXAMPLES, Workplace

pytestmark = pytest.mark.libs

SAMPLES = 64
ALONE = ("quickstart", "ddp", "pretrain-zero1", "sft-zero2", "zero2-cpu-offload", "grpo-zero3", "zero3-nvme")
PLAYED = {name: EXAMPLES[name][0] for name in ALONE}
"""Examples of one run whose sources are a Trainer's, by folder; the other ones are built from them or trained."""
NAMED_FILE = "deepspeed_config_file"
Played = dict[str, dict[str, Any]]


def environment(root: Path, folder: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "VIRTUAL_ENV") if name in os.environ}
    return kept | {
        "DS_ACCELERATOR": "cpu",
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(folder),
        "PYTHONPATH": str(root),
    }


def case_of(accelerate: Path | None, deepspeed: Path | None, processes: int, lock: dict[str, Any]) -> dict[str, Any]:
    """A launch as tests/parity plays it; a path to a DeepSpeed file becomes the name that it has there."""
    data = yaml.safe_load(accelerate.read_text()) if accelerate else {"distributed_type": "MULTI_GPU"}
    data["num_processes"] = processes
    data["main_process_port"] = 29873  # accelerate refuses its default port while another job listens there
    section = data.get("deepspeed_config", {})
    named = NAMED_FILE in section
    if named:
        section[NAMED_FILE] = "ds.json"
    samples = SAMPLES
    if "scheduler.params.total_num_steps" in lock["settings"]:
        samples = 52002  # of zero2-cpu-offload/zerocfg.yaml
    return {
        "yaml": yaml.safe_dump(data),
        "json": deepspeed.read_text() if deepspeed else None,
        "flags": ["--config_file", "acc.yaml"],
        "arguments": lock["recipe"],
        "consumer": "transformers",
        "route": None if deepspeed is None else "accelerate" if named else "trainer",
        "model": lock["model"]["config"],
        "samples": samples,
    }


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Played:
    """Example -> {"lock", "sources", "emitted"}: the lock, and what was seen of both."""
    folder = tmp_path_factory.mktemp("parity")
    found: Played = {}
    cases = []
    here = Path.cwd()
    os.chdir(folder)
    try:
        for example, run in PLAYED.items():
            workplace = Workplace(folder, root / "examples")
            source = workplace.example(example)
            result = workplace.build(source)
            assert result.exit_code == 0, result.output
            out = folder / "out" / run
            lock = json.loads((out / "zerocfg.lock").read_text())
            found[example] = {"lock": lock}
            processes = lock["plan"]["num_processes"]
            for where in (source, out):
                accelerate, deepspeed = where / "accelerate.yaml", where / "ds_config.json"
                cases.append(
                    case_of(
                        accelerate if accelerate.exists() else None,
                        deepspeed if deepspeed.exists() else None,
                        processes,
                        lock,
                    )
                )
    finally:
        os.chdir(here)
    (folder / "cases.json").write_text(json.dumps(cases))
    command = [warm.python(), str(Path(__file__).with_name("play.py")), "cases.json", "results.json"]
    done = subprocess.run(
        command, cwd=folder, env=environment(root, folder), capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads((folder / "results.json").read_text())
    for index, example in enumerate(PLAYED):
        found[example] |= {"sources": results[2 * index], "emitted": results[2 * index + 1]}
    return found


@pytest.mark.parametrize("example", PLAYED)
def test_emitted_means_what_the_sources_mean(played: Played, example: str) -> None:
    lock, sources, emitted = (played[example][part] for part in ("lock", "sources", "emitted"))
    assert emitted["world"] == sources["world"] == lock["plan"]["num_processes"]
    if lock["plan"]["engine"] == "ddp":
        # No engine to look into: the Trainer starts to train, which the fake process group cannot.
        assert emitted["phase"] == sources["phase"] == "init"
        assert emitted["environment"] == sources["environment"]
        assert "ACCELERATE_USE_DEEPSPEED" not in emitted["environment"]
        return
    for seen in (sources, emitted):
        assert seen["error"] is None, seen["error"]
        assert seen["phase"] == "done"
        for part in ("offload_optimizer", "offload_param"):
            # A device "none" is no offload, as if the section were absent.
            if (seen["parsed"][f"zero_optimization.{part}"] or {}).get("device") == "none":
                seen["parsed"][f"zero_optimization.{part}"] = None
    assert emitted["parsed"] == sources["parsed"]
    for section in ("optimizer", "scheduler", "aio"):
        assert emitted["config"].get(section) == sources["config"].get(section)


@pytest.mark.parametrize("example", [name for name in PLAYED if name != "ddp"])
def test_plan_is_what_the_engine_gets(played: Played, example: str) -> None:
    """Every setting of the lock that DeepSpeed's own parsed config holds has the value that it has there."""
    lock, parsed = played[example]["lock"], played[example]["emitted"]["parsed"]
    compared = 0
    for name, setting in lock["settings"].items():
        for spelled in (name, name.replace("zero_optimization.stage3_", "zero_optimization.")):
            if spelled in parsed and setting["value"] not in ("inf",):
                assert parsed[spelled] == setting["value"], name
                compared += 1
                break
    assert compared > 20


PARSERS = """
import sys
from transformers import HfArgumentParser, TrainingArguments
import yaml
for kind, path in zip(sys.argv[1::2], sys.argv[2::2]):
    if kind == "transformers":
        data = yaml.safe_load(open(path)) | {"use_cpu": True}
        (read,) = HfArgumentParser(TrainingArguments).parse_dict(data)
    else:
        from trl import GRPOConfig, ModelConfig, ScriptArguments, SFTConfig, TrlParser
        own = {"sft": SFTConfig, "grpo": GRPOConfig}[kind]
        parser = TrlParser((ScriptArguments, own, ModelConfig))
        _, read, _ = parser.parse_args_and_config(["--config", path, "--use_cpu", "True"])
        data = yaml.safe_load(open(path))
    for name in ("learning_rate", "warmup_steps", "bf16", "gradient_accumulation_steps", "max_steps"):
        if name in data:
            assert getattr(read, name) == data[name], (path, name, getattr(read, name))
    print("read", path)
"""


def test_recipes_are_read_by_the_real_parsers(root: Path, tmp_path: Path) -> None:
    words = []
    for example, run in PLAYED.items():
        shutil.copy(root / "examples" / example / "recipe.yaml", tmp_path / f"{example}.yaml")
        words += [run if run in ("sft", "grpo") else "transformers", f"{example}.yaml"]
    (tmp_path / "parsers.py").write_text(PARSERS)
    done = subprocess.run(
        [warm.python(), "parsers.py", *words],
        cwd=tmp_path,
        env=environment(root, tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("read ") == len(PLAYED)
