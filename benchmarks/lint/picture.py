"""The ratios of the table as bars, with the line of equal time. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.lint.run import Row

COLOURS = {"yamllint": "#0072B2", "check-jsonschema": "#E69F00"}

plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "zerocfg", "font.size": 9, "font.family": "sans-serif"})


def draw(rows: list[Row], path: Path) -> None:
    """A group of bars a row: the time of zerocfg as a multiple of that of each peer."""
    bars = [(row, peer, ratio) for row in rows for peer in COLOURS if (ratio := row.ratio(peer)) is not None]
    figure, axes = plt.subplots(figsize=(6.4, 0.32 * len(bars) + 1.2), layout="constrained")
    places = range(len(bars))
    axes.barh(places, [ratio for _, _, ratio in bars], color=[COLOURS[peer] for _, peer, _ in bars], height=0.7)
    for place, (_, _, ratio) in zip(places, bars, strict=True):
        axes.text(ratio + 0.02, place, f"{ratio:.2f}", va="center")
    axes.set_yticks(places, [f"{row.case.title.replace('`', '')}: {peer}" for row, peer, _ in bars])
    axes.invert_yaxis()
    axes.axvline(1, color="0.3", linewidth=1)
    axes.set_xlim(0, max(1.2, *(ratio + 0.2 for _, _, ratio in bars)))
    axes.set_xlabel("CPU time of zerocfg as a multiple of the peer's (the line: as long as the peer)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
