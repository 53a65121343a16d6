"""Text with colours on a terminal; apart from the other ways to write because of what Windows needs."""

from __future__ import annotations

import os

from zerocfg.source.foreign import harmless
from zerocfg.terminal.streams import write_own

TYPE_CHECKING = False  # see `zerocfg.source.disk`
if TYPE_CHECKING:
    from typing import TextIO


def write_coloured(text: str, stream: TextIO) -> None:
    """With the colours of zerocfg, also into a pipe: somebody asked for them."""
    text = harmless(text, coloured=True)
    if os.name == "nt" and stream.isatty():
        import click  # makes them visible in consoles that know none

        click.echo(text, file=stream, nl=False, color=True)
    else:
        write_own(text, stream)
