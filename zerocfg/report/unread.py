"""What was met and not checked, for people."""

from __future__ import annotations

from zerocfg.rules.engine import Result

MOST = 20
"""Files that are listed; the rest is counted."""


def unread_lines(result: Result) -> list[str]:
    """A heading and a line for each file; those that the user named are told elsewhere, as wrong use."""
    found = [one for one in result.unread if not one.named]
    if not found:
        return []
    count = len(found)
    lines = [f"{count} file{'s were' if count != 1 else ' was'} not checked:"]
    lines += [f"  {one.file}: {one.reason}" for one in found[:MOST]]
    return [*lines, f"  and {count - MOST} more; --output-format json lists them"] if count > MOST else lines
