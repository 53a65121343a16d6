"""The parts of a fleet lint: processes that break, shares of the work, comparisons."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerocfg.fleet.changes import changes
from zerocfg.fleet.listing import ListError, below, listed
from zerocfg.fleet.model import Outcome
from zerocfg.fleet.shares import shares, weight

POOL = """\
import os, signal, sys, time
from zerocfg.fleet.pool import Lost, results

def work(item):
    if item == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if item == "exit":
        os._exit(3)
    if item == "hang":
        time.sleep(600)
    return item * 2 if item != "large" else "x" * 5_000_000

if __name__ == "__main__":
    for item, result in sorted(results(work, sys.argv[1:], jobs=3, limit=15)):
        print(item, result.why if isinstance(result, Lost) else len(result))
"""


def test_a_process_that_breaks_costs_its_own_item(tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(POOL)
    words = [sys.executable, "pool.py", "a", "bb", "exit", "hang", "kill", "large"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == [
        "a 2",
        "bb 4",
        "exit its process ended without an answer (exit code 3)",
        "hang took longer than 15 s",
        "kill its process was ended by SIGKILL, perhaps for want of memory",
        "large 5000000",
    ], done.stderr


def test_an_interrupt_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(POOL.replace("time.sleep(600)", "open(str(os.getpid()), 'w'); time.sleep(600)"))
    started = subprocess.Popen([sys.executable, "pool.py", "hang", "hang"], cwd=tmp_path, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while len(found := [one.name for one in tmp_path.iterdir() if one.name.isdigit()]) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    started.wait(30)
    assert len(found) == 2 and not any(Path(f"/proc/{process}").exists() for process in found)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=30), st.integers(1, 6))
def test_every_item_is_in_one_share(weights: list[int], workers: int) -> None:
    """None is empty, and the heaviest is at most the average and one item more."""
    items = list(range(len(weights)))
    found = shares(items, weights, workers)
    assert sorted(one for share in found for one in share) == items
    assert len(found) == min(workers, len(items)) and all(found)
    heaviest = max(sum(weights[one] for one in share) for share in found)
    assert heaviest <= sum(weights) / len(found) + max(weights)


def test_what_weighs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x" * 1000)
    (tmp_path / "weights.bin").write_text("x" * 1000)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "hook.py").write_text("x")
    assert weight(str(tmp_path)) == 1 + 4096 + 1000
    assert weight(str(tmp_path / "nowhere")) == 1


def test_lists(tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    assert [(one.name, one.path) for one in below(tmp_path)] == [("a", f"{tmp_path}/a"), ("b", f"{tmp_path}/b")]
    found = listed(["a\n", " ../b \n", "# c\n", "/c/d/\n", "a\n"], tmp_path / "x")
    assert [(one.name, one.path) for one in found] == [
        ("a", f"{tmp_path}/x/a"),
        ("../b", f"{tmp_path}/b"),
        ("/c/d/", "/c/d"),
    ]
    with pytest.raises(ListError, match="no folder is in"):
        below(tmp_path / "a")


def outcome(name: str, *found: str, problem: str = "") -> Outcome:
    """``found``: code and fingerprint, as "ZC102 a"."""
    each = [
        dict(zip(("code", "fingerprint"), one.split(), strict=True)) | {"name": "n", "severity": "error"}
        for one in found
    ]
    return Outcome(
        name, f"/{name}", problem=problem, report={} if problem else {"diagnostics": each, "internal_errors": []}
    )


def test_what_can_be_compared() -> None:
    before = [
        outcome("a", "ZC1 x", "ZC1 y", "ZC2 z"),
        outcome("lost", "ZC1 x"),
        outcome("gone"),
        outcome("now", problem="p"),
    ]
    now = [
        outcome("a", "ZC1 y", "ZC1 v", "ZC3 w"),
        outcome("lost", problem="p"),
        outcome("new", "ZC1 q"),
        outcome("now", "ZC1 q"),
    ]
    found = changes(now, before, "0")
    assert [(one.what, one.new, one.gone, one.same) for one in found.rules] == [
        ("ZC1", 1, 1, 1),
        ("ZC2", 0, 1, 0),
        ("ZC3", 1, 0, 0),
    ]
    assert [(one.what, one.new, one.gone, one.same) for one in found.repositories] == [("a", 2, 2, 1)]
    assert (found.added, found.removed, found.not_compared) == (("new",), ("gone",), ("lost", "now"))
    assert [one["fingerprint"] for one in found.new_of(now[0])] == ["v", "w"] and not found.new_of(now[2])
    total = found.total
    assert (total.new, total.gone, total.same) == (2, 2, 1)
