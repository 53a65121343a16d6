"""Every built example is smoke-run: all that a processor can run passes, cut to a size that it can hold."""

from __future__ import annotations

import shutil
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.conftest import ROOT
from zerocfg.cli.main import cli
from zerocfg.gate.builds import check_builds
from zerocfg.gate.certificates import check_certificate
from zerocfg.gate.policy import Policy
from zerocfg.smoke.smoke import Options, smoke

pytestmark = pytest.mark.libs

EXAMPLES = ROOT / "examples"
RUNS = sorted(path.parent.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.glob("*/built/*/zerocfg.lock"))
# Planned for processors, so every part of a smoke-run is as planned; of the others the training and the saving.
WHOLE = ("accelerate-loop", "deepspeed-loop", "quickstart", "stages")
# Models and stages that other examples train on two ranks.
ALIKE = ("ddp", "goals", "matrix", "pretrain-zero1")
MAIN = "quickstart/built/quickstart"
"""The job that the README begins with: done in every run of the tests, by fresh Pythons, as a user's launches are."""
ON_TWO_MACHINES = ("two-nodes-cpu/built/nodes",)
"""Smoke-run by `test_nodes.py`, on as many as planned."""


def example(run: str, folder: Path) -> Path:
    """A copy of the example that the run belongs to, and of the one that others build on; the run's folder in it."""
    for name in {run.split("/")[0], "quickstart"}:
        shutil.copytree(EXAMPLES / name, folder / name)
    return folder / run


def build_anew(folder: Path) -> None:
    """Not as committed: what is smoke-run is what the program writes now."""
    built, spec = folder.parent, folder.parents[1] / "zerocfg.yaml"
    shutil.rmtree(built)
    done = CliRunner().invoke(cli, ["build", str(spec), "-o", str(built)])
    assert done.exit_code == 0, done.output


def planned() -> list[Any]:
    runs = [run for run in RUNS if run not in ON_TWO_MACHINES]
    return [pytest.param(run, marks=[pytest.mark.main_job] if run == MAIN else []) for run in runs]


@pytest.mark.several_ranks
@pytest.mark.parametrize("run", planned())
def test_an_example_runs_as_planned(run: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if run != MAIN:
        request.getfixturevalue("warm_python")
    whole = run.startswith(WHOLE)
    parts = Options.parts if whole else ("train",)
    folder = example(run, tmp_path)
    if run == MAIN:
        build_anew(folder)
    ranks = 1 if run.startswith(ALIKE) else 2
    verdict = smoke(folder, Options(ranks=ranks, device="cpu", steps=3 if whole else 2, limit=600, parts=parts))
    failed = [(one.name, one.planned, one.seen) for one in verdict.checks if one.ok is False]
    assert verdict.passed and not failed, (verdict.outcome.failure, verdict.outcome.detail, failed)
    held = {one.name for one in verdict.checks if one.ok}
    assert {"engine", "world size", "optimizer steps, loss finite", "saved parameters"} <= held
    assert not whole or "resumes from a checkpoint" in held
    assert run != MAIN or ("ZeRO stage", "3", "3") in [(one.name, one.planned, one.seen) for one in verdict.checks]
    if run == "stages/built/stage-zero1":
        asked_for_by_the_gate(folder)


def asked_for_by_the_gate(folder: Path) -> None:
    """The certificate that was written is what the gate asks for, and of this run alone."""
    targets, wrong = check_builds(folder.parents[1] / "zerocfg.yaml", [folder.parent])
    policy = Policy(folder, max_age_days=1, versions=())
    reasons = {target.name: check_certificate(target, policy, datetime.now(timezone.utc)) for target in targets}
    assert not wrong and reasons.pop(folder.name) == [] and all(reasons.values())
