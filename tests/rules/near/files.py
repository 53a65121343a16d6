"""Near misses that are quicker to write down than to derive from an example."""

from __future__ import annotations

from tests.rules.near.table import Near
from zerocfg.rulebook.example import Example


def of(code: str, why: str, files: dict[str, str], consumer: str | None = None) -> Near:
    """These files, of which the rule says nothing until ``finds`` states that it does."""
    return Near(code, why, Example(files, consumer=consumer))
