"""A launcher and ranks without the training libraries: as torchrun does it, with the reports of the real program."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from zerocfg.smoke import process
from zerocfg.smoke.leftovers import MARK
from zerocfg.smoke.process import Outcome
from zerocfg.smoke.scratch import scratch

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
    while True:
        time.sleep(0.05)

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


def play(body: str, ranks: int = 2, limit: float = 60, **more: object) -> Outcome:
    """Run it as a smoke-run does, in a scratch folder."""
    with scratch() as folder:
        words = command(folder, body, ranks)
        return process.run(words, folder, ranks, "cpu", limit, variables=variables(folder), **more)  # type: ignore[arg-type]


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
