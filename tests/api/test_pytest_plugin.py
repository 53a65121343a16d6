"""``pytest --zerocfg`` in a project of its own, as its users run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

OTHERS = ("cacheprovider", "xdist", "hypothesispytest", "syrupy", "anyio", "platformdirs")
"""Plugins that this environment has and a user of zerocfg need not have: they only cost time."""
GOOD = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n"


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    without = [word for name in OTHERS for word in ("-p", f"no:{name}")]
    command = [sys.executable, "-m", "pytest", *without, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_own.py").write_text("def test_own(): pass\n")
    (tmp_path / "accelerate.yaml").write_text(GOOD)
    (tmp_path / "data.yaml").write_text("name: not ours\n")
    return tmp_path


def test_configs_are_tests(project: Path) -> None:
    done = ran(project, "--zerocfg", "-v")
    assert done.returncode == 0 and "2 passed" in done.stdout
    assert "accelerate.yaml::zerocfg PASSED" in done.stdout and "data.yaml" not in done.stdout
    assert "1 passed" in ran(project).stdout, "nothing happens unless it is asked for"


def test_a_finding_fails_its_file(project: Path) -> None:
    (project / "accelerate.yaml").write_text(GOOD + "  overlap_comm: true\n")
    done = ran(project, "--zerocfg")
    assert done.returncode == 1 and "1 failed, 1 passed" in done.stdout
    assert "error[ZC103]" in done.stdout and "accelerate.yaml:5:3" in done.stdout
    assert "Traceback" not in done.stdout and "runtest" not in done.stdout


def test_from_which_severity_on(project: Path) -> None:
    (project / "accelerate.yaml").write_text(GOOD + "tpu_use_sudo: true\n")
    findings = ran(project, "--zerocfg", "--zerocfg-fail-on", "note")
    assert findings.returncode == 1
    assert ran(project, "--zerocfg", "--zerocfg-fail-on", "error").returncode == 0


def test_settings_that_make_no_sense(project: Path) -> None:
    (project / "zerocfg.toml").write_text("selec = []\n")
    done = ran(project, "--zerocfg")
    assert done.returncode == 1 and "has no setting 'selec'" in done.stdout and "Traceback" not in done.stdout
