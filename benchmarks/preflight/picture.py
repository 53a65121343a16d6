"""What a preflight costs by its ranks, measured and carried on to 10,000: python -m benchmarks.preflight.picture

Needs matplotlib. The points are those of `ranks` (real ranks of this machine) and of `scale` (made lines); a line is
the growth named beside it through the last point.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

RESULTS = Path(__file__).parent / "results"
MOST = 10_000
BLUE, ORANGE = "#0072B2", "#E69F00"

plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "zerocfg", "font.size": 9, "font.family": "sans-serif"})


def read(name: str) -> list[dict[str, float]]:
    return [json.loads(line) for line in (RESULTS / name).read_text().splitlines()]


def panel(
    axes: Axes,
    title: str,
    rows: list[dict[str, float]],
    key: str,
    growth: Callable[[float], float],
    said: str,
    colour: str = BLUE,
) -> None:
    """A figure by ranks, and how it goes on."""
    last = rows[-1]
    ends = [last["ranks"] * (MOST / last["ranks"]) ** (at / 20) for at in range(21)]
    axes.plot([one["ranks"] for one in rows], [one[key] for one in rows], "o", color=colour, markersize=4)
    axes.plot(
        ends,
        [last[key] * growth(at) / growth(last["ranks"]) for at in ends],
        "--",
        color=colour,
        linewidth=1,
        label=said,
    )
    axes.set_title(title, fontsize=9)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("ranks")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    ranks, made = read("ranks.jsonl"), read("scale.jsonl")
    figure, found = plt.subplots(2, 2, figsize=(7.2, 5.4), layout="constrained")
    panel(found[0][0], "CPU seconds of a rank", ranks, "cpu", math.log2, "log N")
    panel(found[0][1], "open sockets of a rank at most (gloo)", ranks, "sockets", float, "N")
    panel(found[1][0], "KiB that a rank prints", made, "kib", math.log2, "log N", ORANGE)
    panel(found[1][1], "CPU seconds of the verdict", made, "judge_cpu", lambda n: n * math.log2(n), "N log N", ORANGE)
    figure.savefig(RESULTS / "cost.svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
