"""Tables and picture of the result of many_ranks.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FAR = 0.15
"""Errors beyond this are explained as far as it is known."""
UNDERSTOOD_LATER = {
    **dict.fromkeys(
        ("IE07", "IE08"),
        "with the same work for each device the measured step grows from 4.6 s on 128 devices to 7.2 s on 1024:"
        " collectives over all ranks slow down with their number, which the formulas do not have",
    ),
}
"""Explanations that the first result suggested. No formula and no row was changed for them."""


def as_markdown(report: dict[str, Any]) -> str:
    lines = [
        "# Published steps of 8 to 1024 devices, predicted",
        "",
        f'{report["date"]}. Written by `many_ranks.py`; README.md ("Many ranks") says where the rows come from.',
        "Error: predicted / measured - 1. No constant was fitted to these rows.",
        f"Formulas: {', '.join(f'{name} {digest}' for name, digest in report['formulas'].items())}.",
        "",
        "| | at most | here | |",
        "|---|---:|---:|---|",
    ]
    for key, target in report["targets"].items():
        verdict = "reached" if target["reached"] else "**not reached**"
        lines.append(f"| {key} error | {target['at most']:.0%} | {report['all'][key]:.1%} | {verdict} |")
    lines += [
        "",
        "| rows | n | median | mean | worst | signed mean | inside the band |",
        "|---|---:|---:|---:|---:|---:|---:|",
        _sums("all", report["all"]),
        *(_sums(source, sums) for source, sums in report["by source"].items()),
        *(_sums(name, sums) for name, sums in report["by accelerator"].items()),
        *(_sums(f"{devices} devices", sums) for devices, sums in report["by devices"].items()),
        "",
        "Each source counted alike: "
        + ", ".join(f"{key} {value:.1%}" for key, value in report["sources alike"].items())
        + " (mean over the sources).",
        "",
        "![Predicted over measured by number of devices](many_ranks.svg)",
        "",
        f"## Rows that lie outside {FAR:.0%}",
        "",
        "What is known of the measurement; what the prediction adds to the computation of tuned code, as shares of the",
        "step; and the share of the printed peak that the executed operations reach, as measured and as predicted.",
        "",
        "| row | source | error | why, as far as it is known | predicted beyond computation | of the peak |",
        "|---|---|---:|---|---|---:|",
    ]
    for row in sorted(report["rows"], key=lambda row: -abs(row["error"])):
        if abs(row["error"]) > FAR:
            added = ", ".join(f"{name} {share:.0%}" for name, share in row["beyond computation"].items()) or "nothing"
            shares = f"{row['executed share of the peak']:.0%}, {row['the same, predicted']:.0%} predicted"
            lines.append(
                f"| {row['row']} | {row['source']} | {row['error']:+.0%} | {_reasons(row)} | {added} | {shares} |"
            )
    lines += [
        "",
        "## All rows",
        "",
        "| row | source | model | hardware | repeated | measured | predicted | band | error | inside |",
        "|---|---|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for row in report["rows"]:
        names = f"{row['row']} | {row['source']} | {row['model']} | {row['hardware']} | {row['recomputed']:g}"
        times = f"{row['measured']:.2f} s | {row['expected']:.2f} s | {row['low']:.2f} to {row['high']:.2f} s"
        lines.append(f"| {names} | {times} | {row['error']:+.0%} | {'yes' if row['inside'] else '**no**'} |")
    return "\n".join([*lines, ""])


def _sums(name: str, sums: dict[str, Any]) -> str:
    figures = " | ".join(f"{sums[key]:.1%}" for key in ("median", "mean", "worst"))
    held = f"{sums['inside']} of {sums['rows']} ({sums['inside'] / sums['rows']:.0%})"
    return f"| {name} | {sums['rows']} | {figures} | {sums['signed mean']:+.1%} | {held} |"


def _reasons(row: dict[str, Any]) -> str:
    """What the source says of the measurement, later explanations, and the assumptions of the prediction."""
    reasons = [row["known"], UNDERSTOOD_LATER.get(row["row"], ""), *row["not compared"]]
    if row["network assumed"]:
        reasons.append(f"network assumed ({row['network'].split(', assumed')[0]})")
    if 0 < row["recomputed"] < 1:
        reasons.append(f"selective checkpointing, taken as {row['recomputed']:g} of full")
    unexplained = (
        f"not known: the device computed {'faster' if row['error'] > 0 else 'slower'} than expected of such code"
    )
    return "; ".join(filter(None, reasons)) or unexplained


def draw(report: dict[str, Any], path: Path) -> None:
    """Predicted over measured of each row by its number of devices, with the band of the prediction."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "zerocfg"
    figure, axis = plt.subplots(figsize=(12.5, 5.5))
    at = _places(report["rows"])
    for row in report["rows"]:
        ends = [row["low"] / row["measured"], row["high"] / row["measured"]]
        axis.plot([at[row["row"]]] * 2, ends, color="0.8", linewidth=1.2, zorder=1)
    for source, sums in report["by source"].items():
        group = [row for row in report["rows"] if row["source"] == source]
        label = f"{source}: {sums['inside']} of {sums['rows']} inside the band"
        values = [row["expected"] / row["measured"] for row in group]
        axis.plot([at[row["row"]] for row in group], values, "o", markersize=4, label=label, zorder=2)
    axis.axhline(1, color="black", linewidth=0.8)
    for error in (-FAR, FAR):
        axis.axhline(1 + error, color="black", linewidth=0.5, linestyle=":")
    devices = sorted({row["devices"] for row in report["rows"]})
    axis.set(xscale="log", yscale="log", xlabel="devices", ylim=(0.25, 4))
    axis.set_ylabel("predicted / measured; grey: the band; dotted: 15%")
    axis.set_xticks(devices, [str(count) for count in devices])
    ticks = [0.25, 0.5, 0.7, 0.85, 1, 1.15, 1.5, 2, 4]
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set_title(f"{report['all']['rows']} published steps; median error {report['all']['median']:.1%}")
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def _places(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Position of each row on the logarithmic axis; rows with the same number of devices lie side by side."""
    places = {}
    for count in {row["devices"] for row in rows}:
        names = [row["row"] for row in rows if row["devices"] == count]
        for index, name in enumerate(names):
            places[name] = count * 1.012 ** (index - (len(names) - 1) / 2)
    return places
