"""Codes that once named a rule. A code is never given a second meaning, so that an old ignore cannot hide a new rule.

`tests/rules/codes.txt` lists every code ever given; a rule that goes is moved from its family to this table.
"""

from __future__ import annotations

from zerocfg.record import record


@record(frozen=True, slots=True)
class Removed:
    """A rule that is no more: its name, the release that dropped it, and what to look at now."""

    name: str
    since: str
    why: str


REMOVED: dict[str, Removed] = {}
