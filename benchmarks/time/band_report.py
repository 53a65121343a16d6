"""What bands.py found, as a table, a module and a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from zerocfg.memory.time.spread import SHORT

KINDS = {
    "tuned": "tuned code (llm-foundry), each model from the others",
    "ordinary": f"ordinary code, from {SHORT} tokens in a micro batch",
    "short": f"ordinary code, fewer than {SHORT} tokens",
    "offload": "optimizer on the host",
}


def as_markdown(found: dict[str, Any]) -> str:
    lines = [
        "# Bands of step times",
        "",
        'Written by `bands.py`; README.md ("Bands") says how. Each row is predicted, and its band made, without any',
        "row of its source (tuned code has one source: without any row of its model). Error: predicted / measured - 1.",
        "",
        "| rows | n | median | mean | worst | signed mean | inside the band |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, sums in [
        *((KINDS[kind], sums) for kind, sums in found["groups"].items()),
        ("all but tuned code", found["all ordinary code"]),
    ]:
        figures = " | ".join(f"{sums[key]:.1%}" for key in ("median", "mean", "worst"))
        held = f"{sums['held']} of {sums['rows']} ({sums['held'] / sums['rows']:.0%})"
        lines.append(f"| {name} | {sums['rows']} | {figures} | {sums['signed mean']:+.1%} | {held} |")
    lines += [
        "",
        "## Scales of all rows together",
        "",
        "Times the seconds of tuned code:",
        "",
        "| group | low | expected | high |",
        "|---|---:|---:|---:|",
    ]
    lines += [
        f"| {name} | {low:.2f} | {middle:.2f} | {high:.2f} |" for name, (low, middle, high) in found["scales"].items()
    ]
    low, middle, high = found["host step, ns"]
    lines.append(f"| host step, ns a parameter | {low:.1f} | {middle:.1f} | {high:.1f} |")
    left = found["beside"]["error of a device from the others"]
    told = ", ".join(f"{name} {value:+.1%}" for name, value in left.items())
    lines += ["", f"Time of products on a device from the two others: {told}.", "", "## Rows of ordinary code", ""]
    lines += [
        "| row | source | model, group | measured | predicted | band | error | inside |",
        "|---|---|---|---:|---:|---:|---:|---|",
    ]
    for one in found["rows"]:
        if one["group"] != "tuned":
            low, middle, high = one["band"]
            names = f"{one['row']} | {one['source']} | {one['model']}, {one['group']}"
            times = f"{one['measured']:.2f} s | {middle:.2f} s | {low:.2f} to {high:.2f} s"
            lines.append(f"| {names} | {times} | {one['error']:+.0%} | {'yes' if one['held'] else '**no**'} |")
    return "\n".join([*lines, ""])


def as_module(found: dict[str, Any]) -> str:
    """measured_spread.py."""

    def band(values: Sequence[float]) -> str:
        return f"Band({', '.join(str(one) for one in values)})"

    scales = "".join(f'    "{name}": {band(values)},\n' for name, values in found["scales"].items())
    return f'''"""Written by ``python benchmarks/time/bands.py``, from its rows; not to be edited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.memory.time.rates import Band

if TYPE_CHECKING:
    from zerocfg.memory.time.spread import Group

# Times the seconds of tuned code that published steps took.
MEASURED: dict[Group, Band] = {{
{scales}}}
# One thread, one parameter, the step of an optimizer on the host: from what we measured to what was published.
HOST_STEP_NS = {band(found["host step, ns"])}
'''


def draw(found: dict[str, Any], path: Path) -> None:
    """Measured over expected of each row, in the band that its prediction had."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "zerocfg"
    figure, axes = plt.subplots(1, 2, figsize=(12, 5), width_ratios=(3, 2), sharey=True)
    panels: tuple[tuple[str, Callable[[dict[str, Any]], bool]], ...] = (
        ("tuned code, without the row's model", lambda one: one["group"] == "tuned"),
        ("ordinary code, without the row's source", lambda one: one["group"] != "tuned"),
    )
    colours = {"tuned": "C0", "ordinary": "C0", "short": "C1", "offload": "C2"}
    for axis, (title, belongs) in zip(axes, panels, strict=True):
        order = list(KINDS)
        here = sorted(
            (one for one in found["rows"] if belongs(one)),
            key=lambda one: (order.index(one["group"]), one["measured"] / one["band"][1]),
        )
        for at, one in enumerate(here):
            low, middle, high = one["band"]
            axis.plot([at, at], [low / middle, high / middle], color="0.8", linewidth=1.5, zorder=1)
        for kind in order:
            mine = [(at, one) for at, one in enumerate(here) if one["group"] == kind]
            if mine:
                values = [one["measured"] / one["band"][1] for _, one in mine]
                label = f"{kind}: {sum(one['held'] for _, one in mine)} of {len(mine)} inside"
                axis.plot([at for at, _ in mine], values, "o", markersize=3, color=colours[kind], label=label, zorder=2)
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set(yscale="log", title=title, xlabel="rows", xticks=[])
        axis.legend(fontsize=8, loc="upper left")
    axes[0].set_ylabel("measured / expected; grey: the band")
    ticks = [0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5]
    axes[0].set_yticks(ticks, [f"{one:g}" for one in ticks])
    axes[0].minorticks_off()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
