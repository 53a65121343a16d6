"""Builds in a copy of an example or in a folder with a spec of the test's own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from zerocfg.cli.main import cli

EXAMPLES = {
    "quickstart": ["quickstart"],
    "stages": ["ddp", "stage-zero0", "stage-zero1", "stage-zero2", "stage-zero3", "torchrun"],
    "deepspeed-loop": ["loop"],
    "accelerate-loop": ["loop"],
    "two-nodes-cpu": ["nodes"],
    "ddp": ["ddp"],
    "pretrain-zero1": ["pretrain"],
    "sft-zero2": ["sft"],
    "zero2-cpu-offload": ["offload"],
    "grpo-zero3": ["grpo"],
    "zero3-nvme": ["nvme"],
    "two-nodes-slurm": ["nodes"],
    "fsdp": ["fsdp"],
    "moe": ["moe"],
    "lora": ["lora"],
    "matrix": ["sft-1b-l40s", "sft-1b-h100", "sft-7b-l40s", "sft-7b-h100"],
    "goals": ["fast"],
}
"""Folder -> the names of its runs."""

Files = dict[str, Any]


class Workplace:
    """A folder in which the command line runs."""

    def __init__(self, folder: Path, examples: Path) -> None:
        self.folder = folder
        self.examples = examples

    def example(self, name: str) -> Path:
        """An example in a copy of all of them (some share files); only what is under version control matters."""
        ignored = shutil.ignore_patterns("runs", "__pycache__", "smoke.json")
        if not (self.folder / name).exists():
            shutil.copytree(self.examples, self.folder, ignore=ignored, dirs_exist_ok=True)
        return self.folder / name

    def write(self, files: Files) -> Path:
        """A spec folder; a text is written as it is, anything else as JSON (which is YAML, too)."""
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return self.folder / "zerocfg.yaml"

    def zerocfg(self, *words: str | Path) -> Result:
        result = CliRunner().invoke(cli, [str(word) for word in words])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    def build(self, spec: Path, *words: str) -> Result:
        return self.zerocfg("build", spec, "-o", self.folder / "out", *words)

    def built(self, files: Files, run: str = "a", *words: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The DeepSpeed config and the lock of a spec that must build."""
        result = self.build(self.write(files), *words)
        assert result.exit_code == 0, result.output
        out = self.folder / "out" / run
        config = out / "ds_config.json"
        return (
            json.loads(config.read_text()) if config.exists() else {},
            json.loads((out / "zerocfg.lock").read_text()),
        )


@pytest.fixture
def workplace(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    monkeypatch.chdir(tmp_path)
    return Workplace(tmp_path, root / "examples")


def spec(**run: Any) -> dict[str, Any]:
    """A spec with the one run ``a``; the values given replace or remove (None) those of a small complete job."""
    entry: dict[str, Any] = {
        "consumer": "transformers",
        "script": "train.py",
        "model": {"parameters": 7e9, "hidden_size": 4096},
        "recipe": "recipe.yaml",
        "deepspeed": "ds.json",
        "hardware": "8xA100-80GB",
    }
    entry.update(run)
    return {"version": 1, "runs": {"a": {name: value for name, value in entry.items() if value is not None}}}


def job(recipe: dict[str, Any] | None = None, deepspeed: Any = None, **run: Any) -> Files:
    """The files of a small job: ``recipe`` and ``deepspeed`` are added to what every job needs."""
    base = {"output_dir": "out", "bf16": True, "max_steps": 10, "per_device_train_batch_size": 2}
    config = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
    config |= {"gradient_clipping": "auto", "bf16": {"enabled": "auto"}, **(deepspeed or {})}
    return {
        "zerocfg.yaml": spec(**run),
        "train.py": "",
        "recipe.yaml": {**base, **(recipe or {})},
        "ds.json": config,
    }
