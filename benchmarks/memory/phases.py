"""Predicted against measured bytes of each phase of the cases that ran on a card, with today's formulas.

    python -m benchmarks.memory.phases [--trace]

``predictions.json`` is what had been predicted before the run and stays as it was; this is what the formulas say now,
with the corrections that were found on these cases. Reads the activations from data/timelines.json, so it needs neither
torch nor a card; ``--trace`` makes that file anew (torch, transformers; two minutes).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

from benchmarks.memory.cases import CASES, Case
from benchmarks.memory.compare_gpu import PHASES, PREDICTIONS, load, measured
from benchmarks.memory.errors import error, percent, summary, table
from benchmarks.memory.ours import DURING_STEPS, card
from benchmarks.memory.predict_gpu import CARD
from benchmarks.memory.predict_gpu import PHASES as MOMENTS_OF
from zerocfg.memory.activations.tracing import trace
from zerocfg.memory.predict import Prediction, predict
from zerocfg.memory.terms import Moment, Segment, Timeline
from zerocfg.models.model_facts import from_config

HERE = Path(__file__).resolve().parent
TIMELINES = HERE / "data" / "timelines.json"
MEASURED = HERE.parent / "gpu" / "results" / "h200-2026-11-26" / "memory.jsonl"
MOMENT_NAMES: tuple[Moment, ...] = get_args(Moment)


@dataclass(frozen=True)
class PhaseRow:
    """One phase of one case, in bytes; ``before``: as predicted before the run."""

    case: str
    phase: str
    measured: int
    before: int
    predicted: int

    @property
    def error(self) -> float:
        return error(self.predicted, self.measured)


def kept_timelines() -> dict[str, Timeline]:
    """The traced activations of each case, from data/timelines.json."""
    found = {}
    for name, kept in json.loads(TIMELINES.read_text())["cases"].items():
        segments = tuple(Segment(MOMENT_NAMES[moment], size, produced) for moment, size, produced in kept["segments"])
        found[name] = Timeline(segments, kept["elements"], kept["origin"], kept["error"], kept["logits"])
    return found


def write_timelines() -> None:
    """Trace all cases, those that did not run among them."""
    lines = []
    for case in CASES:
        found = trace(case.config, case.workload, case.options.precision).timeline
        segments = [[MOMENT_NAMES.index(one.moment), one.size, one.produced] for one in found.segments]
        about = {"elements": found.elements, "origin": found.origin, "error": found.error, "logits": found.logits}
        lines.append(f"{json.dumps(case.name)}: {json.dumps({**about, 'segments': segments}, separators=(',', ':'))}")
    cases = ",\n".join(lines)
    TIMELINES.write_text(f'{{"moments": {json.dumps(MOMENT_NAMES)}, "cases": {{\n{cases}\n}}}}\n')


@cache
def _timelines() -> dict[str, Timeline]:
    return kept_timelines()


def prediction(case: Case) -> Prediction:
    """What today's formulas say of a case."""
    return predict(from_config(case.config), case.options, _timelines()[case.name], card(CARD))


def measured_cases() -> dict[str, dict[str, Any]]:
    """The lines of the cases that ran, by name."""
    _, lines = load(MEASURED)
    return {name: line for name, line in lines.items() if line["status"] == "ok"}


def rows() -> Iterator[PhaseRow]:
    """Every phase of every case that ran."""
    lines = measured_cases()
    before = json.loads(PREDICTIONS.read_text())["cases"]
    for case in CASES:
        if case.name in lines:
            seen, estimate = measured(lines[case.name]), prediction(case).estimate
            for phase in PHASES:
                size = estimate.peak("device", MOMENTS_OF[phase]).size
                yield PhaseRow(case.name, phase, seen[phase], before[case.name]["phases"][phase], size)


def peaks() -> dict[str, float]:
    """Error of the allocated peak of each case."""
    lines = measured_cases()
    sizes = {case.name: prediction(case).estimate.peak("device", DURING_STEPS).size for case in CASES}
    return {name: error(sizes[name], measured(line)["allocated"]) for name, line in lines.items()}


def _fine(errors: Iterable[float]) -> str:
    found = summary(errors)
    return f"{found['rows']} cases: mean {found['mean']:.3%}, median {found['median']:.3%}, worst {found['worst']:.3%}"


def report() -> str:
    """Tables in Markdown."""
    found, errors = list(rows()), peaks()
    parts = [
        "# Predicted and measured: phases, with the corrections that these cases led to\n",
        f"Allocated peak, {_fine(errors.values())}.\n",
        *(f"- {phase}: {_fine(row.error for row in found if row.phase == phase)}\n" for phase in PHASES),
        table(
            ["case", "phase", "measured, bytes", "predicted before", "predicted now", "error before", "error now"],
            (
                [
                    *(row.case, row.phase, str(row.measured), str(row.before), str(row.predicted)),
                    *(percent(error(row.before, row.measured)), f"{row.error:+.3%}"),
                ]
                for row in found
            ),
        ),
    ]
    return "\n".join(parts)


def main() -> int:
    if "--trace" in sys.argv[1:]:
        write_timelines()
    text = report()
    print(text)
    (HERE / "results" / "phases.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
