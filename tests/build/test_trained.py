"""The examples of processor size, trained for three steps by their committed `launch.sh`; the live engine is asked.

Two nodes in network namespaces are a test of their own; here the two-node example runs on one machine. The launch
scripts of the loops and of a ZeRO-2 run are started by `tests/smoke/test_command.py`, and every built example is
smoke-run by `tests/smoke/test_examples.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.build.conftest import Workplace

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
def test_trains_as_planned(workplace: Workplace, run: str) -> None:
    example, name = run.split("/")
    folder = workplace.example(example)
    words = STEPS if example.endswith("loop") else []
    done = launched(folder / "built" / name / "launch.sh", *words)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"trained by {TRAINED[run]}" in done.stdout
    lock = json.loads((folder / "built" / name / "zerocfg.lock").read_text())
    stage = lock["plan"].get("zero_optimization.stage")
    assert f"{lock['plan']['num_processes']} ranks" in TRAINED[run]
    assert stage is None or f"ZeRO stage {stage}," in TRAINED[run]
    assert saved_parameters(folder / "runs" / ("loop" if example.endswith("loop") else example)) == PARAMETERS


def test_both_nodes_train_on_one_machine(workplace: Workplace) -> None:
    folder = workplace.example("two-nodes-cpu")
    script = folder / "built" / "nodes" / "launch.sh"
    environment = environment_with_port()
    environment |= {"MAIN_PROCESS_IP": "127.0.0.1", "MAIN_PROCESS_PORT": environment.pop("MASTER_PORT")}
    logs = [workplace.folder / f"node{rank}.log" for rank in range(2)]
    nodes = []
    try:
        for rank, log in enumerate(logs):
            with log.open("w") as out:
                own = environment | {"MACHINE_RANK": str(rank)}
                nodes.append(subprocess.Popen([str(script)], env=own, stdout=out, stderr=subprocess.STDOUT))
        codes = [node.wait(LIMIT) for node in nodes]
    finally:
        for node in nodes:
            node.kill()
    text = "".join(log.read_text() for log in logs)
    assert codes == [0, 0], text[-4000:]
    assert "trained by DeepSpeedEngine, ZeRO stage 3, 2 ranks" in text
    assert saved_parameters(folder / "runs" / "nodes") == PARAMETERS


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
