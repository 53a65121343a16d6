"""A few repositories, each with what its lint finds as its owner would be told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TRAIN = {"train.sh": "deepspeed train.py --deepspeed_config ds.json\n", "train.py": "import deepspeed\n"}


def write(folder: Path, config: dict[str, Any], **more: str) -> Path:
    """A repository that trains by DeepSpeed with this config; ``more``: further files, _ for the dot of their names."""
    (folder / ".git").mkdir(parents=True)
    texts = {
        **TRAIN,
        "ds.json": json.dumps(config, indent=1),
        **{name.replace("_", "."): text for name, text in more.items()},
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def repositories(tmp_path: Path) -> Path:
    """A folder of: clean, a misspelt key (error), a batch that does not divide (error) and a stage that its settings
    ignore, and one whose settings cannot be read."""
    folder = tmp_path / "clones"
    size = {"train_micro_batch_size_per_gpu": 1}
    write(folder / "clean", {**size, "zero_optimization": {"stage": 2}})
    write(folder / "misspelt", {**size, "zero_optimisation": {"stage": 3}})
    write(folder / "silenced", {**size, "zero_optimization": {"stage": 7}, "x": 1}, zerocfg_toml='ignore = ["ZC106"]\n')
    write(folder / "unread", size, zerocfg_toml="nonsense = 1\n")
    return folder


def run(cwd: Path, *words: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "zerocfg", "lint", *words]
    merged = {**os.environ, **environment}
    return subprocess.run(
        command, cwd=cwd, env=merged, input=stdin, capture_output=True, text=True, timeout=300, check=False
    )


def owner(repository: Path) -> dict[str, Any]:
    """What `zerocfg lint` in the repository prints as JSON."""
    found: dict[str, Any] = json.loads(run(repository, "--no-cache", "--output-format", "json").stdout)
    return found
