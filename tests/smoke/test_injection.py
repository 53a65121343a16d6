"""Every function of every instrument raises, one at a time: no run fails or hangs, and none passes without what is
essential. The table of `docs/smoke-instruments.md` is made here (`WRITE`)."""

from __future__ import annotations

import ast
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import ROOT
from zerocfg.smoke.model.certificate import CHANGE, ENGINE, LOADED, SAVED, STAGE, STEPS, WORLD_SIZE

from .ranks import Play, Stage
from .test_runs import with_fsdp

if TYPE_CHECKING:
    from .conftest import MakeRun

WORKER = ROOT / "zerocfg" / "smoke" / "worker"
PAGE = ROOT / "docs" / "smoke-instruments.md"
NO_INSTRUMENTS = {
    "__init__": "the package",
    "__main__": "starts the training",
    "baseline": "what the trainings that follow are compared with",
    "fence": "the fence itself",
    "fsdp_on_cpu": "makes accelerate shard on a processor: what the run is, not what is seen of it",
    "group": "the collectives that measurements call behind a vote",
    "job": "the job, as it is read",
    "model": "model and data that are trained",
    "parts": "the trainings that follow, each fenced as a whole",
    "record": "follows the trainings that are compared; what it measures is in the modules that it calls",
    "reference": "a training that is compared",
    "report": "the channel to the parent: what cannot be written is written later",
    "report_schema": "types",
    "resume_point": "whether a training is done that is compared",
    "sharing": "the trial of a shared card, a run of its own",
    "tiles": "random weights of the model that is trained",
    "trainer": "hands the Trainer's objects over",
    "trial": "how a training differs",
    "values": "values as JSON, called by every instrument",
    "votes": "the fence between ranks",
    "watch": "asks the instruments",
    "loops": "the training loops",
    "hooks": "the loops of the user's own command: see test_hooks.py",
}
"""Modules and packages of the ranks' program that are no instruments, and why."""
NOT_CALLED = {
    "communication:_mode": "only where torch is too old for kernels",
    "failure:describe": "only when a run fails, and fenced by itself",
    "failure:_relevant": "as failure:describe",
    "memory:limit": "a limit that the user asks for: it is to end the run",
    "memory:_thinned": "after 200 samples",
    "memory_errors:place": "only when a part fails",
    "memory_errors:_pins": "as memory_errors:place",
    "readback.torch_engines:_first": "FSDP 1, which cannot save on a processor",
}
"""Functions that none of the runs below calls, and why. Their callers are fenced all the same."""
WRITE = "ZEROCFG_WRITE_INSTRUMENTS"
"""The variable that names a file to which the rows of the page are written, instead of being compared with it."""
ESSENTIAL = (ENGINE, STAGE, WORLD_SIZE, STEPS, CHANGE, SAVED, LOADED)


@cache
def functions() -> tuple[str, ...]:
    """Every function and method of the modules that are not named above, found in their source."""
    found = []
    for path in sorted(WORKER.rglob("*.py")):
        parts = path.relative_to(WORKER).with_suffix("").parts
        if parts[0] in NO_INSTRUMENTS or parts[-1] == "__init__":
            continue
        module = ".".join(parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                found.append(f"{module}:{node.name}")
            elif isinstance(node, ast.ClassDef):
                found += [f"{module}:{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)]
    return tuple(found)


def test_what_is_no_instrument_exists() -> None:
    names = {path.relative_to(WORKER).with_suffix("").parts[0] for path in WORKER.rglob("*.py")}
    assert set(NO_INSTRUMENTS) <= names
    assert len(functions()) > 80


class Runs:
    """The runs in which functions are broken, each made and played whole once: the first one that calls the function
    shows what comes of it."""

    def __init__(self, make_run: MakeRun, folder: Path) -> None:
        self._folder = folder
        self.stages = {
            "ZeRO-3, one rank": Stage(_made(make_run, folder, 3), 1),
            "ZeRO-3, two ranks": Stage(_made(make_run, folder, 3), 2),
            "DDP, two ranks": Stage(_made(make_run, folder, None), 2),
            "FSDP 2, two ranks": Stage(with_fsdp(_made(make_run, folder, None), 2), 2),
        }
        self._number = 0

    def play(self, name: str, place: str | None, on: str = "0") -> Play:
        self._number += 1
        stage = self.stages[name]
        # What breaks with gloo, where a partner is told, breaks with NCCL too, where it hangs; not the other way round.
        stage.double = place is not None and stage.ranks > 1
        return stage.play(self._folder / f"run{self._number}", place, on)


def _made(make_run: MakeRun, folder: Path, stage: int | None) -> Path:
    """A run folder of its own for each; its learning rate is raised."""
    recipe = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_grad_norm": 0.5, "bf16": True}
    made = make_run(stage, recipe=recipe | {"learning_rate": 1e-5})
    kept = folder / f"built{len(list(folder.glob('built*')))}"
    made.rename(kept)
    made.parent.rmdir()
    return kept


@pytest.fixture
def runs(make_run: MakeRun, tmp_path: Path) -> Runs:
    return Runs(make_run, tmp_path)


def assert_harmless(play: Play, place: str) -> None:
    """The run came to its end, and says what it did not measure."""
    verdict = play.verdict
    assert not play.hung and verdict.outcome.failure is None, (place, verdict.outcome.failure, play.log)
    failed = [row for row in verdict.checks if row.ok is False]
    assert not failed, (place, failed)
    rows = {row.name: row for row in verdict.checks}
    lost = [name for name in ESSENTIAL if name in rows and not rows[name].measured]
    missing = [name for name in ESSENTIAL[3:] if name not in rows]
    assert (verdict.state == "incomplete") == bool(lost or missing), (place, verdict.state, lost, missing)
    if lost or missing:
        assert set(lost + missing) <= set(verdict.unmeasured)
    broken = {name for report in verdict.outcome.reports for name, why in report["instruments"].items() if why}
    assert broken, f"{place} was called and raised, and no instrument says so"
    told = {row.name for row in verdict.checks if row.seen.startswith("not measured: ")}
    assert broken <= told, (place, broken - told)


@pytest.mark.libs
@pytest.mark.several_ranks
@pytest.mark.parametrize("name", ["ZeRO-3, one rank", "ZeRO-3, two ranks", "DDP, two ranks", "FSDP 2, two ranks"])
def test_whole_runs_measure_everything(runs: Runs, name: str) -> None:
    """What the runs below are compared with."""
    found = runs.play(name, None)
    assert found.verdict.state == "passed", (found.verdict.checks, found.log)
    assert not any(why for report in found.verdict.outcome.reports for why in report["instruments"].values())


@pytest.mark.libs
@pytest.mark.several_ranks
@pytest.mark.parametrize("place", functions())
def test_an_instrument_that_breaks_costs_its_own_figure(runs: Runs, place: str) -> None:
    """On the only rank, and on one of two, which its partner must not wait for."""
    called: dict[str, Play] = {}
    for name in runs.stages:
        if called and name not in ("ZeRO-3, one rank", "ZeRO-3, two ranks"):
            break
        found = runs.play(name, place)
        if found.called:
            called[name] = found
            assert_harmless(found, f"{place} in {name}")
    assert called or place in NOT_CALLED, f"no run calls {place}"
    assert not (called and place in NOT_CALLED), f"{list(called)} call {place}"
    written = os.environ.get(WRITE)
    if written:
        with Path(written).open("a", encoding="utf-8") as rows:
            rows.write(f"{row(place, called)}\n")
    else:
        assert row(place, called) in PAGE.read_text(encoding="utf-8").splitlines()


def row(place: str, called: dict[str, Play]) -> str:
    """The row of the page: the function, the instruments that say that they broke, and the verdict of each run."""
    if not called:
        return f"| `{place}` | not called: {NOT_CALLED[place]} | |"
    plays = called.values()
    broken = {
        name
        for one in plays
        for report in one.verdict.outcome.reports
        for name, why in report["instruments"].items()
        if why
    }
    said = []
    for name, one in called.items():
        missing = f" ({', '.join(one.verdict.unmeasured)})" if one.verdict.unmeasured else ""
        said.append(f"{name}: {one.verdict.state}{missing}")
    return f"| `{place}` | {', '.join(sorted(broken))} | {'; '.join(said)} |"


def test_the_page_has_no_other_rows() -> None:
    rows = [line.split("`")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted(functions())
