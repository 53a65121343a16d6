"""A launcher and ranks without the training libraries: as torchrun does it, with the reports of the real program."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from zerocfg.smoke.launch import process
from zerocfg.smoke.launch.leftovers import MARK
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.launch.scratch import scratch

LAUNCHER = """
import os, subprocess, sys, time
ranks, code = int(sys.argv[1]), sys.argv[2]
started = [
    subprocess.Popen([sys.executable, code], env={**os.environ, "RANK": str(rank)}, start_new_session=True)
    for rank in range(ranks)
]
codes = {}
while len(codes) < ranks:
    time.sleep(0.05)
    for rank, one in enumerate(started):
        if one.poll() is not None and rank not in codes:
            codes[rank] = one.returncode
            if one.returncode:
                print(f"  rank      : {rank} (local_rank: {rank})")
                print(f"  exitcode  : {one.returncode} (pid: 1)", flush=True)
sys.exit(any(codes.values()))
"""

RANK = """
import os, sys, time, signal
from pathlib import Path
from zerocfg_worker import failure
from zerocfg_worker.report import Report
report = Report(Path("reports"))
rank = report.rank

def other_ranks():
    report.content["waits"] = True
    report.write()
    while True:
        signal.pause()

def body():
    report.phase("step 1")
{body}

try:
    body()
    report.content["done"] = True
    report.phase("done")
except BaseException as error:
    report.content["error"] = failure.describe(error)
    report.write()
    raise
"""


def command(folder: Path, body: str, ranks: int = 2) -> list[str]:
    """The words that start ranks with this body; ``report``, ``rank`` and ``other_ranks()`` are theirs."""
    indented = "".join(f"    {line}\n" for line in body.strip().splitlines())
    (folder / "train.py").write_text(RANK.replace("{body}", indented))
    (folder / "launcher.py").write_text(LAUNCHER)
    return [sys.executable, str(folder / "launcher.py"), str(ranks), str(folder / "train.py")]


def variables(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(process.program(folder))}


class Hurry:
    """Has the time limit pass as soon as ``ready``, which is asked when rank 0 says that it is in one of the phases.

    So nothing waits for the limit, and on a busy machine the limit waits for the ranks. To be used as ``progress``.
    """

    def __init__(self, limit: float, phases: tuple[str, ...], ready: Callable[[], bool]) -> None:
        self.limit, self.phases, self.ready = limit, phases, ready
        self.passed = 0.0

    def __enter__(self) -> Hurry:
        self._patch = mock.patch.object(process, "time", self)
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()

    def __call__(self, phase: str) -> None:
        if phase in self.phases:
            until(self.ready)
            self.passed = self.limit

    def monotonic(self) -> float:
        return time.monotonic() + self.passed


def until(true: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait; the time is far more than an idle machine needs."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.02)
    return found


def report(folder: Path, rank: int) -> dict[str, Any]:
    """What a rank says by now, {} when nothing."""
    try:
        content: dict[str, Any] = json.loads((folder / "reports" / f"rank{rank}.json").read_text())
    except (OSError, ValueError):
        return {}
    return content


def play(body: str, ranks: int = 2, limit: float = 60, progress: Callable[[str], None] | None = None) -> Outcome:
    """Run it as a smoke-run does, in a scratch folder."""
    with scratch() as folder:
        words = command(folder, body, ranks)
        return process.run(words, folder, ranks, "cpu", limit, progress, variables(folder))


def waits(report: dict[str, Any]) -> bool:
    return bool(report.get("waits"))


def hang(
    body: str, ranks: int = 2, phase: str = "step 1", ready: Callable[[dict[str, Any]], bool] | None = None
) -> Outcome:
    """Run what never ends. The limit (60 s) has passed when all ranks are in the phase and each is ``ready``.

    Without another ``ready``: when each waits for the `other_ranks`.
    """
    with scratch() as folder:
        words = command(folder, body, ranks)

        def all_there() -> bool:
            reports = [report(folder, rank) for rank in range(ranks)]
            return all(one.get("phase") == phase and (ready or waits)(one) for one in reports)

        with Hurry(60, (phase,), all_there) as progress:
            return process.run(words, folder, ranks, "cpu", 60, progress, variables(folder))


def processes(below: str) -> list[int]:
    """Processes of runs whose scratch folder lies in the folder ``below``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            content = entry.read_bytes()
        except OSError:
            continue
        if f"{MARK}={below}{os.sep}".encode() in content:
            found.append(int(entry.parent.name))
    return found


def guards(below: str) -> list[int]:
    """Guards of scratch folders in the folder ``below``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.endswith(b"leftovers.py") for word in words) and f"{below}{os.sep}".encode() in b" ".join(words):
            found.append(int(entry.parent.name))
    return found


if __name__ == "__main__":  # a zerocfg that is to be killed: python standin.py TEMPORARY BODY
    import tempfile

    tempfile.tempdir = sys.argv[1]
    print(play(sys.argv[2]).failure, flush=True)
