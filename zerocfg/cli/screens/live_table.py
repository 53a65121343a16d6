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
        """Show these lines in place of those before, as many as the terminal has room for."""
        if self._shown:
            self.clear()
            shown = _that_fit(lines)
            click.echo("\n".join(shown), err=True)
            self._lines = len(shown)

    def clear(self) -> None:
        """Take the lines back before something else is written."""
        if self._lines:
            # Past the stream, which shows control characters as escapes: no foreign text may take lines back.
            sys.stderr.flush()
            os.write(sys.stderr.fileno(), f"\x1b[{self._lines}F\x1b[J".encode())
            self._lines = 0


def _that_fit(lines: list[str]) -> list[str]:
    """Lines that have left the terminal cannot be taken back."""
    try:
        room = os.get_terminal_size(sys.stderr.fileno()).lines - 1
    except OSError:
        return lines
    if room < 2 or len(lines) <= room:
        return lines
    return [*lines[: room - 1], f"... {len(lines) - room + 1} more"]
