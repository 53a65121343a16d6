"""Precision, readers and recall as one picture of bars, with the shares that are aimed at. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.wild.figures import SEVERITIES, Judged, Reading, counted, precision, recall
from benchmarks.wild.planting import Outcome

AIMS = {"error": 0.98, "warning": 0.95}
READERS_AIM = 0.95
RECALL_AIM = 0.8
BLUE, GREY = "#0072B2", "0.75"

plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "zerocfg", "font.size": 9, "font.family": "sans-serif"})


def draw(rows: Sequence[Judged], readings: Sequence[Reading], told: Sequence[Outcome], path: Path) -> None:
    bars = []
    for severity in SEVERITIES:
        one = precision(row for row in rows if row.finding.severity == severity)
        if one.share is not None:
            name = f"{severity}s that are true ({one.true} of {one.true + one.wrong})"
            bars.append((name, one.share, AIMS[severity]))
    if readings:
        count = counted(readings)
        right = count["right"] + count["family"]
        bars.append((f"readers of launch lines ({right} of {len(readings)})", right / len(readings), READERS_AIM))
    for name, planted, found, _, _ in recall(told):
        if planted:
            bars.append((f"mistakes told, {name} ({found} of {planted})", found / planted, RECALL_AIM))
    figure, axes = plt.subplots(figsize=(6.4, 0.4 * len(bars) + 0.8), layout="constrained")
    places = range(len(bars))
    axes.barh(places, [1] * len(bars), color=GREY, height=0.5, alpha=0.4)
    axes.barh(places, [share for _, share, _ in bars], color=BLUE, height=0.5)
    for place, (_, share, aim) in zip(places, bars, strict=True):
        axes.plot([aim, aim], [place - 0.35, place + 0.35], color="#D55E00", linewidth=1.5)
        colour = "white" if share > 0.92 else "black"
        axes.text(min(share + 0.01, 0.93), place, f"{share:.0%}", va="center", color=colour)
    axes.set_yticks(places, [name for name, _, _ in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    axes.set_xlabel("the line is what is aimed at")
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
