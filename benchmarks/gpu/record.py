"""Results of checks as files: NAME.json of each check, and of a sweep NAME.jsonl with a line for each case."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Result = dict[str, Any]
PASSED, FAILED, INCOMPLETE, RUNNING = "passed", "failed", "incomplete", "running"
LEFT = "cases left"
"""State of a sweep in which nothing failed and which has cases left."""
TIMED_OUT, OUT_OF_BUDGET, KILLED = "timed out", "out of budget", "killed"
CUT_OFF = (RUNNING, OUT_OF_BUDGET, KILLED, LEFT)
"""States of checks that did not have all their time. A check that is killed at once stays "running"."""


def write_json(path: Path, content: Result) -> None:
    """Replace a file as a whole, so that no reader and no kill sees half of it."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(content, indent=2) + "\n")
    fresh.replace(path)


def read_result(path: Path) -> Result:
    """The result that an earlier run wrote, with its state; empty where there is none."""
    try:
        found: Result = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    if "state" not in found and "passed" in found:  # results before 2026-11-27 have no state
        found["state"] = (LEFT if found.get("left") else PASSED) if found["passed"] else FAILED
    return found


def whole_lines(path: Path, *, mend: bool = False) -> list[Result]:
    """The lines of a file of results. ``mend``: take what a killed program left of its last line out of the file."""
    if not path.is_file():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if mend and whole != text:
        path.write_text(whole)
    return [json.loads(line) for line in whole.splitlines()]


def find_measured_cards(folder: Path, name: str) -> set[str]:
    """The cards that the results of a check in a folder are of."""
    cards = {card["name"] for card in read_result(folder / f"{name}.json").get("cards", ())[:1]}
    lines = whole_lines(folder / f"{name}.jsonl")
    return cards | {line["card"] for line in lines if line["case"] == "machine" and line.get("card")}


class Record:
    """The result of one check, written anew with everything that becomes known."""

    def __init__(self, path: Path, heading: Result, now: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self.content: Result = {**heading, "seconds": 0.0, "state": RUNNING, "passed": False}
        self._now, self._start = now, now()
        self.update()

    def update(self, **content: Any) -> None:
        self.content |= content
        self.content["seconds"] = round(self._now() - self._start, 1)
        write_json(self.path, self.content)

    def close(self, state: str, **content: Any) -> None:
        self.update(state=state, passed=state in (PASSED, LEFT), **content)


def shorten(text: str, length: int = 4000) -> str:
    """The end of what a program printed, without the control characters of a terminal."""
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).strip()[-length:]
