"""The plan: memory of a device by phase and term, and of every other way to run the same job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerocfg.page.formatting import GIB, Unit, band, size, unit_for
from zerocfg.resolve.explain.forecast import Forecast
from zerocfg.resolve.explain.plan_summary import COLUMNS, by_column, chance_of, cost_of, distinct_plans, duration
from zerocfg.resolve.search.choice import describe_plan

if TYPE_CHECKING:
    from zerocfg.memory.overhead import Band
    from zerocfg.memory.terms import Held
    from zerocfg.memory.verdict import Rung, Verdict
    from zerocfg.resolve.explain.alternatives import Alternative


@dataclass(frozen=True, slots=True)
class Bar:
    """One stacked bar: ``parts`` are bytes by column (`zerocfg.resolve.explain.plan_summary.COLUMNS`).

    ``low`` and ``high`` are the ends of what the driver may show (bytes); None where only a moment is looked at.
    """

    label: str
    parts: dict[str, int]
    low: int | None = None
    high: int | None = None
    own: bool = False

    @property
    def total(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class Term:
    """A row of the table of terms: bytes by phase, and the file of the library that allocates it."""

    name: str
    sizes: tuple[int, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Other:
    """A way to run the job: its bar, and what else is known of it as text."""

    bar: Bar
    verdict: str
    sent: str
    step: str
    tokens: str
    why: str


@dataclass(slots=True)
class Memory:
    """``said`` is the verdict in words, ``figures`` are pairs of words and a size, ``changes`` rows of what would save
    memory."""

    verdict: Verdict
    said: str
    capacity: int | None
    unit: Unit
    phases: list[Bar] = field(default_factory=list)
    terms: list[Term] = field(default_factory=list)
    figures: list[tuple[str, str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cheapest: list[tuple[str, ...]] = field(default_factory=list)
    changes: list[tuple[str, ...]] = field(default_factory=list)
    others: list[Other] = field(default_factory=list)
    compared: int = 0
    peak: int = 0
    expected: int = 0
    complete: bool = True
    job: str = ""

    @property
    def limit(self) -> str:
        return size(self.capacity) if self.capacity else ""


def memory(forecast: Forecast, alternatives: list[Alternative]) -> Memory:
    """What the plan section shows."""
    phases = forecast.prediction.estimate.phases("device")
    peak = max((each.size for each in phases.values()), default=0)
    expected, chance = forecast.prediction.device.expected, chance_of(forecast)
    said = f"{forecast.word}: {chance}" if chance else forecast.word
    if forecast.verdict.by_host:
        said += ", by the node's memory"
    found = Memory(forecast.verdict, said, forecast.capacity, unit_for(peak), peak=peak, expected=expected)
    found.complete = forecast.complete
    found.phases = [Bar(phase, _columns(each)) for phase, each in phases.items()]
    found.terms = _terms(list(phases.values()))
    found.figures = list(_figures(forecast))
    found.notes = [f"not modelled: {gap}" for gap in forecast.gaps]
    found.notes += filter(None, (*forecast.assumptions, forecast.samples))
    found.job = _job(forecast)
    found.others = [_other(row) for row in distinct_plans(alternatives)]
    found.compared = len(alternatives)
    if forecast.ladder is not None:
        found.cheapest = [_rung(rung) for rung in forecast.ladder.together]
        found.changes = [_rung(rung) for rung in forecast.ladder.single]
    return found


def _columns(phase: Held) -> dict[str, int]:
    found = dict.fromkeys(COLUMNS, 0)
    for term, bytes_ in phase.parts:
        found[next((name for name, kinds in COLUMNS.items() if term.kind in kinds), "other")] += bytes_
    return found


def _terms(phases: list[Held]) -> list[Term]:
    sizes: dict[str, list[int]] = {}
    sources: dict[str, str] = {}
    for at, phase in enumerate(phases):
        for term, bytes_ in phase.parts:
            sizes.setdefault(term.name, [0] * len(phases))[at] += bytes_
            sources.setdefault(term.name, term.source)
    order = sorted(sizes, key=lambda name: -max(sizes[name]))
    return [Term(name, tuple(sizes[name]), sources[name]) for name in order]


def _figures(forecast: Forecast) -> list[tuple[str, str, str]]:
    prediction = forecast.prediction

    def shown(figure: Band) -> str:
        if forecast.standing in ("at least", "at most"):
            return f"{forecast.standing} {size(figure.low if forecast.standing == 'at least' else figure.high)}"
        return band(figure.low, figure.high)

    found = [
        ("Allocated", shown(prediction.allocated), "max_memory_allocated of torch"),
        ("Reserved", shown(prediction.reserved), "max_memory_reserved of torch"),
        ("Device", shown(prediction.device), "what nvidia-smi shows for the process"),
    ]
    if forecast.host.expected >= GIB // 10:
        of = f" of {size(forecast.room)}" if forecast.room is not None else ""
        found.append(("Host", f"{size(forecast.host.expected)}{of}", "memory of a node, for all its ranks"))
    if forecast.nvme >= GIB // 10:
        found.append(("Drives", size(forecast.nvme), "on the NVMe drives of a node"))
    return found


def _job(forecast: Forecast) -> str:
    work = forecast.setup.workload
    if work is None:
        return ""
    kept = "gradient checkpointing" if work.gradient_checkpointing else "all activations kept"
    loss = ", loss without all logits" if work.fused_loss else ""
    batch = f"Micro batch of {work.micro_batch} × {work.sequence_length} tokens"
    return f"{batch}, {kept}, {work.attention} attention{loss}."


def _rung(rung: Rung) -> tuple[str, ...]:
    device = rung.prediction.device
    slower = f"{rung.slower:.2f} ×" if rung.slower else "–"
    return rung.what, band(device.low, device.high), str(rung.verdict), slower, cost_of(rung)


def _other(row: Alternative) -> Other:
    one, time = row.candidate, row.candidate.time
    device = one.prediction.device
    bar = Bar(describe_plan(one.choice.settings()), by_column(one), device.low, device.high, row.own)
    spent = ("–", "–", "–")
    if time is not None:
        spent = (size(time.traffic.sent), duration(time.seconds.expected), f"{time.tokens_per_second:,.0f}")
    return Other(
        bar, str(one.certain), *spent, row.excluded or ("best" if one.verdict != "unknown" else "not known to fit")
    )
