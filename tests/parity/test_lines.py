"""`accelerate launch` without a config file: on a machine with several accelerators what is predicted happens."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.parity.worker import EXPORTED, launched
from zerocfg.run.model import UNKNOWN, Origin, Run, Setting
from zerocfg.run.resolve_settings import with_settings
from zerocfg.source.launch.line import LaunchLine
from zerocfg.source.text import Span

pytestmark = pytest.mark.libs

UNSAID = "nobody knows"
TWO = "--num_machines 2 --machine_rank 0 --main_process_ip 10.0.0.1 --main_process_port 29500"
LINES = {
    "--num_processes 6": (6, "ddp"),
    "--num_processes 2 --mixed_precision bf16": (2, "ddp"),
    "--num_processes 1": (1, "single"),
    f"--num_processes 8 {TWO}": (
        8,
        "ddp",
    ),
    "--num_processes 8 --use_deepspeed --zero_stage 2": (8, "deepspeed"),
    "--num_processes 4 --use_fsdp": (4, "fsdp"),
    "--num_processes 4 --multi_gpu": (4, "ddp"),
    "--num_processes 4 --cpu": (1, "single"),
    "--mixed_precision fp16": (UNSAID, UNSAID),
    "--multi_gpu": (UNSAID, UNSAID),
    "--cpu": (1, "single"),
    f"--num_processes 3 {TWO}": (
        2,
        "ddp",
    ),
}
"""The options, the number of processes of the job, and what shares the model among them."""


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("here", [2, 8])
def test_on_several_accelerators(line: str, here: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    flags = line.split()
    effective = with_settings(Run("line", launch=_line(), flags=_settings(flags))).effective
    environment, world = _played(flags, here, monkeypatch, tmp_path)
    processes, engine = (UNKNOWN if one == UNSAID else one for one in LINES[line])
    assert effective.value("num_processes") is processes or effective.value("num_processes") == processes
    assert effective.value("engine") is engine or effective.value("engine") == engine
    assert world == (here if processes is UNKNOWN else processes)
    predicted = {name: one.value for name, one in effective.environment.items() if name.startswith(EXPORTED)}
    exported = {name: str(value) for name, value in environment.items() if name.startswith(EXPORTED)}
    if "--cpu" in flags and "--num_processes" not in flags:  # exported where the machine has several accelerators
        exported = {name: text for name, text in exported.items() if not name.startswith("MASTER_")}
    assert predicted == exported


def _line() -> LaunchLine:
    return LaunchLine("accelerate", (), None, (), (), {}, Span(0, 0))


def _settings(flags: list[str]) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for at, word in enumerate(flags):
        if word.startswith("--"):
            follows = flags[at + 1] if at + 1 < len(flags) else "--"
            found[word[2:]] = Setting(True if follows.startswith("--") else follows, Origin("flag", word))
    return found


def _played(flags: list[str], here: int, monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[dict[str, str], int]:
    """What accelerate exports and starts, where torch says that there are so many GPUs and nobody has a config file."""
    import accelerate.commands.launch as launch
    import torch
    from torch.distributed.run import determine_local_world_size

    for name in [name for name in os.environ if name.startswith(EXPORTED)]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: here)
    monkeypatch.setattr(launch, "default_config_file", str(folder / "nowhere.yaml"))
    for name in ("deepspeed_launcher", "multi_gpu_launcher", "simple_launcher"):
        monkeypatch.setattr(launch, name, getattr(launch, name))
    libraries: dict[str, Any] = {"launch": launch, "local_size": determine_local_world_size}
    with mock.patch.dict(os.environ):
        return launched(flags, libraries)
