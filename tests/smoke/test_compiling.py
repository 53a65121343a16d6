"""Time in which ranks compile operators does not count for the limit, and is told."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zerocfg.smoke.judge import measured
from zerocfg.smoke.launch import process
from zerocfg.smoke.launch.compiling import LONGEST, Compiling
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.worker import compiling

NOBODY = 2**22 + 1
"""More than any process id of Linux."""


def mark(folder: Path, name: str, pid: int) -> Path:
    path = folder / f"compiling-{pid}"
    path.write_text(name)
    return path


def test_seconds_count_while_a_living_rank_compiles(tmp_path: Path) -> None:
    watched = Compiling(tmp_path)
    watched.look(10.0)
    assert (watched.now, watched.seconds) == (None, 0.0)
    own = mark(tmp_path, "cpu_adam", os.getpid())
    watched.look(20.0)
    assert (watched.now, watched.seconds) == ("cpu_adam", 0.0), "it began somewhere before this look"
    watched.look(50.0)
    own.unlink()
    watched.look(55.0)
    watched.look(70.0)
    assert (watched.now, watched.seconds) == (None, 35.0)
    mark(tmp_path, "utils", NOBODY)
    watched.look(80.0)
    watched.look(90.0)
    assert (watched.now, watched.seconds) == (None, 35.0), "of a rank that is gone"
    mark(tmp_path, "utils", os.getpid())
    watched.look(100.0)
    watched.look(100.0 + LONGEST)
    assert watched.allowed == LONGEST < watched.seconds, "what takes longer hangs"


class Ranks:
    """A launcher that runs for some seconds of a clock that only waiting moves."""

    def __init__(self, lasts: float) -> None:
        self.now, self.lasts = 0.0, lasts

    def poll(self) -> int | None:
        return 0 if self.now >= self.lasts else None

    def wait(self, seconds: float) -> None:
        self.now += 20.0


@pytest.mark.parametrize(("compiles", "late"), [(True, False), (False, True)])
def test_the_limit_waits_for_a_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiles: bool, late: bool
) -> None:
    (tmp_path / "reports").mkdir()
    if compiles:
        mark(tmp_path / "reports", "cpu_adam", os.getpid())
    ranks = Ranks(700.0)
    shown: list[str] = []
    run: Any = process._Run([], tmp_path, 0, 300.0, [], shown.append)  # type: ignore[arg-type]
    run.process = ranks
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: ranks.now))
    monkeypatch.setattr(process._Run, "_ask", lambda self: None)
    monkeypatch.setattr(process._Run, "_find_lock", lambda self, seen, quiet=0.0: None)
    run.segments = SimpleNamespace(look=lambda members: None)
    assert run._follow(300.0) is late
    assert shown == (["compile cpu_adam"] if compiles else ["launch"])


@pytest.mark.libs
def test_torch_compiles_where_it_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What DeepSpeed calls to build an operator ends up in the function that is followed."""
    monkeypatch.setattr(sys, "path", [*sys.path])  # setuptools adds to it
    from torch.utils import cpp_extension

    seen: list[tuple[str, str]] = []

    def build(name: str, *arguments: object, **named: object) -> str:
        seen.append((name, (tmp_path / f"compiling-{os.getpid()}").read_text()))
        return "built"

    monkeypatch.setattr(cpp_extension, "_jit_compile", build)
    compiling.follow(cpp_extension, tmp_path)
    assert cpp_extension.load("cpu_adam", ["a.cpp"], build_directory=str(tmp_path)) == "built"
    assert seen == [("cpu_adam", "cpu_adam")]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("seconds", "told"), [(0.9, []), (1.0, ["1, outside the time limit"])])
def test_the_table_tells_it(seconds: float, told: list[str]) -> None:
    assert [one.seen for one in measured._compiled(Outcome([], compiled=seconds))] == told
