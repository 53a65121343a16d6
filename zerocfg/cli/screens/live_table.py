"""A table on standard error that is drawn again in its place, where somebody watches."""

from __future__ import annotations

import os
import sys

import click


class LiveTable:
    """Nothing is shown where standard error is no terminal that can take lines back."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._lines = 0

    def draw(self, lines: list[str]) -> None:
        """Show these lines in place of those before."""
        if self._shown:
            self.clear()
            click.echo("\n".join(lines), err=True)
            self._lines = len(lines)

    def clear(self) -> None:
        """Take the lines back before something else is written."""
        if self._lines:
            # Drawn raw: what is printed through click has its control characters shown.
            sys.stderr.write(f"\x1b[{self._lines}F\x1b[J")
            sys.stderr.flush()
            self._lines = 0
