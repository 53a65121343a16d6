"""Statistics of errors and how they are printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean, median
from typing import Any

GIB = 1 << 30


def error(predicted: float, measured: float) -> float:
    """(predicted - measured) / measured."""
    return predicted / measured - 1


def summary(errors: Iterable[float]) -> dict[str, Any]:
    """How many, and mean, median and worst of the absolute errors."""
    sizes = [abs(one) for one in errors]
    if not sizes:
        return {"rows": 0}
    return {"rows": len(sizes), "mean": mean(sizes), "median": median(sizes), "worst": max(sizes)}


def spoken(found: dict[str, Any]) -> str:
    """A summary in words."""
    if not found["rows"]:
        return "no rows"
    return f"{found['rows']} rows: mean {found['mean']:.1%}, median {found['median']:.1%}, worst {found['worst']:.1%}"


def gib(size: float | None) -> str:
    return "-" if size is None else f"{size / GIB:.2f}"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:+.1%}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first two columns are text, the others figures."""
    marks = ["---" if i < 2 else "---:" for i in range(len(head))]
    lines = [head, marks, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
