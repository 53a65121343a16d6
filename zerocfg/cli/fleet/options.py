"""The options of ``lint`` that are for many repositories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from zerocfg.cli.on_cluster import on

Command = TypeVar("Command", bound=Callable[..., Any])
LIMIT = 300
"""Seconds for one repository."""
WORKERS = 2
NAMES = ("repos", "jobs", "engine", "workers", "words", "time_limit", "since", "fail_on_new")
"""The fields of `zerocfg.cli.fleet.command.Fleet`."""


def options(command: Command) -> Command:
    """To be given to `zerocfg.cli.fleet.command.Fleet`."""
    for option in (
        click.option(
            "--fail-on-new", is_flag=True, help="With --since: exit 1 only for findings that the earlier report lacks."
        ),
        click.option(
            "--since",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="REPORT",
            help="With --repos: also what is new, gone and the same since an earlier JSON report.",
        ),
        click.option(
            "--time-limit",
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            help=f"With --repos: for each repository (default: {LIMIT}).",
        ),
        click.option(
            "--workers", type=click.IntRange(1), help=f"With --on: so many tasks share the work (default: {WORKERS})."
        ),
        on("With --repos: lint as a job; the folders must be seen there."),
        click.option(
            "--jobs",
            type=click.IntRange(1),
            help="With --repos: so many at a time (default: the cores here; 1 for each of --workers).",
        ),
        click.option(
            "--repos",
            metavar="LIST|FOLDER",
            help="Lint many repositories, each from its root by its own settings: a file with a path a line, '-' for "
            "standard input, or a folder of them.",
        ),
    ):
        command = option(command)
    return command
