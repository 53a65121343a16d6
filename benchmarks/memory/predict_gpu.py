"""Predictions for the cases of ``cases.py``, made without a card before they are run.

    python benchmarks/memory/predict_gpu.py

Writes predictions.json: for each case the three figures, each phase, the parts of the peak and the verdict, with the
hash of the formulas.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.memory.cases import CASES, Case  # noqa: E402
from benchmarks.memory.freeze import formula_hash, write_state  # noqa: E402
from benchmarks.memory.ours import card, of_case  # noqa: E402
from zerocfg.memory.terms import BACKWARD, Moment  # noqa: E402
from zerocfg.memory.verdict import judge  # noqa: E402

FILE = Path(__file__).resolve().parent / "predictions.json"
CARD = "H200-SXM-141GB"
# gpu.py reads the counter after forward (with the loss), after backward and after the step.
PHASES: dict[str, frozenset[Moment]] = {
    "forward": frozenset({"forward", "loss"}),
    "backward": BACKWARD,
    "step": frozenset({"step"}),
}


def prediction_of(case: Case, capacity: int) -> dict[str, Any]:
    """What one case is predicted to take, in bytes."""
    facts, found = of_case(case.config, case.options, case.workload, CARD)
    worst, verdict = found.worst, judge(found, capacity)
    bands = {name: getattr(found, name) for name in ("allocated", "reserved", "device")}
    return {
        "parameters": facts.parameters,
        "allocated": worst.size,
        "moment": worst.moment,
        "phases": {name: found.estimate.peak("device", moments).size for name, moments in PHASES.items()},
        "host": found.estimate.peak("host").size,
        "bands": {name: [band.low, band.expected, band.high] for name, band in bands.items()},
        "word": verdict.word,
        "chance": verdict.chance,
        "parts": {term.name: size for term, size in worst.parts},
    }


def main() -> int:
    usable = card(CARD).planning_gib
    assert usable is not None
    capacity = int(usable * (1 << 30))
    formulas = formula_hash()  # now: they may be edited while this runs
    cases: dict[str, Any] = {}
    for case in CASES:
        cases[case.name] = prediction_of(case, capacity)
        size = cases[case.name]["allocated"]
        print(f"{case.name:20} {size / 2**30:8.2f} GiB, {cases[case.name]['word']}", flush=True)
    content = {"formulas": formulas, "card": CARD, "capacity": capacity, "cases": cases}
    FILE.write_text(json.dumps(content, indent=1) + "\n")
    write_state()
    return 0


if __name__ == "__main__":
    sys.exit(main())
