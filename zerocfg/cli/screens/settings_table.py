"""Settings with their values and where they come from, as ``zerocfg explain`` lists them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from zerocfg.terminal.streams import columns
from zerocfg.terminal.table import Column, table

_COLUMNS = (Column(hangs=32), Column(least=12), Column(least=24))


MOST = 60
"""Characters of a name that are lined up in a pipe."""


def settings_table(rows: Sequence[tuple[str, str, str]], names: Sequence[str] = ()) -> str:
    """A line for each name, value and origin; of several lines each where the terminal is too narrow for them.

    ``names``: those of all tables, where this is one of several below each other.
    """
    width = columns(sys.stdout)
    if width is not None:
        return "".join(f"{line}\n" for line in table(_COLUMNS, rows, width))
    longest = min(MOST, max((len(name) for name in names or [row[0] for row in rows]), default=0))
    return "".join(f"  {name:<{longest}}  {value:<18}  {origin}".rstrip() + "\n" for name, value, origin in rows)
