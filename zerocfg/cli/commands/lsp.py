"""``zerocfg lsp``: the language server."""

from __future__ import annotations

import sys

import click


class MissingExtraError(click.ClickException):
    """What the language server needs is not installed."""

    exit_code = 2


@click.command("lsp")
@click.option("--stdio", is_flag=True, help="Use standard input and output (the default, and the only way).")
def command(stdio: bool) -> None:
    """Serve an editor over standard input and output (language server protocol).

    Findings while typing, across the files of a run; hover, completion, fixes, and the way to the other file. Editors
    start this themselves: docs/lsp.md shows how. Settings are those of `zerocfg lint`.
    """
    try:
        import pygls.lsp.server  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtraError("the language server needs pygls: pip install 'zerocfg[lsp]'") from None
    from zerocfg.lsp.server import serve

    if sys.stdin.isatty():
        click.echo("zerocfg lsp talks to an editor, which starts it by itself; Ctrl-C ends", err=True)
    raise click.exceptions.Exit(serve())
