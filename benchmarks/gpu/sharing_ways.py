"""The check of the ways in which two ranks can share a card, each tried by itself and in a process of its own.

    python benchmarks/gpu/sharing_ways.py WAY [--device cuda|cpu]

tries one way and prints as JSON whether it works, and what the ranks saw.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu.budget import Clock  # noqa: E402
from benchmarks.gpu.place import Place  # noqa: E402
from benchmarks.gpu.processes import TimedOutError, run_within  # noqa: E402
from benchmarks.gpu.record import Record, shorten  # noqa: E402

LONGEST = 75.0
"""Seconds for one way: the trial's own patience, and importing torch before it."""


@dataclass(frozen=True)
class SharingWays:
    """The trial of `zerocfg smoke --share-gpu`, once for each way. Passed: at least one of them works."""

    def play(self, place: Place, record: Record, clock: Clock) -> bool:
        from zerocfg.smoke.worker.job import MODES

        ways: dict[str, Any] = {}
        record.update(commands=["zerocfg.smoke.launch.sharing.find"], ways=ways)
        for way in MODES:
            command = [sys.executable, __file__, way, "--device", place.device]
            seconds = min(LONGEST, clock.left)
            try:
                done = run_within(command, seconds)
                ways[way] = json.loads(done.stdout)
            except TimedOutError as late:
                ways[way] = {"works": False, "why": str(late)}
            except ValueError:
                ways[way] = {"works": False, "why": shorten(done.stderr or done.stdout)}
            record.update(ways=ways)
        return any(way["works"] for way in ways.values())


def try_way(way: str, device: str) -> dict[str, Any]:
    """Whether two ranks can share the device in this way, else why not, and what the ranks saw."""
    from zerocfg.smoke.launch import sharing
    from zerocfg.smoke.model.error import SmokeError

    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zerocfg-gpu-") as scratch:
        try:
            sharing.find(2, Path(scratch), device=device, modes=(way,))
            works, why = True, ""
        except SmokeError as error:
            works, why = False, str(error)
        reports = [json.loads(path.read_text()) for path in sorted(Path(scratch).glob("*/reports/rank*.json"))]
    seen = [report.get("seen", {}) for report in reports]
    return {"works": works, "why": why, "seconds": round(time.monotonic() - start, 1), "seen": seen}


def main() -> int:
    parser = argparse.ArgumentParser(description="Try one way for two ranks to share a card.")
    parser.add_argument("way")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    given = parser.parse_args()
    print(json.dumps(try_way(given.way, given.device)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
