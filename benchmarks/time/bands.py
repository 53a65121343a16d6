"""The bands of step times, and whether they hold published rows that they were not made from.

python benchmarks/time/bands.py POINTS.csv [--no-write]

A source is a publisher; each is judged with scales in which no row of it has a say. Writes results/bands.json, .md and
.svg, and the scales of all rows together into zerocfg/memory/time/measured_spread.py. README.md ("Bands") says what is
computed and why.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import validate  # noqa: E402
from band_report import KINDS, as_markdown, as_module, draw  # noqa: E402

from benchmarks.time.host import busy_device  # noqa: E402
from zerocfg.memory.spread import COVERED, ENDS  # noqa: E402
from zerocfg.memory.time import rates, step_time  # noqa: E402
from zerocfg.memory.time.rates import Band, exactly  # noqa: E402
from zerocfg.memory.time.spread import SHORT, Group  # noqa: E402

SCALES = HERE.parents[1] / "zerocfg" / "memory" / "time" / "measured_spread.py"
OURS_NS = Band(1.0, 1.4, 5.0)
"""One thread, one parameter, the whole step of an offloaded engine (Adam, clipping, copies): 1.4 measured with
DeepSpeed 0.19.8 and bf16 on an AMD EPYC, stages 2 and 3. The upper end is assumed, where no row says."""
LEAST = 0.05  # of a scale: published seconds are printed with two digits, and rows of one source agree by chance
FINEST = 0.0005
Point = tuple[str, float]
"""A source, and the logarithm of what its step took over what tuned code would take."""


@dataclass(frozen=True)
class Scales:
    """What is measured on some of the sources."""

    measured: dict[Group, Band]
    host_ns: Band


@dataclass(frozen=True)
class Judged:
    row: validate.Row
    kind: str
    band: Band

    @property
    def error(self) -> float:
        return self.band.expected / self.row.measured - 1

    @property
    def held(self) -> bool:
        return self.band.low <= self.row.measured <= self.band.high


def source_of(row: validate.Row) -> str:
    return {"C": "llm-foundry", "G": "A800 gist", "Q": "Qwen", "D": "DeepSpeed tutorial"}[row.name[0]]


def kind_of(row: validate.Row) -> str:
    """The group that a row is reported in; with the optimizer on the host it is one of its own."""
    if getattr(row.options, "offload_optimizer", "none") != "none":
        return "offload"
    if row.kernels == "fused":
        return "tuned"
    return "short" if row.workload.micro_batch * row.workload.sequence_length < SHORT else "ordinary"


@contextmanager
def constants(scales: Scales) -> Iterator[None]:
    """Predictions made with these scales."""
    names = ("MEASURED", "HOST_STEP_NS")
    kept = {name: getattr(step_time, name) for name in names}
    new = dict(zip(names, (scales.measured, scales.host_ns), strict=True))
    try:
        for name, value in new.items():
            setattr(step_time, name, value)
        yield
    finally:
        for name, value in kept.items():
            setattr(step_time, name, value)


# -- a scale -----------------------------------------------------------------------------------------------------------


def fitted(points: Sequence[Point]) -> tuple[float, float]:
    """Middle and scale of Student's t with two degrees of freedom under which the points are most likely. Each source
    counts alike, however many rows it has."""
    values = [value for _, value in points]
    rows = Counter(source for source, _ in points)

    def surprise(middle: float, scale: float) -> float:
        return sum(
            (math.log(scale) + 1.5 * math.log(2 + ((value - middle) / scale) ** 2)) / rows[source]
            for source, value in points
        )

    best, step = (statistics.median(values), max(LEAST, statistics.pstdev(values) / 2)), 0.5
    least = surprise(*best)
    while step > FINEST:
        before = least
        for moved, factor in ((step, 1.0), (-step, 1.0), (0.0, 1 + step), (0.0, 1 / (1 + step))):
            tried = (best[0] + moved * best[1], max(LEAST, best[1] * factor))
            now = surprise(*tried)
            if now < least - 1e-9:
                best, least = tried, now
        if least == before:
            step /= 2
    return best


def widening(points: Sequence[Point]) -> float:
    """By what bands of the other sources have to be widened to hold :data:`COVERED` of the rows of each that was left
    out, the row to come counted as one that is not held; at least 1."""
    missed = []
    for source in sorted({one for one, _ in points}):
        others = [(one, value) for one, value in points if one != source]
        if len(others) > 1:
            middle, scale = fitted(others)
            missed += [abs(value - middle) / scale / ENDS for one, value in points if one == source]
    if not missed:
        return 1.0
    wanted = math.ceil(COVERED * (len(missed) + 1)) - 1
    return max(1.0, sorted(missed)[min(wanted, len(missed) - 1)])


def scale_of(points: Sequence[Point]) -> Band:
    middle, scale = fitted(points)
    half = ENDS * scale * widening(points)
    return Band(math.exp(middle - half), math.exp(middle), math.exp(middle + half))


def tuned_scale(points: Sequence[Point]) -> Band:
    """Of tuned code, which has one source: what holds :data:`COVERED` of its rows, each predicted from other models.
    The middle is 1, the rates being those of this code."""
    far = sorted(abs(value) for _, value in points)
    half = far[min(math.ceil(COVERED * (len(far) + 1)) - 1, len(far) - 1)]
    return Band(math.exp(-half), 1.0, math.exp(half))


# -- rows --------------------------------------------------------------------------------------------------------------


def points_of(rows: Iterable[validate.Row]) -> list[Point]:
    """Seconds on the host count as expected."""
    found = []
    for row in rows:
        step = row.predict()
        found.append((source_of(row), math.log(row.measured / (step.as_tuned + step.on_host.expected))))
    return found


def card_points() -> list[Point]:
    """Phases of a step on one card in which the device is slower than its host (host.py); none of them is judged."""
    return [("H200", math.log(ratio)) for ratio in busy_device()]


def fitting(row: validate.Row, name: str, low: float, high: float) -> float:
    """The value of a constant of :mod:`step_time` at which the expected time is the measured one."""
    kept = getattr(step_time, name)
    try:
        for _ in range(40):
            middle = (low * high) ** 0.5
            setattr(step_time, name, exactly(middle))
            low, high = (low, middle) if row.predict().seconds.expected > row.measured else (middle, high)
    finally:
        setattr(step_time, name, kept)
    return low


def scales_of(rows: Sequence[validate.Row], tuned: Band) -> Scales:
    """The scales of these rows. Each kind of row tells one thing: long ones how ordinary code compares with tuned code,
    those with offload what the host takes."""
    by_kind: dict[str, list[validate.Row]] = {}
    for row in rows:
        by_kind.setdefault(kind_of(row), []).append(row)
    host = OURS_NS
    with constants(Scales(every(tuned, Band(1, 1, 1), Band(1, 1, 1)), host)):
        ordinary = scale_of([*points_of(by_kind["ordinary"]), *card_points()])
    with constants(Scales(every(tuned, ordinary, ordinary), host)):
        if "offload" in by_kind:
            found = [fitting(row, "HOST_STEP_NS", 0.1, 500) for row in by_kind["offload"]]
            # Between what we measured and what was published, each from one source, the middle is expected.
            host = Band(OURS_NS.low, (OURS_NS.expected * statistics.median(found)) ** 0.5, max(found))
    with constants(Scales(every(tuned, ordinary, ordinary), OURS_NS)):
        pool = scale_of(points_of(row for row in rows if kind_of(row) != "tuned"))
    return Scales(every(tuned, ordinary, pool), host)


def every(tuned: Band, ordinary: Band, pool: Band) -> dict[Group, Band]:
    """Groups without rows of several sources lie around ordinary code as widely as all rows lie; compiled code, which
    launches fewer kernels than ordinary code, in the middle between that and tuned code."""
    wide = Band(min(pool.low, ordinary.low), ordinary.expected, max(pool.high, ordinary.high))
    between = (tuned.expected * ordinary.expected) ** 0.5 / ordinary.expected
    return {
        "tuned": tuned,
        "ordinary": ordinary,
        "compiled": wide * between,
        "short": wide,
        "experts": wide,
        "elsewhere": wide,
    }


def judged(rows: Sequence[validate.Row], tuned: Band) -> list[Judged]:
    """Every row of ordinary code with scales in which its source has no say."""
    found = []
    for source in sorted({source_of(row) for row in rows if kind_of(row) != "tuned"}):
        scales = scales_of([row for row in rows if source_of(row) != source], tuned)
        with constants(scales):
            for row in rows:
                if source_of(row) == source:
                    found.append(Judged(row, kind_of(row), band_of(row, scales, alone="offload")))
    return found


def band_of(row: validate.Row, scales: Scales, alone: str) -> Band:
    """The band of a row; of a kind that no row of the scales has, that of all rows together."""
    step = row.predict()
    wide = scales.measured["short"]
    return wide * step.as_tuned + step.on_host if kind_of(row) == alone else step.seconds


def tuned_points(rows: Sequence[validate.Row]) -> tuple[list[Point], list[tuple[validate.Row, float]]]:
    """Rows of tuned code, each predicted with rates of the other models; (model, deviation) and (row, expected)."""
    tables = [row for row in rows if validate.is_bf16(row)]
    by_name = {row.name: row for row in tables}
    found = validate.leave_models_out(tables)
    return (
        [(one["model"], math.log(one["measured"] / one["expected"])) for one in found],
        [(by_name[one["row"]], one["expected"]) for one in found],
    )


def judged_tuned(points: Sequence[Point], expected: Sequence[tuple[validate.Row, float]]) -> list[Judged]:
    """Every row of tuned code with the scale of the other models."""
    found = []
    for model in sorted({one for one, _ in points}):
        scale = tuned_scale([one for one in points if one[0] != model])
        found += [Judged(row, "tuned", scale * seconds) for row, seconds in expected if row.model == model]
    return found


# -- devices -----------------------------------------------------------------------------------------------------------


def beside(rows: Sequence[validate.Row]) -> dict[str, tuple[float, float]]:
    """Operations per byte of each calibrated device, and the bytes that one operation waits for (rates.BESIDE)."""
    found = {}
    for group in validate.DEVICES:
        here = [row for row in rows if row.group == group and validate.attention_part(row) < 0.10]
        share = statistics.median(validate.share_that_fits(row, rates.MATMUL) for row in here)
        device = here[0].profile.accelerator
        balance = (device.bf16_tflops or 0) * 1000 / (device.memory_gb_s or 1)
        found[group] = balance, (1 / share - 1) / balance
    return found


def devices_left_out(found: dict[str, tuple[float, float]]) -> dict[str, float]:
    """Error of the time of products on each device, from the mean of the two others."""
    errors = {}
    for name, (balance, own) in found.items():
        other = statistics.mean(value for one, (_, value) in found.items() if one != name)
        errors[name] = (1 + other * balance) / (1 + own * balance) - 1
    return errors


# -- results -----------------------------------------------------------------------------------------------------------


def result(rows: Sequence[validate.Row]) -> dict[str, Any]:
    rows = [row for row in rows if row.group != "fp8"]
    points, expected = tuned_points(rows)
    tuned = tuned_scale(points)
    found = [*judged_tuned(points, expected), *judged(rows, tuned)]
    scales = scales_of(rows, tuned)
    bytes_beside = beside(rows)
    return {
        "formulas": validate.hashes(),
        "scales": {name: ends(band) for name, band in scales.measured.items()},
        "host step, ns": ends(scales.host_ns),
        "beside": {
            "bytes for an operation": {name: round(value, 5) for name, (_, value) in bytes_beside.items()},
            "error of a device from the others": {
                name: round(value, 3) for name, value in devices_left_out(bytes_beside).items()
            },
        },
        "groups": {kind: summary([one for one in found if one.kind == kind]) for kind in KINDS},
        "all ordinary code": summary([one for one in found if one.kind != "tuned"]),
        "rows": [line(one) for one in found],
    }


def ends(band: Band) -> list[float]:
    return [round(one, 3) for one in (band.low, band.expected, band.high)]


def summary(found: Sequence[Judged]) -> dict[str, Any]:
    sums = validate.summary([one.error for one in found])
    return {**{name: round(value, 4) for name, value in sums.items()}, "held": sum(one.held for one in found)}


def line(one: Judged) -> dict[str, Any]:
    return {
        "row": one.row.name,
        "source": source_of(one.row),
        "group": one.kind,
        "model": one.row.model,
        "measured": round(one.row.measured, 4),
        "band": ends(one.band),
        "error": round(one.error, 4),
        "held": one.held,
    }


def main() -> None:
    arguments = [one for one in sys.argv[1:] if one != "--no-write"]
    if len(arguments) != 1:
        raise SystemExit(__doc__)
    found = result(validate.read(Path(arguments[0])))
    print(as_markdown(found))
    if "--no-write" in sys.argv:
        return
    (HERE / "results" / "bands.json").write_text(json.dumps(found, indent=1) + "\n")
    (HERE / "results" / "bands.md").write_text(as_markdown(found))
    SCALES.write_text(as_module(found))
    draw(found, HERE / "results" / "bands.svg")


if __name__ == "__main__":
    main()
