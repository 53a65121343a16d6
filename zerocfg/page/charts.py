"""The charts of a page, drawn by matplotlib as SVG: each wide and narrow, light and dark.

The page shows the variant that fits (``<picture>``), and a table with the same numbers beside it. Nothing that a file
says reaches matplotlib as markup; the same data give the same bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal

from zerocfg.page.formatting import cut
from zerocfg.page.report_input import PageError
from zerocfg.page.theme import DARK, LIGHT, Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE, HALF, NARROW = 1040, 500, 350
"""Widths in CSS pixels. One unit of a drawing is one pixel, so that its letters have the size of the page's."""
_PER_INCH = 72
_FONT = "DejaVu Sans"
"""matplotlib measures with the font that it ships; readers see that of their system, which is narrower."""
_FAMILY = "system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','DejaVu Sans',sans-serif"


@dataclass(frozen=True, slots=True)
class Look:
    """How a chart is drawn: ``width`` in pixels, ``narrow`` for a phone."""

    theme: Theme
    width: int
    narrow: bool


@dataclass(frozen=True, slots=True)
class Chart:
    """``alt`` describes the chart. ``images`` are data URIs by (narrow, dark), ``sizes`` pixels by narrow."""

    alt: str
    images: dict[tuple[bool, bool], str]
    sizes: dict[bool, tuple[int, int]]


Draw = Callable[[Look], "Figure"]


def chart(alt: str, draw: Draw, wide: int = WIDE) -> Chart:
    """Draw all variants. Raises PageError when matplotlib is not there."""
    images, sizes = {}, {}
    for narrow in (False, True):
        for dark in (False, True):
            with _style(DARK if dark else LIGHT, narrow):
                figure = draw(Look(DARK if dark else LIGHT, NARROW if narrow else wide, narrow))
                images[narrow, dark] = _uri(figure)
            width, height = figure.get_size_inches() * _PER_INCH
            sizes[narrow] = (round(width), round(height))
    return Chart(alt, images, sizes)


def figure(look: Look, height: float) -> Figure:
    """An empty figure of so many pixels."""
    from matplotlib.figure import Figure

    return Figure(figsize=(look.width / _PER_INCH, height / _PER_INCH), layout="constrained")


def plain(axis: Axes, look: Look, *, grid: Literal["x", "y"] = "x") -> None:
    """No frame, faint lines in one direction."""
    for side in ("top", "right", "left", "bottom"):
        axis.spines[side].set_visible(False)
    axis.tick_params(length=0, labelcolor=look.theme.muted, labelsize=12 if not look.narrow else 11)
    axis.grid(axis=grid, color=look.theme.grid, linewidth=1)
    axis.set_axisbelow(True)


def labels(axis: Axes, look: Look, texts: list[str], own: list[bool] | None = None) -> None:
    """Names of horizontal bars: left of them, on a phone above them."""
    theme = look.theme
    if look.narrow:
        axis.set_yticks([])
        for at, label in enumerate(texts):
            weight = "bold" if own and own[at] else "normal"
            where = axis.get_yaxis_transform()
            axis.text(0, at - 0.33, cut(label, 44), color=theme.ink, weight=weight, transform=where, va="bottom")
        return
    axis.set_yticks(range(len(texts)), [cut(label, 44) for label in texts])
    for at, tick in enumerate(axis.get_yticklabels()):
        tick.set_color(theme.ink)
        tick.set_fontsize(13)
        tick.set_fontweight("bold" if own and own[at] else "normal")


def rows(look: Look, number: int) -> tuple[float, float]:
    """Pixels that so many horizontal bars need, and the thickness of one as a share of its row."""
    return (50.0 * number, 0.4) if look.narrow else (32.0 * number, 0.66)


@contextmanager
def _style(theme: Theme, narrow: bool) -> Iterator[None]:
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        raise PageError("a report needs matplotlib and jinja2: pip install 'zerocfg[report]'") from None
    # No settings of somebody else, no random identifiers, text as text.
    changed: Any = {
        "svg.hashsalt": "zerocfg",
        "svg.fonttype": "none",
        "text.parse_math": False,
        "font.family": [_FONT],
        "font.size": 12 if narrow else 13,
        "text.color": theme.ink,
        "axes.labelcolor": theme.muted,
        "axes.labelsize": 11 if narrow else 12,
    }
    defaults: Any = mpl.rcParamsDefault
    with mpl.rc_context({**defaults, **changed}):
        yield


def _uri(figure: Figure) -> str:
    out = StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(out, format="svg", transparent=True, metadata=nothing)
    text = out.getvalue()
    text = text[text.index("<svg") :].replace(f"'{_FONT}'", _FAMILY)
    return "data:image/svg+xml;base64," + base64.b64encode(text.encode()).decode()
