"""Wrong use as click shows it: with the usage of the command, and exit code 2."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from zerocfg.errors import UsageError


def shows_usage(command: click.Command) -> click.Command:
    """The command, with `UsageError` from what it calls raised as click's own, which knows the command's usage."""
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            shows_usage(subcommand)
        return command
    if command.callback is None:
        return command
    run: Callable[..., Any] = command.callback

    @wraps(run)
    def converting(*args: Any, **given: Any) -> Any:
        try:
            return run(*args, **given)
        except UsageError as error:
            raise click.UsageError(str(error)) from None

    command.callback = converting
    return command
