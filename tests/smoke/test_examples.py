"""The examples, built and trained: every one whose engine a CPU can run, reduced to a size that a CPU can hold."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.conftest import ROOT
from zerocfg.gate.builds import fresh
from zerocfg.gate.certificates import proven
from zerocfg.gate.policy import Policy

pytestmark = pytest.mark.libs

# quickstart is trained by the test of the README. zero3-nvme needs libaio, which not every machine has; what
# zero2-cpu-offload needs compiled can take longer than the time limit of a smoke-run on two busy cores (the proofs
# of the offload rules run that engine).
TRAINED = ("ddp", "sft-zero2", "grpo-zero3")


@pytest.mark.parametrize("name", TRAINED)
def test_example_trains_as_planned(name: str, tmp_path: Path) -> None:
    zerocfg = [sys.executable, "-m", "zerocfg"]
    spec = ROOT / "examples" / name / "zerocfg.yaml"
    built = subprocess.run([*zerocfg, "build", str(spec), "-o", str(tmp_path)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    done = subprocess.run(
        [*zerocfg, "smoke", str(folder), "--ranks", "2", "--device", "cpu"],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failed" in done.stdout and "FAIL" not in done.stdout
    # What it wrote is what the gate asks for; the hardware and the releases of this machine are its own affair.
    (target,), wrong = fresh(spec, [tmp_path])
    policy = Policy(tmp_path, max_age_days=1, hardware="any", versions=())
    assert not wrong and proven(target, policy, datetime.now(timezone.utc)) == []
