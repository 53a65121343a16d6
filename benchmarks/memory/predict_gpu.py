"""Predictions for the cases of ``cases.py``, made without a card before they are run.

    python benchmarks/memory/predict_gpu.py [--round 2] [--card H100-SXM-80GB --out predictions-h100.json]

Writes predictions.json, for one H200 unless another card is named: for each case the three figures, each phase in bytes
and in seconds, the parts of the peak and the verdict, with the hash of the formulas. The second round has what the
first one, on an H200, did not reach, and new cases.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.memory.cases import CASES, SECOND_ROUND, Case  # noqa: E402
from benchmarks.memory.freeze import formula_hash, write_state  # noqa: E402
from benchmarks.memory.ours import card, of_case  # noqa: E402
from benchmarks.time.host import of_phase  # noqa: E402
from zerocfg.hardware.catalogue import parse_hardware  # noqa: E402
from zerocfg.memory.options import Options  # noqa: E402
from zerocfg.memory.terms import BACKWARD, Moment  # noqa: E402
from zerocfg.memory.time.step_time import step_time  # noqa: E402
from zerocfg.memory.verdict import judge  # noqa: E402
from zerocfg.models.model_facts import ModelFacts  # noqa: E402

FILE = Path(__file__).resolve().parent / "predictions.json"
FIRST_RESULTS = ROOT / "benchmarks" / "gpu" / "results" / "h200-2026-11-26" / "memory.jsonl"
NEARLY_FULL = (0.85, 1.15)
"""Device memory expected over that of the card, of cases that tell something only there."""
CARD = "H200-SXM-141GB"
# gpu.py reads the counter after forward (with the loss), after backward and after the step.
PHASES: dict[str, frozenset[Moment]] = {
    "forward": frozenset({"forward", "loss"}),
    "backward": BACKWARD,
    "step": frozenset({"step"}),
}


def prediction_of(case: Case, capacity: int, name: str = CARD) -> dict[str, Any]:
    """What one case is predicted to take on a card, in bytes."""
    facts, found = of_case(case.config, case.options, case.workload, name, case.adapters)
    worst, verdict = found.worst, judge(found, capacity)
    bands = {name: getattr(found, name) for name in ("allocated", "reserved", "device")}
    return {
        "parameters": facts.parameters,
        "allocated": worst.size,
        "moment": worst.moment,
        "phases": {name: found.estimate.peak("device", moments).size for name, moments in PHASES.items()},
        "seconds": seconds_of(facts, case, name),
        "host": found.estimate.peak("host").size,
        "bands": {name: [band.low, band.expected, band.high] for name, band in bands.items()},
        "word": verdict.word,
        "chance": verdict.chance,
        "parts": {term.name: size for term, size in worst.parts},
    }


def seconds_of(facts: ModelFacts, case: Case, name: str) -> dict[str, float] | None:
    """Expected seconds of each phase of one micro batch; None where the host's part in it is not modelled."""
    options = replace(case.options, gradient_accumulation_steps=1)
    on_host = isinstance(options, Options) and {options.offload_optimizer, options.offload_param} != {"none"}
    if case.adapters or on_host:
        return None
    step = step_time(facts, options, case.workload, parse_hardware(f"1x{name}"))
    return {phase: round(taken, 5) for phase, taken in of_phase(step).items()}


def reached() -> set[str]:
    """The cases that the first round measured."""
    lines = map(json.loads, FIRST_RESULTS.read_text().splitlines())
    return {line["case"] for line in lines if line["status"] == "ok"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--card", default=CARD)
    parser.add_argument("--round", type=int, choices=(1, 2), default=1)
    parser.add_argument("--out", type=Path, default=FILE)
    asked = parser.parse_args()
    usable = card(asked.card).planning_gib
    assert usable is not None
    capacity = int(usable * (1 << 30))
    formulas = formula_hash()  # now: they may be edited while this runs
    cases: dict[str, Any] = {}
    first = reached()
    asked_for = CASES if asked.round == 1 else (*(case for case in CASES if case.name not in first), *SECOND_ROUND)
    for case in asked_for:
        predicted = prediction_of(case, capacity, asked.card)
        low, high = NEARLY_FULL
        if case.near and not low <= predicted["bands"]["device"][1] / capacity <= high:
            continue
        cases[case.name], size = predicted, predicted["allocated"]
        print(f"{case.name:20} {size / 2**30:8.2f} GiB, {cases[case.name]['word']}", flush=True)
    content = {"formulas": formulas, "card": asked.card, "capacity": capacity, "cases": cases}
    asked.out.write_text(json.dumps(content, indent=1) + "\n")
    write_state()
    return 0


if __name__ == "__main__":
    sys.exit(main())
