"""Charts of the plan: stacked bars with the line of what the card has; times and messages as plain bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.page.charts import HALF, Chart, Look, chart, figure, labels, plain, rows
from zerocfg.page.formatting import Unit, brief, size, unit_for
from zerocfg.resolve.explain.plan_summary import COLUMNS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from zerocfg.page.memory import Bar, Memory
    from zerocfg.page.time import Time

_BEYOND = 1.6
"""How many times what the card has is shown; longer bars leave the chart."""
_ROOM = 0.9
"""The share of the chart that bars which leave it fill; their sum stands in the rest."""


def phases(memory: Memory) -> Chart:
    """A bar for each phase of a step."""
    bars = ", ".join(f"{bar.label} {size(bar.total)}" for bar in memory.phases)
    alt = f"Memory of a device by phase of a step: {bars}{_limit(memory)}."
    return chart(alt, lambda look: _stacked(look, memory.phases, memory))


def plans(memory: Memory) -> Chart:
    """A bar for each other way to run the job."""
    bars = [other.bar for other in memory.others]
    sizes = ", ".join(f"{bar.label} {size(bar.total)}" for bar in bars)
    alt = f"Memory of a device at its peak by plan: {sizes}{_limit(memory)}."
    return chart(alt, lambda look: _stacked(look, bars, memory))


def parts(found: Time) -> Chart:
    """Seconds of a step by what they go into."""
    times = ", ".join(f"{part.name} {brief(part.expected)}" for part in found.parts)
    return chart(f"A step takes {found.step}: {times}.", lambda look: _parts(look, found), HALF)


def sent(found: Time) -> Chart:
    """What a rank sends in a step by collective."""
    sizes = ", ".join(f"{item.name} {size(item.bytes)}" for item in found.sent)
    return chart(f"A rank sends {found.total} in a step: {sizes}.", lambda look: _sent(look, found), HALF)


def _limit(memory: Memory) -> str:
    return f"; the card has {memory.limit}" if memory.limit else ""


def _stacked(look: Look, bars: list[Bar], memory: Memory) -> Figure:
    theme = look.theme
    height, thick = rows(look, len(bars))
    drawn = figure(look, height + 64)
    axis = drawn.subplots()
    plain(axis, look)
    most = max([bar.high or bar.total for bar in bars] + [bar.total for bar in bars]) or 1
    unit = unit_for(most)
    limit = memory.capacity
    end = (min(most, _BEYOND * limit) if limit else most) * (1.14 if look.narrow else 1.08)
    if limit and limit < 3 * end:
        end = max(end, limit * 1.04)
    for at, bar in enumerate(bars):
        if bar.own:
            axis.axhspan(at - 0.5, at + 0.5, color=theme.band, linewidth=0)
        left = 0.0
        edge_of_chart = end / unit.scale * (_ROOM if bar.total > end else 1)
        for column in COLUMNS:
            wide = min(bar.parts[column] / unit.scale, edge_of_chart - left)
            if wide > 0:
                edge = theme.surface
                axis.barh(at, wide, thick, left, color=theme.kind(column), edgecolor=edge, linewidth=0.8)
            left += wide
        if bar.low is not None and bar.high is not None:
            ends = [bar.low / unit.scale, min(bar.high, end) / unit.scale]
            if bar.total <= end:
                axis.plot(ends, [at, at], color=theme.ink, linewidth=1.2, solid_capstyle="butt")
        _total(axis, look, at, bar, unit, end)
    if limit and limit <= end:
        axis.axvline(limit / unit.scale, color=theme.limit, linewidth=1.5, linestyle=(0, (4, 3)))
        side = "left" if limit < 0.4 * end else "right"
        axis.annotate(
            f"the card has {memory.limit}", (limit / unit.scale, 1), (0, 4), xycoords=("data", "axes fraction"),
            textcoords="offset points", ha=side, color=theme.limit, fontsize=11 if look.narrow else 12,
        )  # fmt: skip
    axis.set_xlim(0, end / unit.scale)
    axis.set_ylim(len(bars) - 0.5, -0.75 if look.narrow else -0.5)
    labels(axis, look, [bar.label for bar in bars], [bar.own for bar in bars])
    axis.set_xlabel(f"{unit.name} of one device")
    return drawn


def _total(axis: Axes, look: Look, at: int, bar: Bar, unit: Unit, end: float) -> None:
    """The sum at the end of a bar; inside of the chart where the bar leaves it."""
    beyond = bar.total > end
    right = end * _ROOM if beyond else max(bar.total, min(bar.high or 0, end * _ROOM))
    text = f"{bar.total / unit.scale:,.1f}" + " →" * beyond
    box = {"facecolor": look.theme.band if bar.own else look.theme.surface, "edgecolor": "none", "pad": 1.5}
    axis.annotate(
        text, (right / unit.scale, at), (6, 0), color=look.theme.ink,
        textcoords="offset points", va="center", bbox=box,
    )  # fmt: skip


def _parts(look: Look, found: Time) -> Figure:
    theme = look.theme
    height, thick = rows(look, len(found.parts))
    drawn = figure(look, height + 50)
    axis = drawn.subplots()
    plain(axis, look)
    most = max(part.high for part in found.parts) or 1.0
    scale, name = (1.0, "seconds") if most >= 1 else (1000.0, "milliseconds")
    for at, part in enumerate(found.parts):
        axis.barh(at, part.expected * scale, thick, color=theme.accent)
        axis.plot([part.low * scale, part.high * scale], [at, at], color=theme.ink, linewidth=1.2)
        end = (max(part.high, part.expected) * scale, at)
        axis.annotate(brief(part.expected), end, (6, 0), textcoords="offset points", va="center", color=theme.ink)
    _ends(axis, look, [part.name for part in found.parts], most * scale)
    axis.set_xlabel(f"{name} of a step (line: the range)")
    return drawn


def _sent(look: Look, found: Time) -> Figure:
    height, thick = rows(look, len(found.sent))
    drawn = figure(look, height + 50)
    axis = drawn.subplots()
    plain(axis, look)
    most = max(item.bytes for item in found.sent) or 1.0
    unit = unit_for(most)
    for at, item in enumerate(found.sent):
        axis.barh(at, item.bytes / unit.scale, thick, color=look.theme.kind("optim"))
        end = (item.bytes / unit.scale, at)
        axis.annotate(size(item.bytes), end, (6, 0), textcoords="offset points", va="center", color=look.theme.ink)
    _ends(axis, look, [item.name for item in found.sent], most / unit.scale)
    axis.set_xlabel(f"{unit.name} that a rank sends in a step")
    return drawn


def _ends(axis: Axes, look: Look, names: list[str], most: float) -> None:
    """Room for the figures behind the bars."""
    axis.set_xlim(0, most * (1.28 if look.narrow else 1.22))
    axis.set_ylim(len(names) - 0.5, -0.75 if look.narrow else -0.5)
    axis.locator_params(axis="x", nbins=5)
    labels(axis, look, names)
