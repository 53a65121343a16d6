"""The predicted time of a step and what a rank sends in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.page.formatting import size
from zerocfg.resolve.explain.plan_summary import duration

if TYPE_CHECKING:
    from zerocfg.memory.time.step_time import StepTime
    from zerocfg.resolve.explain.forecast import Forecast


@dataclass(frozen=True, slots=True)
class Part:
    """Seconds of an optimizer step that go into one thing."""

    name: str
    low: float
    expected: float
    high: float
    formula: str


@dataclass(frozen=True, slots=True)
class Sent:
    """One kind of collective; ``bytes`` is what a rank sends in a step, ``between`` what of it leaves the node."""

    name: str
    operation: str
    phase: str
    messages: int
    bytes: float
    between: float


@dataclass(frozen=True, slots=True)
class Time:
    """``figures``: pairs of words and text. Rates are of the whole job, at the expected time."""

    step: str
    range: str
    tokens: str
    mfu: str
    parts: tuple[Part, ...]
    sent: tuple[Sent, ...]
    total: str
    figures: tuple[tuple[str, str, str], ...]


def time(forecast: Forecast) -> Time | None:
    """What the section shows; None where no time is predicted."""
    found = forecast.time
    if found is None:
        return None
    seconds, wire = found.seconds, found.traffic
    parts = [Part(p.name, p.seconds.low, p.seconds.expected, p.seconds.high, p.formula) for p in found.parts]
    sent = [Sent(c.name, c.operation, c.phase, c.messages, c.sent, c.between) for c in wire.collectives]
    return Time(
        duration(seconds.expected),
        f"{duration(seconds.low)} to {duration(seconds.high)}",
        f"{found.tokens_per_second:,.0f}",
        f"{found.mfu:.0%}",
        tuple(sorted(parts, key=lambda part: -part.expected)),
        tuple(sorted(sent, key=lambda each: -each.bytes)),
        size(wire.sent),
        tuple(_figures(found, forecast.price)),
    )


def _figures(found: StepTime, price: float | None) -> list[tuple[str, str, str]]:
    seconds, wire = found.seconds, found.traffic
    rows = [
        ("Step", duration(seconds.expected), f"{duration(seconds.low)} to {duration(seconds.high)}"),
        ("Tokens per second", f"{found.tokens_per_second:,.0f}", "of all devices"),
        ("Model FLOPs utilisation", f"{found.mfu:.0%}", f"{found.tflops:,.0f} of {found.peak_tflops:,.0f} TFLOP/s"),
        ("Sent by a rank in a step", size(wire.sent), f"{wire.messages:,} calls of collectives"),
    ]
    if wire.between:
        rows.append(("Of it between nodes", size(wire.between), "for each rank of a node"))
    if price is not None:
        billion = found.cost_per_billion_tokens(price)
        rows.append(("Cost of 10⁹ tokens", f"{billion.expected:,.0f}", f"{billion.low:,.0f} to {billion.high:,.0f}"))
    return rows
