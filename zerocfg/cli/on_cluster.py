"""``--on`` and ``--on-option``: the options of every command that can run as a job of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from zerocfg.cluster.engines import NAMES

Command = TypeVar("Command", bound=Callable[..., Any])


def on(about: str, *others: str) -> Callable[[Command], Command]:
    """Both, as ``engine`` and ``words`` of the command. ``about``: what it does there; ``others``: further values."""

    def with_both(command: Command) -> Command:
        words = click.option(
            "--on-option",
            "words",
            multiple=True,
            metavar="WORD",
            help="With --on: an option of its own for the scheduler, as --partition=debug.",
        )
        return click.option("--on", "engine", type=click.Choice([*NAMES, *others]), help=about)(words(command))

    return with_both
