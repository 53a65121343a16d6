"""How far published rows lie from their predictions, and whether the bands hold rows that they were not made from.

    python -m benchmarks.memory.cross_validation [--no-write]

Reads results/published.json, so it needs no table, no torch and no card. Rows of one source, engine and kind of
training are a group. Each group is judged with scales that were measured on the other groups alone, calibration
included. Writes results/cross-validation.json, .md and .svg, and the scales of all groups together into
zerocfg/memory/measured_spread.py. README.md says what is computed and why ("Bands").
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from benchmarks.memory.errors import error, gib, percent, spoken, summary, table
from benchmarks.memory.freeze import FORMULAS, formula_hash
from zerocfg.memory.overhead import RESERVE, doubts
from zerocfg.memory.spread import COVERED, ENDS, Spread, below

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PUBLISHED = RESULTS / "published.json"
SCALES = HERE.parents[1] / FORMULAS[0] / "measured_spread.py"
COUNTERS = ("allocated", "reserved", "device")

SAME_RUN = (("A03", "A11"), ("A04", "A12"))
"""Rows of one run: what was reserved, and what was allocated."""

NO_VERDICT = {
    "adapters under FSDP 1": "zerocfg names them as not modelled and gives no verdict",
    "InternEvo": (
        "its optimizer keeps fp32 weights and gradients beside those of FSDP "
        "(internlm/solver/optimizer/fsdp_optimizer.py: FSDPadaptOptimizer), which no config that zerocfg reads asks for"
    ),
}
"""What rows of a figure are shown and counted apart, and why."""

START = Spread(0.05, 0.1, 0.04, 0.3)
LEAST = 0.001  # of a scale
FINEST = 0.001  # last step of the search, as a share of a scale
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Row:
    """A row with a figure, in bytes: ``size`` are allocated, ``beside`` expected outside of torch's allocator."""

    name: str
    group: tuple[str, str, str]
    counter: str
    measured: int
    size: int
    activations: int
    doubt: float
    beside: int
    no_verdict: str = ""

    def deviation(self, spread: Spread) -> float:
        """Logarithm of measured over predicted, in scales of ``spread``."""
        expected, width = self.expected(spread)
        return math.log(self.measured / expected) * expected / width

    def expected(self, spread: Spread) -> tuple[int, float]:
        """What is expected and its spread, in bytes."""
        found = doubts(self.size, self.activations, self.doubt, self.beside, spread)
        return found[COUNTERS.index(self.counter)]


@dataclass(frozen=True)
class Ratio:
    """Reserved over allocated of one run, measured both."""

    group: tuple[str, str, str]
    value: float

    def deviation(self, spread: Spread) -> float:
        return math.log(self.value / RESERVE) / spread.reserve


@dataclass(frozen=True)
class Judged:
    """A row with the scales of the other groups."""

    row: Row
    spread: Spread

    @property
    def band(self) -> tuple[float, int, float]:
        expected, width = self.row.expected(self.spread)
        factor = math.exp(ENDS * width / expected)
        return expected / factor, expected, expected * factor

    @property
    def held(self) -> bool:
        low, _, high = self.band
        return low <= self.row.measured <= high

    @property
    def error(self) -> float:
        return error(self.band[1], self.row.measured)


def rows_of(published: Iterable[dict[str, Any]]) -> list[Row]:
    """Clean and open rows with a figure and a prediction."""
    return [_row(one) for one in published if one["group"] in ("clean", "open") and "error" in one]


def _row(one: dict[str, Any]) -> Row:
    group = (one["publisher"], one["engine"], one["kind"])
    engine = {"InternEvo": group[0] == "InternEvo", "adapters under FSDP 1": group[1:] == ("FSDP 1", "adapters")}
    return Row(
        one["row"],
        group,
        one["counter"],
        one["measured"],
        one["allocated"],
        one["activations"],
        one["activations_error"],
        one["beside"],
        next((what for what, there in engine.items() if there), ""),
    )


def ratios_of(rows: Iterable[Row]) -> list[Ratio]:
    """Reserved over allocated where a run printed both."""
    by_name = {row.name: row for row in rows}
    return [
        Ratio(by_name[kept].group, by_name[kept].measured / by_name[held].measured)
        for kept, held in SAME_RUN
        if kept in by_name and held in by_name
    ]


def fitted(rows: Sequence[Row], ratios: Sequence[Ratio]) -> Spread:
    """The scales under which these rows are most likely; a search along one scale after the other."""

    def surprise(spread: Spread) -> float:
        found = 0.0
        for row in rows:
            expected, width = row.expected(spread)
            found += math.log(width / expected) + _surprise(row.deviation(spread))
        return found + sum(math.log(spread.reserve) + _surprise(one.deviation(spread)) for one in ratios)

    best, least, step = START, surprise(START), 0.5
    while step > FINEST:
        before = least
        for name in (one.name for one in fields(Spread)):
            for factor in (1 + step, 1 / (1 + step)):
                tried = replace(best, **{name: max(LEAST, getattr(best, name) * factor)})
                now = surprise(tried)
                if now < least - 1e-9:
                    best, least = tried, now
        if least == before:
            step /= 2
    return best


def _surprise(deviation: float) -> float:
    """Minus the logarithm of the density of Student's t with two degrees of freedom, but for a constant."""
    return 1.5 * math.log(2 + deviation * deviation)


def groups(rows: Iterable[Row]) -> list[tuple[str, str, str]]:
    return sorted({row.group for row in rows})


def without(group: tuple[str, str, str], rows: Sequence[Row], ratios: Sequence[Ratio]) -> tuple[list[Row], list[Ratio]]:
    """All other groups; of ratios all other publishers."""
    return [one for one in rows if one.group != group], [one for one in ratios if one.group[0] != group[0]]


def calibrated(rows: Sequence[Row], ratios: Sequence[Ratio]) -> tuple[Spread, float]:
    """The scales of these rows, and the factor in them.

    The factor is what bands of the other groups' scales have to be widened by to hold :data:`COVERED` of the rows that
    were left out, the row to come counted as one that is not held; never below 1.
    """
    missed = []
    for group in groups(rows):
        spread = fitted(*without(group, rows, ratios))
        missed += [abs(row.deviation(spread)) / ENDS for row in rows if row.group == group]
    wanted = math.ceil(COVERED * (len(missed) + 1)) - 1
    factor = max(1.0, sorted(missed)[min(wanted, len(missed) - 1)])
    return _scaled(fitted(rows, ratios), factor), factor


def _scaled(spread: Spread, factor: float) -> Spread:
    return Spread(*(getattr(spread, one.name) * factor for one in fields(Spread)))


def cross_validated(rows: Sequence[Row], ratios: Sequence[Ratio]) -> list[Judged]:
    """Every row with scales in which its group has no say."""
    found = []
    for group in groups(rows):
        spread, _ = calibrated(*without(group, rows, ratios))
        found += [Judged(row, spread) for row in rows if row.group == group]
    return found


def by_source(rows: Sequence[Row], ratios: Sequence[Ratio]) -> tuple[list[Row], list[Ratio]]:
    """The same with all rows of a source in one group: nothing that its program does can be known from other rows."""

    def alone(group: tuple[str, str, str]) -> tuple[str, str, str]:
        return group[0], "", ""

    return [replace(row, group=alone(row.group)) for row in rows], [
        replace(one, group=alone(one.group)) for one in ratios
    ]


def result(published: dict[str, Any]) -> dict[str, Any]:
    """What is written to cross-validation.json."""
    rows = rows_of(published["rows"])
    ratios = ratios_of(rows)
    counted = [row for row in rows if not row.no_verdict]
    spread, factor = calibrated(counted, ratios)
    judged = cross_validated(counted, ratios)
    apart = [Judged(row, spread) for row in rows if row.no_verdict]
    below_ = [below(one.row.deviation(one.spread)) for one in judged]
    return {
        "formulas": published["formulas"],
        "spread": {one.name: round(getattr(spread, one.name), 3) for one in fields(Spread)},
        "widened": round(factor, 2),
        "reserved over allocated": [round(one.value, 3) for one in ratios],
        "groups": [_group(group, judged) for group in groups(counted)],
        "all": _summary(judged),
        "apart": {what: _summary([one for one in apart if one.row.no_verdict == what]) for what in NO_VERDICT},
        "every row": _summary([*judged, *apart]),
        "a source at a time": _summary(cross_validated(*by_source(counted, ratios))),
        "below": [[level, sum(one <= level for one in below_) / len(below_)] for level in QUANTILES],
        "rows": [_line(one) for one in [*judged, *apart]],
    }


def _summary(judged: Sequence[Judged]) -> dict[str, Any]:
    return {**summary(one.error for one in judged), "held": sum(one.held for one in judged)}


def _group(group: tuple[str, str, str], judged: Sequence[Judged]) -> dict[str, Any]:
    here = [one for one in judged if one.row.group == group]
    scales = {one.name: round(getattr(here[0].spread, one.name), 3) for one in fields(Spread)}
    return {"group": list(group), **_summary(here), "spread": scales}


def _line(one: Judged) -> dict[str, Any]:
    low, expected, high = one.band
    return {
        "row": one.row.name,
        "group": list(one.row.group),
        "counter": one.row.counter,
        "measured": one.row.measured,
        "band": [int(low), expected, int(high)],
        "error": one.error,
        "held": one.held,
        "no verdict": one.row.no_verdict,
    }


def report(found: dict[str, Any]) -> str:
    """results/cross-validation.md."""
    every, share = found["all"], found["all"]["held"] / found["all"]["rows"]
    head = ["source", "engine", "training", "rows", "mean error", "median", "worst", "in the band"]

    def line(names: Iterable[str], one: dict[str, Any]) -> list[str]:
        errors = [f"{one[word]:.1%}" for word in ("mean", "median", "worst")]
        return [*names, str(one["rows"]), *errors, f"{one['held']} of {one['rows']}"]

    lines = [line(one["group"], one) for one in found["groups"]]
    lines.append(line(("all groups", "", ""), every))
    lines.append(line(("a whole source left out at a time", "", ""), found["a source at a time"]))
    apart = [line((what, "", ""), one) for what, one in found["apart"].items()]
    apart.append(line(("every row", "", ""), found["every row"]))
    scales = [[name, f"{value:.3f}", f"{ENDS * value:.0%}"] for name, value in found["spread"].items()]
    missed = [one for one in found["rows"] if not one["held"] and not one["no verdict"]]
    return "\n".join(
        [
            "# Published rows by cross-validation\n",
            "Written by `python -m benchmarks.memory.cross_validation`; what is computed is in `../README.md` "
            f'("Bands"). Formulas `{found["formulas"]}`. An error is (predicted - measured) / measured.\n',
            f"**{every['held']} of {every['rows']} rows ({share:.0%}) lie in the {COVERED:.0%} band that the other "
            f"groups give them; {spoken(every)}.**\n",
            "![bands and measurements](cross-validation.svg)\n",
            "## By group\n",
            "Each line is judged with the scales of the other lines.\n",
            table(head, lines),
            "Not held: "
            + "; ".join(
                f"{one['row']} (measured {gib(one['measured'])}, {gib(one['band'][0])} to {gib(one['band'][2])} GiB)"
                for one in missed
            )
            + ".\n",
            "## Rows without a verdict\n",
            "Judged with the scales of the rows above, in which they have no say.\n",
            *(f"- {what}: {why}.\n" for what, why in NO_VERDICT.items()),
            table(head, apart),
            "## Is the chance right?\n",
            "Share of the held-out rows that were measured at or below the figure under which zerocfg sees them with "
            "this chance.\n",
            table(["chance", "measured below"], ([f"{level:.0%}", f"{seen:.0%}"] for level, seen in found["below"])),
            "## The scales\n",
            f"Of all groups together, widened by {found['widened']:.2f}; written to "
            "`zerocfg/memory/measured_spread.py`. They are shares of the part; those of a figure add up as squares "
            "do.\n",
            table(["part", "scale", "from the middle to an end"], scales),
            "Reserved over allocated, where one run printed both: "
            + " and ".join(f"{one:.2f}" for one in found["reserved over allocated"])
            + f"; {RESERVE} is expected.\n",
            "## Every row\n",
            table(
                ["row", "group", "counter", "measured", "low", "expected", "high", "error", ""],
                (
                    [one["row"], ", ".join(one["group"]), one["counter"], gib(one["measured"])]
                    + [gib(size) for size in one["band"]]
                    + [percent(one["error"]), "" if one["held"] else "outside"]
                    for one in found["rows"]
                ),
            ),
        ]
    )


def scales(found: dict[str, Any]) -> str:
    """zerocfg/memory/measured_spread.py."""
    values = ", ".join(f"{name}={value}" for name, value in found["spread"].items())
    return (
        '"""Written by ``python -m benchmarks.memory.cross_validation``, from its rows; not to be edited."""\n\n'
        "from __future__ import annotations\n\n"
        "from zerocfg.memory.spread import Spread\n\n"
        f"MEASURED = Spread({values})\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Judge every published row with what the other groups say.")
    parser.add_argument("--no-write", action="store_true", help="print the statistics only")
    arguments = parser.parse_args()
    published = json.loads(PUBLISHED.read_text())
    found = result(published)
    for one in found["groups"]:
        print(f"{', '.join(one['group'])}: {spoken(one)}, {one['held']} in the band")
    print(f"all: {spoken(found['all'])}, {found['all']['held']} in the band")
    if arguments.no_write:
        return 0
    from benchmarks.memory.plots import bands

    (RESULTS / "cross-validation.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "cross-validation.md").write_text(report(found))
    bands(found["rows"], RESULTS / "cross-validation.svg")
    if SCALES.read_text() != scales(found):
        SCALES.write_text(scales(found))
        print("the scales changed, and with them the hash of the formulas: run published.py and predict_gpu.py again")
    if published["formulas"] != formula_hash():
        print("results/published.json is of other formulas: run published.py, then this again")
    return 0


if __name__ == "__main__":
    sys.exit(main())
