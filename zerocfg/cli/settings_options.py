"""``--config``, ``--isolated``, ``--exclude`` and ``--extend-exclude``: settings that the command line gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def options(command: Command) -> Command:
    """The options, to be given to `SettingsOptions`."""
    for option in (
        click.option(
            "--extend-exclude",
            multiple=True,
            metavar="PATTERN",
            callback=_by_comma,
            help="Leave these files and folders out too, beside those of the settings.",
        ),
        click.option(
            "--exclude",
            multiple=True,
            metavar="PATTERN",
            callback=_by_comma,
            help="Leave out these files and folders, instead of those of the settings.",
        ),
        click.option("--isolated", is_flag=True, help="Read no settings files."),
        click.option(
            "--config",
            multiple=True,
            metavar="FILE|SETTING",
            help="A settings file in place of the nearest, or a setting such as 'fail-on = \"error\"'.",
        ),
    ):
        command = option(command)
    return command


def _by_comma(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word.strip() for item in value for word in item.split(",") if word.strip())
