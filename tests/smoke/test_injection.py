"""Every function of every instrument raises, one at a time: no run fails or hangs, and none passes without what is
essential. The table of `docs/smoke-instruments.md` is made here (``python -m tests.smoke.test_injection``)."""

from __future__ import annotations

import ast
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml

from tests.conftest import ROOT
from zerocfg.smoke.model.certificate import CHANGE, ENGINE, LOADED, SAVED, STAGE, STEPS, WORLD_SIZE

from .ranks import Play, Stage

if TYPE_CHECKING:
    from .conftest import MakeRun

WORKER = ROOT / "zerocfg" / "smoke" / "worker"
PAGE = ROOT / "docs" / "smoke-instruments.md"
NO_INSTRUMENTS = {
    "__init__": "the package",
    "__main__": "starts the training",
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
    "trainer": "hands the Trainer's objects over",
    "trial": "how a training differs",
    "values": "values as JSON, called by every instrument",
    "votes": "the fence between ranks",
    "watch": "asks the instruments",
    "loops": "the training loops",
    "hooks": "the loops of the user's own command: see test_hooks.py",
}
"""Modules and packages of the ranks' program that are no instruments, and why."""
ON_A_CARD = {
    "fsdp_1": "FSDP 1 cannot save on a processor: torch crashes",
    "trl": "only a trainer of TRL has settings of its own: see test_trl_trainers.py",
    "limit": "a limit of memory that the user asks for is to end the run",
    "compile": "called while an operator is compiled, which takes minutes",
}


class Broken(NamedTuple):
    """A function of an instrument: "module:Class.name"."""

    place: str

    @property
    def module(self) -> str:
        return self.place.partition(":")[0]


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
