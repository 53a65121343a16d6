"""Draws the boundary of trust around what a command line names, for every command alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import click

from zerocfg.cli.outputs import Output
from zerocfg.source import boundary

TARGETS = frozenset({"run_name", "folder", "repos", "stdin_filename"})
"""Options that name what a command works on; all others name a file for itself."""
WALKING = ("lint", "init", "migrate", "gate")
"""Commands that work on all that lies in a folder. To the others it is a spec or a build, which stands for files."""
_LINE = re.compile(r":\d+\Z")
"""Behind a launch file, which of its lines is meant."""


def bounded(command: click.Command) -> click.Command:
    """The command with `--allow-outside`, so that it reads and changes what its command line names."""
    if command.name == "lsp":  # what is worked on is said by an editor, not here: see `Session.on_worker`
        return command
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            bounded(subcommand)
        return command
    if any(option.name == "allow_outside" for option in command.params) or command.callback is None:
        return command
    run: Callable[..., Any] = command.callback

    @wraps(run)
    def inside(*, allow_outside: tuple[Path, ...], **given: Any) -> Any:
        arguments = {option.name for option in command.params if isinstance(option, click.Argument)}
        named = [(name, path) for name, value in given.items() for path in _paths(value)]
        targets = [path for name, path in named if name in arguments or name in TARGETS]
        if command.name not in WALKING:
            targets = [path / "zerocfg.lock" if path.is_dir() else path for path in targets]
        exactly = [path for name, path in named if name not in arguments and name not in TARGETS]
        with boundary.reading(targets, exactly, allow_outside):
            return run(**given)

    command.callback = inside
    command.params.append(
        click.Option(
            [boundary.OPTION],
            multiple=True,
            metavar="PATH",
            type=click.Path(path_type=Path),
            help="Also read and change this file, or what lies in this folder, outside of the repository.",
        )
    )
    return command


def _paths(value: object) -> Iterator[Path]:
    """The paths in what is given for an option. A text is one where something lies there."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, Output):
        yield from _paths(value.file)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _paths(item)
    elif isinstance(value, str) and "\0" not in value:
        path = Path(_LINE.sub("", value))
        if value and _is_there(path):
            yield path


def _is_there(path: Path) -> bool:
    try:
        return path.exists() or path.is_symlink()
    except OSError:  # a name that is too long
        return False
