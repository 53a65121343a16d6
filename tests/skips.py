"""Which tests may be skipped, why, and what would make them run; a skip for any other reason fails.

A pytest plugin. A skip is allowed only where what its reason names is really missing, so that a test that stops to run
is not taken for one that cannot run here.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.ledger.inputs import LIBRARIES
from tools import slurm_nodes

SHARED = Path(__file__).resolve().parents[2] / "shared"


@dataclass(frozen=True)
class Allowed:
    """``reason``: regular expression for the whole reason of the skip. ``missing``: whether that is really missing
    here, asked with the match. ``cure``: what makes the test run."""

    reason: str
    missing: Callable[[re.Match[str]], bool]
    cure: str


def _no_library(_: object) -> bool:
    """None of them: one alone that is missing is a broken environment."""
    return not any(importlib.util.find_spec(name) for name in LIBRARIES)


def _may_administer() -> bool:
    """Whether the kernel lets this process mount file systems and make network namespaces (CAP_SYS_ADMIN)."""
    status = Path("/proc/self/status")
    rights = re.search(r"^CapEff:\s*(\w+)$", status.read_text(), re.MULTILINE) if status.exists() else None
    return rights is not None and bool(int(rights[1], 16) >> 21 & 1)


def _not_linux(_: object) -> bool:
    return sys.platform != "linux"


ALLOWED = (
    Allowed(
        "only root gives files away",
        lambda _: not hasattr(os, "getuid") or os.getuid() != 0,
        "run as root of a Linux machine, or of a container",
    ),
    Allowed(
        "limits and closed descriptors of Linux",
        lambda _: sys.platform != "linux",
        "run on Linux",
    ),
    Allowed(
        r"no (bash|zsh|fish|setpriv|ssh-keygen) here",
        lambda found: shutil.which(found[1]) is None,
        "install that program",
    ),
    Allowed(
        "no corpus of real configs here.*|no memory_points.csv here.*",
        lambda _: not SHARED.is_dir(),
        "lay the collection of public configs and figures beside the checkout, as shared/",
    ),
    Allowed(
        "set ZEROCFG_JOBSET_CRD to the CRD of JobSet",
        lambda _: "ZEROCFG_JOBSET_CRD" not in os.environ,
        "kubectl get crd jobsets.jobset.x-k8s.io -o yaml, of a cluster that has JobSet; name that file",
    ),
    Allowed(
        "no package registry: .*",
        lambda _: "ZEROCFG_OFFLINE" in os.environ,
        "a network; without one, ZEROCFG_OFFLINE=1 says that this is known",
    ),
    Allowed(
        "Slurm is not installed: .*",
        lambda _: bool(slurm_nodes.missing()),
        "apt-get install slurm-wlm",
    ),
    Allowed(
        "set ZEROCFG_SKYPILOT to a Python that has skypilot",
        lambda _: "ZEROCFG_SKYPILOT" not in os.environ,
        "python -m venv sky && sky/bin/pip install skypilot; name sky/bin/python",
    ),
    Allowed(
        "Ray is not installed",
        lambda _: importlib.util.find_spec("ray") is None,
        "pip install 'ray[default]'",
    ),
    Allowed("there is no `ip` here", lambda _: shutil.which("ip") is None, "install iproute2"),
    Allowed(
        "no network namespaces here: .*|only root can mount a small file system",
        lambda _: not _may_administer(),
        "run as root of a Linux machine, or of a container that may mount",
    ),
    Allowed(
        r"could not import '(?:torch|deepspeed|accelerate|transformers|trl)\b.*|torch is not installed"
        "|the extra smoke is not installed",
        _no_library,
        "make setup; `make pythons` does without the training libraries",
    ),
    Allowed(
        r"could not import '(grimp|ruff)'.*",
        lambda found: _no_library(found) and importlib.util.find_spec(found[1]) is None,
        "make setup; `make pythons` does without the tools that check the code",
    ),
    Allowed(
        "ranks are found by /proc|what the kernel counts is read from /proc|only /proc tells who holds a file"
        "|no shared memory here|names of files are text there|holders of locks are seen through /proc"
        "|the list is for Linux",
        _not_linux,
        "run on Linux",
    ),
)


def allowed(reason: str) -> Allowed | None:
    """What allows a skip for this reason here."""
    for one in ALLOWED:
        found = re.fullmatch(one.reason, reason, re.DOTALL)
        if found and one.missing(found):
            return one
    return None


def _judge(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip that nothing allows into a failure."""
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    assert isinstance(report.longrepr, tuple)
    path, line, told = report.longrepr
    reason = str(told).removeprefix("Skipped: ")
    if allowed(reason) is None:
        report.outcome = "failed"
        report.longrepr = f"{path}:{line}: skipped, and tests/skips.py allows no skip for this reason here: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    report: Any = yield
    _judge(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    report: Any = yield
    _judge(report)
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Each reason with how many tests (or whole modules) were skipped for it, and what would make them run."""
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ") for report in terminalreporter.getreports("skipped")
    )
    for reason, count in sorted(reasons.items()):
        one = allowed(reason)
        terminalreporter.write_line(f"{count} skipped: {reason}" + (f" (to run: {one.cure})" if one else ""))
