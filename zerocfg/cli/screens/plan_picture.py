"""The picture of ``zerocfg plan``: memory of a device by term for each plan, what the card has, the time of a step."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.memory.overhead import GIB
from zerocfg.resolve.explain.forecast import Forecast
from zerocfg.resolve.explain.plan_summary import COLUMNS, NAMES, by_column, distinct_plans
from zerocfg.resolve.search.choice import describe_plan
from zerocfg.source.write import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from zerocfg.cli.screens.plan import Shown
    from zerocfg.resolve.explain.alternatives import Alternative

SUFFIXES = (".svg", ".png", ".pdf")
COLOURS = ("#4269d0", "#efb118", "#6cc5b0", "#9c6b4e", "#ff725c", "#b8b8b8")


class PictureError(Exception):
    """Why no picture can be drawn, in one line."""


def draw(found: list[Shown], path: Path) -> None:
    """Write the picture; the suffix of ``path`` sets the format. Raises PictureError."""
    if path.suffix.lower() not in SUFFIXES:
        raise PictureError(f"{path}: a picture ends in {', '.join(SUFFIXES)}")
    drawn = [item for item in found if item.alternatives]
    if not drawn:
        raise PictureError("nothing can be drawn: no plan of these runs can be predicted")
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise PictureError("pictures need matplotlib: pip install 'zerocfg[pictures]'") from None
    rows = [distinct_plans(item.alternatives) for item in drawn]
    heights = [0.32 * len(row) + 1.3 for row in rows]
    # No date, no random identifiers, no settings of somebody else: the same plans give the same file.
    with mpl.rc_context({**mpl.rcParamsDefault, "svg.hashsalt": "zerocfg", "font.size": 9}):
        figure = Figure(figsize=(11, sum(heights)), layout="constrained")
        axes = figure.subplots(len(drawn), 2, squeeze=False, width_ratios=(3, 1), height_ratios=heights)
        for (memory, time), item, row in zip(axes, drawn, rows, strict=True):
            _memory(memory, item, row)
            _time(time, row)
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        drawn_bytes = BytesIO()
        figure.savefig(drawn_bytes, format=path.suffix[1:].lower(), metadata=metadata)
        try:
            write_atomic(path, drawn_bytes.getvalue())
        except OSError as error:
            raise PictureError(f"{path}: cannot be written: {error.strerror}") from None


def _memory(axis: Axes, item: Shown, rows: list[Alternative]) -> None:
    labels = [("▸ " if row.own else "") + describe_plan(row.candidate.choice.settings()) for row in rows]
    left = [0.0] * len(rows)
    parts = [by_column(row.candidate) for row in rows]
    for name, colour in zip(COLUMNS, COLOURS, strict=True):
        sizes = [part[name] / GIB for part in parts]
        axis.barh(range(len(rows)), sizes, left=left, color=colour, label=NAMES[name], height=0.7)
        left = [start + size for start, size in zip(left, sizes, strict=True)]
    for at, row in enumerate(rows):
        band = row.candidate.prediction.device
        axis.plot([band.low / GIB, band.high / GIB], [at, at], color="black", linewidth=1)
    forecast = item.forecast
    limit = forecast.capacity / GIB if isinstance(forecast, Forecast) and forecast.capacity else None
    largest = max(row.candidate.prediction.device.high for row in rows) / GIB
    if limit is not None:
        axis.axvline(limit, color="#d62728", linestyle="--", linewidth=1.2, label=f"the device has {limit:.0f} GiB")
        largest = min(largest, 1.6 * limit)
    axis.set_xlim(0, largest * 1.05)
    for at, row in enumerate(rows):
        expected = row.candidate.prediction.device.expected / GIB
        if expected > largest * 1.05:  # the bar leaves the picture
            axis.text(largest * 1.04, at, f"{expected:,.0f} GiB ▸", ha="right", va="center", color="white", fontsize=8)
    axis.set_yticks(range(len(rows)), labels)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlabel("GiB of one device at its peak (line: from the least to the most)")
    axis.set_title(
        f"{item.built.name} on {item.built.plan.hardware if item.built.plan else ''}", loc="left", fontsize=10
    )
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -1.1 / len(rows) - 0.06), ncols=4, fontsize=7, frameon=False)


def _time(axis: Axes, rows: list[Alternative]) -> None:
    times = [row.candidate.time for row in rows]
    if not any(times):
        axis.set_axis_off()
        return
    for at, (row, time) in enumerate(zip(rows, times, strict=True)):
        if time is None:
            continue
        colour = "#b8b8b8" if row.candidate.word == "does not fit" else "#4269d0"
        seconds = time.seconds
        axis.barh(at, seconds.expected, color=colour, height=0.7)
        axis.plot([seconds.low, seconds.high], [at, at], color="black", linewidth=1)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_yticks([])
    axis.set_xlabel("seconds of a step\n(grey: does not fit)")
