"""Charts of a smoke-run: memory over time, and the peaks of each rank by phase."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from zerocfg.page.charts import Chart, Look, chart, figure, plain
from zerocfg.page.formatting import size
from zerocfg.page.smoke import PHASES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from zerocfg.page.smoke import Profile

MOST_RANKS = 8
"""Ranks that get a chart; the table holds all."""


def over_time(found: Profile) -> Chart:
    """Memory of rank 0 from the model's making to the saved weights."""
    top = max(found.points, key=lambda point: point.bytes)
    alt = f"Memory of rank 0 over time: at most {size(top.bytes)} {found.of}, in the phase {top.phase}."
    return chart(alt, lambda look: _over_time(look, found))


def peaks(found: Profile) -> Chart:
    """Small multiples: a panel for each rank, a bar for each phase, a line for what was predicted."""
    ranks = "; ".join(
        f"rank {rank}: " + ", ".join(f"{phase} {size(peak)}" for phase, peak in phases.items())
        for rank, phases in enumerate(found.peaks[:MOST_RANKS])
    )
    return chart(f"Peaks by rank and phase, {found.of}: {ranks}.", lambda look: _peaks(look, found))


def _over_time(look: Look, found: Profile) -> Figure:
    theme, scale = look.theme, found.unit.scale
    drawn = figure(look, 260 if look.narrow else 300)
    axis = drawn.subplots()
    plain(axis, look, grid="y")
    times = [point.seconds for point in found.points]
    sizes = [point.bytes / scale for point in found.points]
    most = max(sizes)
    if found.limit and found.limit / scale < 2.5 * most:
        axis.axhline(found.limit / scale, color=theme.limit, linewidth=1.5, linestyle=(0, (4, 3)))
        axis.annotate(
            f"the card has {size(found.limit)}", (1, found.limit / scale), (0, 4), ha="right", color=theme.limit,
            xycoords=("axes fraction", "data"), textcoords="offset points",
        )  # fmt: skip
        most = found.limit / scale
    strip = most * 0.055
    axis.fill_between(times, sizes, step="post", color=theme.accent, alpha=0.14, linewidth=0)
    axis.step(times, sizes, where="post", color=theme.accent, linewidth=1.8)
    for phase, start, end in _stretches(found):
        axis.fill_between([start, end], -strip * 1.6, -strip * 0.5, color=theme.phases[phase], linewidth=0)
    top = max(range(len(sizes)), key=sizes.__getitem__)
    late = times[top] > times[-1] * 0.8
    axis.plot(times[top], sizes[top], marker="o", markersize=5, color=theme.accent)
    axis.annotate(
        f"{_short(sizes[top])} {found.unit.name}", (times[top], sizes[top]), (-8 if late else 8, 6),
        textcoords="offset points", ha="right" if late else "left", color=theme.ink, weight="bold",
    )  # fmt: skip
    # Making a model takes longer than a few small steps; what is before them may leave the chart.
    last = max(times[-1], 0.1)
    axis.set_xlim(max(times[0], -0.35 * last), last * 1.005)
    axis.set_ylim(-strip * 1.9, most * 1.14)
    axis.locator_params(axis="y", nbins=5)
    axis.set_yticks([tick for tick in axis.get_yticks() if 0 <= tick <= most * 1.14])
    axis.set_ylabel(f"{found.unit.name}, rank 0")
    axis.set_xlabel("seconds since the first step began")
    return drawn


def _stretches(found: Profile) -> list[tuple[str, float, float]]:
    """Phase, start and end (seconds) of each stretch of the same phase."""
    known: list[tuple[str, float, float]] = []
    for point, following in pairwise(found.points):
        phase = point.phase if point.phase in (*PHASES, "own") else "own"
        if known and known[-1][0] == phase:
            known[-1] = (phase, known[-1][1], following.seconds)
        else:
            known.append((phase, point.seconds, following.seconds))
    return known


def _peaks(look: Look, found: Profile) -> Figure:
    theme, scale = look.theme, found.unit.scale
    ranks = found.peaks[:MOST_RANKS]
    columns = min(len(ranks), 2 if look.narrow else 4)
    lines = -(-len(ranks) // columns)
    drawn = figure(look, lines * (170 if look.narrow else 190) + 10)
    grid = drawn.subplots(lines, columns, squeeze=False, sharey=True)
    most = max([max(rank.values()) for rank in ranks] + list(found.predicted.values())) / scale
    for at, axis in enumerate(grid.flat):
        if at >= len(ranks):
            axis.set_axis_off()
            continue
        plain(axis, look, grid="y")
        names = [phase for phase in PHASES if phase in ranks[at]]
        for where, phase in enumerate(names):
            peak = ranks[at][phase] / scale
            axis.bar(where, peak, 0.64, color=theme.phases[phase])
            if phase in found.predicted:
                predicted = found.predicted[phase] / scale
                axis.plot([where - 0.42, where + 0.42], [predicted, predicted], color=theme.ink, linewidth=1.6)
            axis.annotate(
                _short(peak), (where, peak), (0, 3), textcoords="offset points", ha="center", color=theme.ink,
                fontsize=9 if look.narrow else 11,
            )  # fmt: skip
        shown = [name if not look.narrow else {"forward": "fwd", "backward": "bwd"}.get(name, name) for name in names]
        axis.set_xticks(range(len(names)), shown, fontsize=9 if look.narrow else 11)
        axis.set_ylim(0, most * 1.18)
        axis.set_title(f"rank {at}", loc="left", fontsize=12, color=theme.ink)
        axis.locator_params(axis="y", nbins=4)
    grid[0][0].set_ylabel(found.unit.name)
    return drawn


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"
