"""Predictions for the cases of ``cases.py``, made without a card before they are run.

    python benchmarks/memory/predict_gpu.py [--card H100-SXM-80GB --out predictions-h100.json]

Writes predictions.json, for one H200 unless another card is named: for each case the three figures, each phase, the
parts of the peak and the verdict, with the hash of the formulas.
"""

from __future__ import annotations

import argparse
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


def prediction_of(case: Case, capacity: int, name: str = CARD) -> dict[str, Any]:
    """What one case is predicted to take on a card, in bytes."""
    facts, found = of_case(case.config, case.options, case.workload, name)
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--card", default=CARD)
    parser.add_argument("--out", type=Path, default=FILE)
    asked = parser.parse_args()
    usable = card(asked.card).planning_gib
    assert usable is not None
    capacity = int(usable * (1 << 30))
    formulas = formula_hash()  # now: they may be edited while this runs
    cases: dict[str, Any] = {}
    for case in CASES:
        cases[case.name] = prediction_of(case, capacity, asked.card)
        size = cases[case.name]["allocated"]
        print(f"{case.name:20} {size / 2**30:8.2f} GiB, {cases[case.name]['word']}", flush=True)
    content = {"formulas": formulas, "card": asked.card, "capacity": capacity, "cases": cases}
    asked.out.write_text(json.dumps(content, indent=1) + "\n")
    write_state()
    return 0


if __name__ == "__main__":
    sys.exit(main())
