"""How wide bands are where a card of the architecture was measured: the scales of the narrow tier.

    python -m benchmarks.memory.card_bands [--no-write]

Reads the 25 cases that ran (phases.py). Rows of one engine are a group; each group is judged with the factor and the
scales of the other groups. Writes results/card-bands.md and the scales of all rows into zerocfg/memory/card_spread.py.

Reserved over allocated: the factor is the median, the width what 90 % of the rows ask for (the ceiling of 90 % of their
number and one). Outside of the allocator: the same around what is expected. Allocated: 3 % at the ends, because the
formulas were corrected on these very rows, which are off by 0.3 % at most; the activations keep the error that their
trace or formula states.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.memory.cases import CASES
from benchmarks.memory.compare_gpu import load, measured
from benchmarks.memory.errors import table
from benchmarks.memory.freeze import FORMULAS
from benchmarks.memory.ours import DURING_STEPS, card
from benchmarks.memory.phases import MEASURED, measured_cases, prediction
from benchmarks.memory.predict_gpu import CARD
from benchmarks.memory.published import engine
from zerocfg.memory.overhead import doubts, outside, traced
from zerocfg.memory.spread import COVERED, ENDS, Spread

HERE = Path(__file__).resolve().parent
SCALES = HERE.parents[1] / FORMULAS[0] / "card_spread.py"
REPORT = HERE / "results" / "card-bands.md"
ALLOCATED = 0.03
COUNTERS = ("allocated", "reserved", "device")


@dataclass(frozen=True)
class Row:
    """A case that ran, in bytes: ``size`` and ``activations`` are predicted, ``beside`` expected outside."""

    name: str
    engine: str
    size: int
    activations: int
    error: float
    beside: int
    measured: dict[str, int]


@dataclass(frozen=True)
class Scales:
    """What the rows of the card give."""

    reserve: float
    spread: Spread

    def holds(self, row: Row, counter: str) -> bool:
        """Whether a measured counter lies between the ends of its band."""
        found = doubts(row.size, row.activations, row.error, row.beside, self.spread, self.reserve)
        expected, doubt = found[COUNTERS.index(counter)]
        return abs(math.log(row.measured[counter] / expected)) <= ENDS * doubt / expected


def rows() -> list[Row]:
    """The cases that ran."""
    lines, found = measured_cases(), []
    for case in CASES:
        if case.name in lines:
            line, held = lines[case.name], prediction(case).estimate.peak("device", DURING_STEPS)
            counted = measured(line)
            seen = {"device": line["device_used"], **{name: counted[name] for name in COUNTERS[:2]}}
            beside = outside(card(CARD), case.options)
            error = prediction(case).estimate.timeline
            assert error is not None
            found.append(Row(case.name, engine(case.options), held.size, traced(held), error.error, beside, seen))
    return found


def asked_for(deviations: Iterable[float]) -> float:
    """The width that holds 90 % of these and of one more."""
    sizes = sorted(map(abs, deviations))
    return sizes[min(len(sizes), math.ceil(COVERED * (len(sizes) + 1))) - 1]


def scales_of(of: Sequence[Row]) -> Scales:
    """Factor and scales of some rows, rounded up to the third digit."""
    factor = round(median(row.measured["reserved"] / row.size for row in of), 3)
    kept = asked_for(math.log(row.measured["reserved"] / row.size / factor) for row in of)
    free = asked_for(math.log((row.measured["device"] - row.measured["reserved"]) / row.beside) for row in of)
    states, reserve, other = (math.ceil(1000 * width / ENDS) / 1000 for width in (ALLOCATED, kept, free))
    return Scales(factor, Spread(states, 0.0, reserve, other))


def judged(of: Sequence[Row]) -> dict[str, tuple[Scales, dict[str, int], int]]:
    """For each engine the scales of the others, how many of its rows lie in their bands by counter, and its rows."""
    found = {}
    for name in sorted({row.engine for row in of}):
        own, others = ([row for row in of if (row.engine == name) is same] for same in (True, False))
        scales = scales_of(others)
        held = {counter: sum(scales.holds(row, counter) for row in own) for counter in COUNTERS}
        found[name] = (scales, held, len(own))
    return found


def report(of: Sequence[Row]) -> str:
    """The table in Markdown."""
    found = judged(of)
    total = {counter: sum(held[counter] for _, held, _ in found.values()) for counter in COUNTERS}
    machine, _ = load(MEASURED)
    lines = [
        [name, str(count), *(f"{held[counter]} of {count}" for counter in COUNTERS), *_shown(scales)]
        for name, (scales, held, count) in found.items()
    ]
    held_of_all = (f"{total[counter]} of {len(of)}" for counter in COUNTERS)
    lines.append(["all", str(len(of)), *held_of_all, *_shown(scales_of(of))])
    head = ["engine left out", "rows", *(f"{counter} in the band" for counter in COUNTERS), "reserved over allocated"]
    return (
        "# Bands where a card of the architecture was measured\n\n"
        f"{machine['card']}, {len(of)} cases, each engine judged with what the others give (`card_bands.py`). "
        "The formulas were corrected on these rows, so that the allocated column is no test of them.\n\n"
        + table([*head, "half width, reserved"], lines)
    )


def _shown(scales: Scales) -> tuple[str, str]:
    return f"{scales.reserve:.3f}", f"{math.exp(ENDS * scales.spread.reserve) - 1:.1%}"


def module(of: Sequence[Row]) -> str:
    """The text of zerocfg/memory/card_spread.py."""
    scales, (machine, _) = scales_of(of), load(MEASURED)
    spread, architecture = scales.spread, ".".join(map(str, machine["capability"]))
    name = machine["card"].removeprefix("NVIDIA ")
    return (
        '"""Written by ``python -m benchmarks.memory.card_bands``, from its rows; not to be edited."""\n\n'
        "from __future__ import annotations\n\nfrom zerocfg.memory.spread import Spread\n\n"
        f'ARCHITECTURES = ("{architecture}",)\nCARDS = "one {name}, {len(of)} runs"\n'
        f"RESERVE_ON_CARD = {scales.reserve}\n"
        f"ON_CARD = Spread(states={spread.states}, activations={spread.activations}, reserve={spread.reserve}, "
        f"outside={spread.outside})\n"
    )


def main() -> int:
    found = rows()
    text = report(found)
    print(text)
    if "--no-write" not in sys.argv[1:]:
        REPORT.write_text(text)
        SCALES.write_text(module(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
