"""Formats figures and texts for the page."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from zerocfg.source.secrets import masked

GIB = 1 << 30
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Unit:
    """What sizes of one chart and table are counted in."""

    scale: int
    name: str

    def __call__(self, size: float) -> str:
        """Two digits behind the point; a dash for nothing."""
        return f"{size / self.scale:,.2f}" if size else "–"


def unit_for(largest: float, least: float = GIB / 10) -> Unit:
    """GiB, or MiB where all is below ``least``."""
    return Unit(GIB, "GiB") if largest >= least else Unit(MIB, "MiB")


def size(value: float) -> str:
    """``66.3 GiB``."""
    unit = unit_for(value)
    return f"{value / unit.scale:,.1f} {unit.name}"


def band(low: float, high: float) -> str:
    """``62.1 to 66.3 GiB``."""
    first, last = size(low), size(high)
    if first == last:
        return first
    return f"{first.rpartition(' ')[0] if first[-3:] == last[-3:] else first} to {last}"


def brief(seconds: float) -> str:
    """A duration, however short: ``2.6 s``, ``22 ms``, ``23 µs``."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 1e-3 or not seconds else f"{seconds * 1e6:.0f} µs"


def count(number: int, word: str) -> str:
    """``1 error``, ``2 errors``."""
    return f"{number} {word}{'s' * (number != 1)}"


def clean(text: str) -> str:
    """Without secrets, and without characters that a reader cannot see or that turn the text around: control, format
    and lone surrogates."""
    text = masked(text)
    if text.isprintable():
        return text
    return "".join(item if item in "\t\n" or _visible(item) else "�" for item in text)


def _visible(character: str) -> bool:
    return unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Cn")


def cut(text: str, widest: int) -> str:
    """At most ``widest`` characters."""
    return text if len(text) <= widest else text[: widest - 1] + "…"
