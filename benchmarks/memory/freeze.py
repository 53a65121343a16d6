"""One hash over the formulas, and which committed results were made with them.

    python benchmarks/memory/freeze.py [--write]

Prints a line for each result; ``--write`` also puts the statements into results/state.json.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FORMULAS = ("zerocfg/memory", "zerocfg/tracer")
STATE = HERE / "results" / "state.json"
RESULTS = {
    "published": HERE / "results" / "published.json",
    "predictions": HERE / "predictions.json",
    "gpu": HERE / "results" / "gpu.json",
}


def formula_hash(root: Path = ROOT, folders: Iterable[str] = FORMULAS) -> str:
    """SHA-256 (first 16 digits) over path and content of every Python file of the formulas (in folders, or single)."""
    digest = hashlib.sha256()
    for folder in folders:
        place = root / folder
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()[:16]


def states() -> dict[str, str]:
    """Result -> "present formulas", "formulas changed since" or "not made yet"."""
    now = formula_hash()
    found = {}
    for name, path in RESULTS.items():
        if not path.is_file():
            found[name] = "not made yet"
            continue
        made_with = json.loads(path.read_text())["formulas"]
        found[name] = "present formulas" if made_with == now else "formulas changed since"
    return found


def write_state() -> None:
    """Keep today's statements in results/state.json."""
    STATE.parent.mkdir(exist_ok=True)
    STATE.write_text(json.dumps(states(), indent=2) + "\n")


def untrue(stated: dict[str, str], found: dict[str, str]) -> list[str]:
    """Results that are said to be of the present formulas and are not."""
    return [
        name for name, state in found.items() if state != stated.get(name) and stated.get(name) == "present formulas"
    ]


if __name__ == "__main__":
    for result, state in states().items():
        print(f"{result}: {state}")
    if "--write" in sys.argv[1:]:
        write_state()
