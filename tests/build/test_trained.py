"""The examples of processor size, trained for three steps by their committed `launch.sh`; the live engine is asked.

Two nodes are tests of their own (`test_two_nodes.py`). The launch scripts of the loops and of a ZeRO-2 run are started
by `tests/smoke/test_command.py`, and every built example is smoke-run by `tests/smoke/test_examples.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.build.conftest import Workplace
from tests.build.nodes import aborted

pytestmark = [pytest.mark.libs, pytest.mark.xdist_group("trained")]

STEPS = ["--steps", "3"]
TRAINED = {
    "quickstart/quickstart": "DeepSpeedEngine, ZeRO stage 3, 2 ranks",
    "stages/ddp": "DistributedDataParallel, 2 ranks",
    "stages/torchrun": "DeepSpeedEngine, ZeRO stage 2, 2 ranks",
}
PARAMETERS = 100_672
LIMIT = 600  # seconds; an operator may have to be compiled first


@pytest.mark.parametrize("run", TRAINED)
def test_trains_as_planned(workplace: Workplace, run: str, count: Callable[[str, int], None]) -> None:
    example, name = run.split("/")
    folder = workplace.example(example)
    words = STEPS if example.endswith("loop") else []
    done = launched(folder / "built" / name / "launch.sh", *words)
    if aborted(done.stderr):
        count("trainings whose last rank was aborted while it left", 1)
    else:
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"trained by {TRAINED[run]}" in done.stdout
    lock = json.loads((folder / "built" / name / "zerocfg.lock").read_text())
    stage = lock["plan"].get("zero_optimization.stage")
    assert f"{lock['plan']['num_processes']} ranks" in TRAINED[run]
    assert stage is None or f"ZeRO stage {stage}," in TRAINED[run]
    assert saved_parameters(folder / "runs" / ("loop" if example.endswith("loop") else example)) == PARAMETERS


def launched(script: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = environment_with_port()
    return subprocess.run(
        [str(script), *words], env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )


def environment_with_port() -> dict[str, str]:
    """The environment of a training on processors, with a free MASTER_PORT."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ACCELERATE_")}
    environment |= {
        "DS_ACCELERATOR": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "MASTER_PORT": port,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    return environment


def saved_parameters(folder: Path) -> int:
    """Elements of all saved weights."""
    import torch
    from safetensors.torch import load_file

    if (folder / "model.safetensors").is_file():
        weights = load_file(folder / "model.safetensors")
    else:
        weights = torch.load(folder / "pytorch_model.bin", weights_only=True)
    shutil.rmtree(folder)
    return sum(tensor.numel() for tensor in weights.values())
