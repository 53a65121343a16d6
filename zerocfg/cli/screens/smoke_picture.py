"""The picture of ``zerocfg smoke compare``: memory over time for each stage, its phases, and the peaks."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from zerocfg.cli.screens.plan_picture import SUFFIXES, PictureError
from zerocfg.smoke.compare import Comparison, Row, title
from zerocfg.smoke.judge.figures import GIB, PHASES
from zerocfg.smoke.prepare.strategies import label

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

LINES = {"0": "#4269d0", "1": "#efb118", "2": "#3ca951", "3": "#ff725c", "ddp": "#9c6b4e"}
SHADES = {"init": "#c9c9c9", "forward": "#a3d5c8", "backward": "#f3c98b", "step": "#c9a6dd", "save": "#9fb8e8"}
LIMIT = "#d62728"
MIB = 1 << 20


def draw(found: Comparison, path: Path) -> None:
    """Write the picture; the suffix of ``path`` sets the format. Raises PictureError."""
    check(path)
    rows = [row for row in found.rows if row.verdict is not None and row.verdict.figures.timeline]
    if not rows:
        raise PictureError("nothing can be drawn: no stage ran")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # No date, no random identifiers, no settings of somebody else: the same measurements give the same file.
    with mpl.rc_context({**mpl.rcParamsDefault, "svg.hashsalt": "zerocfg", "font.size": 9}):
        figure = Figure(figsize=(11, 4.6 + 0.24 * len(rows)), layout="constrained")
        axes = figure.subplots(2, 2, width_ratios=(3, 1.15), height_ratios=(4, 0.35 + 0.24 * len(rows)))
        (over_time, peaks), (strips, corner) = axes
        unit, name = _unit(rows)
        _lines(over_time, rows, unit, name)
        _strips(strips, rows)
        over_time.sharex(strips)
        over_time.tick_params(labelbottom=False)
        _peaks(peaks, rows, unit, name)
        corner.set_axis_off()
        figure.suptitle(title(found), x=0.01, ha="left", fontsize=11)
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        try:
            figure.savefig(path, metadata=metadata, dpi=130)
        except OSError as error:
            raise PictureError(f"{path}: cannot be written: {error.strerror}") from None


def check(path: Path) -> None:
    """Before anything runs: can this picture be drawn? Raises PictureError."""
    import importlib.util

    if path.suffix.lower() not in SUFFIXES:
        raise PictureError(f"{path}: a picture ends in {', '.join(SUFFIXES)}")
    if not path.absolute().parent.is_dir():
        raise PictureError(f"{path}: there is no folder {path.parent}")
    if importlib.util.find_spec("matplotlib") is None:
        raise PictureError("pictures need matplotlib: pip install 'zerocfg[pictures]'")


def _unit(rows: list[Row]) -> tuple[int, str]:
    largest = max(size for row in rows for _, size, _ in _points(row))
    return (GIB, "GiB") if largest > GIB / 2 else (MIB, "MiB")


def _points(row: Row) -> list[tuple[float, int, str]]:
    """(seconds since the first step began, bytes, phase) of rank 0; on a processor what it grew by."""
    assert row.verdict is not None
    seen = row.verdict.figures
    before = 0 if seen.on_card else (seen.start[0].get("rss") or 0 if seen.start else 0)
    first = next((time for time, _, phase in seen.timeline if phase not in ("init", "own")), 0.0)
    return [(time - first, max(0, size - before), phase) for time, size, phase in seen.timeline]


def _lines(axis: Axes, rows: list[Row], unit: int, name: str) -> None:
    largest = 0.0
    for row in rows:
        points = _points(row)
        sizes = [size / unit for _, size, _ in points]
        largest = max(largest, *sizes)
        colour = LINES[row.strategy]
        axis.step([time for time, _, _ in points], sizes, where="post", color=colour, linewidth=1.6)
        trained = [at for at, (_, _, phase) in enumerate(points) if phase != "own"]
        top = max(trained or range(len(sizes)), key=sizes.__getitem__)
        axis.plot(points[top][0], sizes[top], marker="o", markersize=4, color=colour)
    assert rows[0].verdict is not None
    seen = rows[0].verdict.figures
    limit = seen.device_memory / unit if seen.device_memory else None
    if limit is not None and limit < 2.5 * largest:
        axis.axhline(limit, color=LIMIT, linestyle="--", linewidth=1.2)
        words = f"the card has {limit:.0f} {name}"
        axis.annotate(words, (0.01, limit), xycoords=("axes fraction", "data"), va="bottom", fontsize=8, color=LIMIT)
        largest = max(largest, limit)
    axis.set_ylim(0, max(largest, 1.0) * 1.08)
    axis.grid(axis="y", color="#e5e5e5", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.set_ylabel(f"{name} {'allocated' if seen.on_card else 'of host memory beside the libraries'}, rank 0")
    axis.set_title("Memory over time (dots: the peaks)", loc="left", fontsize=9)
    # The bars beside it name the colours; a legend would lie over the lines.
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _strips(axis: Axes, rows: list[Row]) -> None:
    """A bar for each way, in the colours of its phases."""
    from matplotlib.patches import Patch

    last = 0.0
    for at, row in enumerate(rows):
        points = _points(row)
        for (start, _, phase), (end, _, _) in pairwise(points):
            if phase in SHADES:
                axis.barh(at, end - start, left=start, color=SHADES[phase], height=0.72, linewidth=0)
        last = max(last, points[-1][0])
    axis.set_yticks(range(len(rows)), [label(row.strategy) for row in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    # Making a model takes longer than a few small steps; what is before them may leave the picture.
    axis.set_xlim(-0.35 * max(last, 0.1), max(last, 0.1) * 1.01)
    axis.set_xlabel("seconds since the first step began")
    handles = [Patch(color=SHADES[phase], label=phase) for phase in PHASES]
    axis.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.62), ncols=5, fontsize=8, frameon=False)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.tick_params(left=False)


def _peaks(axis: Axes, rows: list[Row], unit: int, name: str) -> None:
    """The highest of all ranks; on a card the prediction beside it."""
    on_card = rows[0].verdict is not None and rows[0].verdict.figures.on_card
    largest = 0.0
    for at, row in enumerate(rows):
        assert row.verdict is not None
        seen = row.verdict.figures
        sizes = [peak for peak in (seen.peaks("allocated") if on_card else seen.grown()) if peak is not None]
        most = max(sizes, default=0) / unit
        bars = [(most, LINES[row.strategy], 0.0 if not on_card else -0.2)]
        expected = row.verdict.expected
        if on_card and not isinstance(expected, str):
            bars.append((expected.allocated.expected / unit, "none", 0.2))
        for size, colour, offset in bars:
            edge = "#555555" if colour == "none" else colour
            style = "--" if colour == "none" else "-"
            axis.barh(at + offset, size, 0.36 if on_card else 0.6, color=colour, edgecolor=edge, linestyle=style)
            axis.text(size, at + offset, f" {_short(size)}", va="center", fontsize=8)
            largest = max(largest, size)
    axis.set_yticks(range(len(rows)), [label(row.strategy) for row in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlim(0, (largest or 1) * 1.3)
    axis.set_xlabel(name)
    words = "Peak of any rank (dashed: predicted)" if on_card else "Peak of any rank"
    axis.set_title(words, loc="left", fontsize=9)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _short(size: float) -> str:
    return f"{size:.0f}" if size >= 100 else f"{size:.1f}" if size >= 10 else f"{size:.2f}"
