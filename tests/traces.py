"""A test leaves nothing of the process changed: the next one, in whatever order, finds what the first one found.

A pytest plugin. What was changed is put back, and the test that changed it fails.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Kept:
    """A part of the process. ``restore`` takes what ``look`` gave."""

    name: str
    look: Callable[[], Any]
    restore: Callable[[Any], object]


ENVIRONMENT = os.environ
BY_LIBRARIES = ("PYTEST_CURRENT_TEST", "PYTORCH_NVML_BASED_CUDA_CHECK", "TORCHINDUCTOR_CACHE_DIR")
"""Set by pytest, and by torch for the rest of the process when a part of it is first imported."""


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in BY_LIBRARIES}


def _set_environment(before: dict[str, str]) -> None:
    os.environ = ENVIRONMENT  # noqa: B003  a test may have put another object in its place
    for name in {*_environment(), *before}:
        if name in before:
            os.environ[name] = before[name]
        else:
            del os.environ[name]


def _set_root_logger(before: tuple[int, list[logging.Handler]]) -> None:
    logging.root.setLevel(before[0])
    logging.root.handlers[:] = before[1]


KEPT = (
    Kept("os.environ", lambda: (id(os.environ), _environment()), lambda before: _set_environment(before[1])),
    Kept("the current folder", Path.cwd, os.chdir),
    Kept("sys.argv", lambda: list(sys.argv), lambda before: sys.argv.__setitem__(slice(None), before)),
    Kept("sys.path", lambda: list(sys.path), lambda before: sys.path.__setitem__(slice(None), before)),
    Kept("the root logger", lambda: (logging.root.level, list(logging.root.handlers)), _set_root_logger),
    Kept("what SIGINT does", lambda: signal.getsignal(signal.SIGINT), partial(signal.signal, signal.SIGINT)),
)


@pytest.fixture(autouse=True)
def no_traces() -> Iterator[None]:
    before = [kept.look() for kept in KEPT]
    yield
    changed = []
    for kept, was in zip(KEPT, before, strict=True):
        now = kept.look()
        if now != was:
            changed.append(f"{kept.name}: {difference(was, now)}")
            kept.restore(was)
    if changed:
        pytest.fail("left behind:\n" + "\n".join(changed), pytrace=False)


def difference(was: Any, now: Any) -> str:
    """Of environments only the variables that differ."""
    if isinstance(was, tuple) and isinstance(was[1], dict) and was[0] == now[0]:
        names = sorted(name for name in {*was[1], *now[1]} if was[1].get(name) != now[1].get(name))
        return ", ".join(f"{name}: {was[1].get(name)!r} -> {now[1].get(name)!r}" for name in names)
    return f"{was!r} -> {now!r}"
