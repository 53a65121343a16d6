"""Plots of predicted against measured memory, as SVG. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.memory.estimators import NAMES

GIB = 1 << 30
# Colours that can be told apart with colour-blind eyes (Okabe and Ito).
COLOURS = {
    "zerocfg": "#0072B2",
    "DeepSpeed": "#D55E00",
    "accelerate": "#009E73",
    "EleutherAI cookbook": "#CC79A7",
}
GROUP_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8a6d00", "#56B4E9", "#333333")
MARKS = {"clean": "o", "open": "s", "quarantined": "x", "run": "o"}
LABELS = {"clean": "clean rows", "open": "open rows", "quarantined": "quarantined", "run": "runs"}

# Text stays text, and ids do not change from one run to the next.
plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "zerocfg", "font.size": 9, "font.family": "sans-serif"})


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _bare(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, which="major", linewidth=0.4, alpha=0.5)


def scatter(rows: Sequence[dict[str, Any]], path: Path, band: float = 0.05) -> None:
    """Predicted over measured, both in GiB on logarithmic axes, with a band of ``band`` around equality."""
    known = [row for row in rows if "error" in row]
    figure, axes = plt.subplots(figsize=(5.6, 5.2), layout="constrained")
    values = [row[key] / GIB for row in known for key in ("measured", "predicted")]
    ends = (min(values) * 0.8, max(values) * 1.25)
    axes.plot(ends, ends, color="0.4", linewidth=0.8)
    axes.fill_between(
        ends, [x * (1 - band) for x in ends], [x * (1 + band) for x in ends], color="0.85", label=f"within {band:.0%}"
    )
    for group, mark in MARKS.items():
        here = [row for row in known if row["group"] == group]
        if here:
            colour = {"clean": "#0072B2", "run": "#0072B2", "open": "#E69F00"}.get(group, "0.3")
            x = [row["measured"] / GIB for row in here]
            y = [row["predicted"] / GIB for row in here]
            front = 3 if group == "open" else 4
            axes.scatter(x, y, marker=mark, s=18, color=colour, label=f"{LABELS[group]} ({len(here)})", zorder=front)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    ticks = [tick for tick in (0.5, 1, 2, 5, 10, 20, 50, 100, 200) if ends[0] < tick < ends[1]]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_ticks([], minor=True)
    axes.set_xlabel("measured, GiB")
    axes.set_ylabel("predicted by zerocfg, GiB")
    axes.legend(frameon=False, loc="upper left")
    _bare(axes)
    _save(figure, path)


def error_bars(rows: Sequence[dict[str, Any]], path: Path, group: str = "clean") -> None:
    """Error of each estimator on each row of ``group``; an estimator that does not know a row has no bar there."""
    here = [row for row in rows if row["group"] == group and "error" in row]
    names = ("zerocfg", *NAMES)
    figure, axes = plt.subplots(figsize=(7.2, 3.6), layout="constrained")
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        values = [row["error"] if name == "zerocfg" else row["errors_of_others"][name] for row in here]
        drawn = [(place, 100 * value) for place, value in enumerate(values) if value is not None]
        places = [place + (number - (len(names) - 1) / 2) * width for place, _ in drawn]
        bars = axes.bar(places, [value for _, value in drawn], width, color=COLOURS[name], label=name)
        # Small bars cannot be read off the axis.
        axes.bar_label(bars, fmt=lambda value: f"{value:+.0f}" if abs(value) >= 10 else f"{value:+.1f}", fontsize=6.5)
    axes.axhline(0, color="0.2", linewidth=0.8)
    axes.set_yscale("symlog", linthresh=10)
    ticks = (-100, -50, -10, -5, 0, 5, 10, 50, 100, 300)
    axes.set_yticks(ticks, [f"{tick:+d}" if tick else "0" for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_ylim(-170, 700)
    axes.set_xticks(range(len(here)), [f"{row['row']}\n{row['measured'] / GIB:.1f} GiB" for row in here])
    axes.set_ylabel("error, % (linear within 10)")
    axes.legend(frameon=False, ncols=len(names), loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=8)
    _bare(axes)
    _save(figure, path)


def phase_errors(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Error of each phase of each run, one row of dots for each case."""
    here = [row for row in rows if "phases" in row]
    colours = {"forward": "#009E73", "backward": "#0072B2", "step": "#E69F00"}
    figure, axes = plt.subplots(figsize=(6.4, 1.2 + 0.2 * len(here)), layout="constrained")
    axes.axvspan(-5, 5, color="0.92")
    axes.axvline(0, color="0.2", linewidth=0.8)
    for number, (phase, colour) in enumerate(colours.items()):
        values = [100 * row["phases"][phase] for row in here]
        axes.scatter(
            values, [place + (number - 1) * 0.22 for place in range(len(here))], s=14, color=colour, label=phase
        )
    axes.set_yticks(range(len(here)), [row["row"] for row in here], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("error of the allocated peak, %")
    axes.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.06))
    _bare(axes)
    _save(figure, path)


def bands(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Measured over predicted of each row, on the band that the other groups give it; a colour for each group."""
    order = sorted(rows, key=lambda row: (bool(row["no verdict"]), row["group"]))
    names = list(dict.fromkeys(tuple(row["group"]) for row in order))
    figure, axes = plt.subplots(figsize=(6.8, 0.8 + 0.155 * len(order)), layout="constrained")
    axes.axvline(1, color="0.3", linewidth=0.8)
    for at, row in enumerate(order):
        low, expected, high = row["band"]
        colour = GROUP_COLOURS[names.index(tuple(row["group"])) % len(GROUP_COLOURS)]
        ends = [low / expected, high / expected]
        axes.plot(ends, [at, at], color=colour, linewidth=4, alpha=0.3, solid_capstyle="butt")
        mark = "o" if row["held"] else "X"
        axes.scatter(
            [row["measured"] / expected], [at], marker=mark, s=16 if row["held"] else 26, color=colour, zorder=3
        )
    first = next((at for at, row in enumerate(order) if row["no verdict"]), len(order))
    if first < len(order):
        axes.axhline(first - 0.5, color="0.3", linewidth=0.8, linestyle=":")
    middles = {name: [at for at, row in enumerate(order) if tuple(row["group"]) == name] for name in names}
    for at, (name, places) in enumerate(middles.items()):
        colour = GROUP_COLOURS[at % len(GROUP_COLOURS)]
        middle, aside = sum(places) / len(places), axes.get_yaxis_transform()
        axes.text(1.02, middle, ", ".join(name), transform=aside, va="center", fontsize=7, color=colour)
    axes.set_xscale("log")
    axes.set_xticks((0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5), ("0.5", "0.7", "0.8", "0.9", "1", "1.1", "1.25", "1.5"))
    axes.set_xticks([], minor=True)
    axes.set_yticks(range(len(order)), [row["row"] for row in order], fontsize=6)
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.set_xlabel("measured over predicted; bar: the 90% band from the other groups, X: outside of it")
    _bare(axes)
    _save(figure, path)
