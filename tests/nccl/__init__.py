"""Processes in which gloo has the manners of NCCL; see `tests.nccl.double`, and `tests.nccl.plugin` for tests."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

INSTALLED = Path(__file__).parent / "installed"
"""A folder for PYTHONPATH."""
SWITCH = "ZEROCFG_TEST_NCCL"
LAUNCHES = "ZEROCFG_TEST_LAUNCHES"


def variables(double: bool, notes: str | None = None) -> dict[str, str]:
    """What a process needs in its environment. ``notes``: the socket that ranks of several write to."""
    paths = [str(INSTALLED), *filter(None, [os.environ.get("PYTHONPATH")])]
    found = {"PYTHONPATH": os.pathsep.join(paths)}
    if double:
        found[SWITCH] = "1"
    if notes is not None:
        found[LAUNCHES] = notes
    return found


def path_with(*folders: object) -> str:
    """A PYTHONPATH for what a test starts that has more on it; the double comes first, and hands on."""
    return os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *map(str, folders)]))


def install_here() -> None:
    """What a started process does by itself, in a fork of the process of the tests."""
    runpy.run_path(str(INSTALLED / "sitecustomize.py"))["install"]()
