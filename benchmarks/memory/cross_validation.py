"""How far published rows lie from their predictions, and whether the bands hold rows that they were not made from.

    python -m benchmarks.memory.cross_validation [--no-write]

Reads results/published.json, so it needs no table, no torch and no card. Rows of one source, engine and kind of
training are a group. Each group is judged with scales that were measured on the other groups alone, calibration
included; then each source with those of the other sources. Writes results/cross-validation.json, .md and .svg, and the
scales of all rows together into zerocfg/memory/measured_spread.py. README.md says what is computed and why ("Bands").
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
from zerocfg.memory.band_tier import RESERVE
from zerocfg.memory.overhead import doubts
from zerocfg.memory.spread import COVERED, ENDS, Spread, below

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PUBLISHED = RESULTS / "published.json"
SCALES = HERE.parents[1] / FORMULAS[0] / "measured_spread.py"
COUNTERS = ("allocated", "reserved", "device")

SAME_RUN = (("A03", "A11"), ("A04", "A12"))
"""Rows of one run: what was reserved, and what was allocated."""

NO_VERDICT = {
    "LitGPT's adapters": (
        "LitGPT wraps whole blocks under FSDP 1 (litgpt/finetune/lora.py: auto_wrap_policy={Block}), adapters and "
        "frozen weights together; zerocfg predicts PEFT's policy, which the Trainer uses"
    ),
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
    engine = {"InternEvo": group[0] == "InternEvo", "LitGPT's adapters": group == ("LitGPT", "FSDP 1", "adapters")}
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
    """The scales of these rows, and the factor in them: what :func:`widening` asks for, of groups left out or of whole
    sources, whichever is more; never below 1."""
    factor = max(1.0, widening(rows, ratios), widening(*by_source(rows, ratios)))
    return _scaled(fitted(rows, ratios), factor), factor


def widening(rows: Sequence[Row], ratios: Sequence[Ratio]) -> float:
    """By what bands of the other groups' scales have to be widened to hold :data:`COVERED` of the rows that were left
    out, the row to come counted as one that is not held."""
    missed = []
    for group in groups(rows):
        spread = fitted(*without(group, rows, ratios))
        missed += [abs(row.deviation(spread)) / ENDS for row in rows if row.group == group]
    wanted = math.ceil(COVERED * (len(missed) + 1)) - 1
    return sorted(missed)[min(wanted, len(missed) - 1)]


def _scaled(spread: Spread, factor: float) -> Spread:
    return Spread(*(getattr(spread, one.name) * factor for one in fields(Spread)))


def cross_validated(rows: Sequence[Row], ratios: Sequence[Ratio]) -> list[Judged]:
    """Every row with scales in which its group has no say."""
    found = []
    for group in groups(rows):
        spread, _ = calibrated(*without(group, rows, ratios))
        found += [Judged(row, spread) for row in rows if row.group == group]
    return found


def cross_validated_by_source(rows: Sequence[Row], ratios: Sequence[Ratio]) -> list[Judged]:
    """Every row with scales in which no row of its source has a say; what its program does is in none of the rest."""
    found = []
    for source in sorted({row.group[0] for row in rows}):
        others = [one for one in rows if one.group[0] != source], [one for one in ratios if one.group[0] != source]
        spread, _ = calibrated(*others)
        found += [Judged(row, spread) for row in rows if row.group[0] == source]
    return found


def by_source(rows: Sequence[Row], ratios: Sequence[Ratio]) -> tuple[list[Row], list[Ratio]]:
    """The same with all rows of a source in one group."""

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
    by_sources = cross_validated_by_source(counted, ratios)
    apart = [Judged(row, spread) for row in rows if row.no_verdict]
    return {
        "formulas": published["formulas"],
        "spread": {one.name: round(getattr(spread, one.name), 3) for one in fields(Spread)},
        "widened": round(factor, 2),
        "reserved over allocated": [round(one.value, 3) for one in ratios],
        "groups": [
            {"group": list(group), **_part(one for one in judged if one.row.group == group)}
            for group in groups(counted)
        ],
        "all": _summary(judged),
        "apart": {what: _summary([one for one in apart if one.row.no_verdict == what]) for what in NO_VERDICT},
        "every row": _summary([*judged, *apart]),
        "sources": [
            {"source": name, **_part(one for one in by_sources if one.row.group[0] == name)}
            for name in sorted({row.group[0] for row in counted})
        ],
        "a source at a time": _summary(by_sources),
        "below": [[level, _below(judged, level), _below(by_sources, level)] for level in QUANTILES],
        "rows": [_line(one) for one in [*judged, *apart]],
    }


def _summary(judged: Sequence[Judged]) -> dict[str, Any]:
    return {**summary(one.error for one in judged), "held": sum(one.held for one in judged)}


def _below(judged: Sequence[Judged], level: float) -> float:
    """Share of the rows that were measured at or below what they are with this chance."""
    return sum(below(one.row.deviation(one.spread)) <= level for one in judged) / len(judged)


def _part(judged: Iterable[Judged]) -> dict[str, Any]:
    """Rows that are judged with the same scales."""
    here = list(judged)
    scales = {one.name: round(getattr(here[0].spread, one.name), 3) for one in fields(Spread)}
    return {**_summary(here), "missed": [one.row.name for one in here if not one.held], "spread": scales}


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


HEAD = ("source", "engine", "training", "rows", "mean error", "median", "worst", "in the band")


def _told(names: Iterable[str], one: dict[str, Any]) -> list[str]:
    errors = [f"{one[word]:.1%}" for word in ("mean", "median", "worst")]
    return [*names, str(one["rows"]), *errors, f"{one['held']} of {one['rows']}"]


def _share(found: dict[str, Any]) -> str:
    return f"{found['held']} of {found['rows']} rows ({found['held'] / found['rows']:.0%})"


def group_table(found: dict[str, Any]) -> str:
    """Each group by the others."""
    return table(HEAD, [*(_told(one["group"], one) for one in found["groups"]), _told(("all", "", ""), found["all"])])


def source_table(found: dict[str, Any]) -> str:
    """Each source by the others, with the scales that these give."""
    names = [one.name for one in fields(Spread)]
    rows = [
        [one["source"], f"{one['held']} of {one['rows']}", ", ".join(one["missed"]) or "-"]
        + [f"{one['spread'][name]:.3f}" for name in names]
        for one in found["sources"]
    ]
    every = found["a source at a time"]
    rows.append(["all", f"{every['held']} of {every['rows']}", *("" for _ in range(1 + len(names)))])
    return table(("source", "in the band", "not held", *names), rows)


def report(found: dict[str, Any]) -> str:
    """results/cross-validation.md."""
    every, sources = found["all"], found["a source at a time"]
    apart = [_told((what, "", ""), one) for what, one in found["apart"].items()]
    apart.append(_told(("every row", "", ""), found["every row"]))
    scales = [[name, f"{value:.3f}", f"{ENDS * value:.0%}"] for name, value in found["spread"].items()]
    missed = [one for one in found["rows"] if not one["held"] and not one["no verdict"]]
    return "\n".join(
        [
            "# Published rows by cross-validation\n",
            "Written by `python -m benchmarks.memory.cross_validation`; what is computed is in `../README.md` "
            f'("Bands"). Formulas `{found["formulas"]}`. An error is (predicted - measured) / measured.\n',
            f"**{_share(every)} lie in the {COVERED:.0%} band that the other groups give them, {_share(sources)} in "
            f"the one that the other sources give them; {spoken(every)}.**\n",
            "![bands and measurements](cross-validation.svg)\n",
            "## By group\n",
            "Each line is judged with the scales of the other lines.\n",
            group_table(found),
            "Not held: "
            + "; ".join(
                f"{one['row']} (measured {gib(one['measured'])}, {gib(one['band'][0])} to {gib(one['band'][2])} GiB)"
                for one in missed
            )
            + ".\n",
            "## By source\n",
            "Rows of one source err alike, so each line is judged once more with the scales of the other sources "
            "alone. These are fewer, and the bands wider. Where no other source says anything of a part, its scale is "
            "the search's first guess or its least one: nobody but Qwen prints what the driver shows, nobody but "
            "fsdp_qlora two counters of a run.\n",
            source_table(found),
            "## Rows without a verdict\n",
            "Judged with the scales of the rows above, in which they have no say.\n",
            *(f"- {what}: {why}.\n" for what, why in NO_VERDICT.items()),
            table(HEAD, apart),
            "## Is the chance right?\n",
            "Share of the held-out rows that were measured at or below the figure under which zerocfg sees them with "
            "this chance.\n",
            table(
                ("chance", "by other groups", "by other sources"),
                ([f"{share:.0%}" for share in shares] for shares in found["below"]),
            ),
            "## The scales\n",
            f"Of all rows together, widened by {found['widened']:.2f}; written to "
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
