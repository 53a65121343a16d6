"""Options of `zerocfg smoke`, in groups that its subcommands put together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from zerocfg.cli import settings_options
from zerocfg.cli.on_cluster import on

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Any], Any]

_FORMAT = click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
_LIMIT = click.option(
    "--time-limit", type=click.FloatRange(1), default=300, show_default=True, help="Seconds for each run."
)


def _all(*options: Option) -> Callable[[Command], Command]:
    """Several options in this order, on a command."""

    def with_all(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return with_all


output_format = _all(_FORMAT)
launch = _all(
    click.option("--ranks", type=click.IntRange(1, 64), help="Processes. Default: as planned, at most 2."),
    click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True),
    click.option("--steps", type=click.IntRange(1), default=3, show_default=True, help="Optimizer steps."),
    click.option(
        "--consumer",
        type=click.Choice(["transformers", "trl", "accelerate", "deepspeed"]),
        help="Who reads hand-written configs, when no file says so.",
    ),
    click.option("--run", "name", metavar="NAME", help="Which run, if hand-written files hold several."),
    _LIMIT,
    click.option(
        "--memory-limit",
        type=click.FloatRange(0, min_open=True),
        metavar="GIB",
        help="The most that each rank may have: of its card, on CPU of the host.",
    ),
    settings_options.options,
    _FORMAT,
)
"""How a run is launched: what every subcommand takes that launches one."""
one_card = _all(
    click.option(
        "--share-gpu",
        is_flag=True,
        help="Put all ranks on the first card, if a trial shows that they can; times mean nothing.",
    )
)
kept = _all(
    click.option(
        "--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep weights, log and reduced configs here."
    ),
    click.option(
        "--sign",
        metavar="KEY",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Sign the certificate with this OpenSSH key (a public one: with the agent's).",
    ),
)
"""What is left of a run."""
several = _all(
    click.option(
        "--nodes",
        type=click.IntRange(1, 1024),
        help="Machines that run this command at the same time, --ranks on each; they find each other as launch.sh "
        "does. With --on: those that the job asks for.",
    ),
    on("Run as a job: one task for each RUN, on --nodes machines (default: as planned)."),
    click.option("--detach", is_flag=True, help="With --on: submit the job and leave; `smoke attach` goes on."),
    click.option(
        "--uncertified", is_flag=True, help="Leave out the builds that have a certificate of what is here now."
    ),
    click.option("--fail-fast", is_flag=True, help="Stop after the first run that does not pass."),
)
"""Of several runs, machines, or a cluster."""


def search(*, hidden: bool = False) -> Callable[[Command], Command]:
    """How far the search for a micro batch goes."""
    return _all(
        click.option(
            "--batch-limit",
            type=click.IntRange(1),
            help="Where the search ends. Default: 64 on CPU, 4096 on cards.",
            hidden=hidden,
        ),
        click.option(
            "--max-launches",
            type=click.IntRange(1),
            default=12,
            show_default=True,
            help="Of one search.",
            hidden=hidden,
        ),
    )


def picture(*, hidden: bool = False) -> Callable[[Command], Command]:
    path = click.Path(dir_okay=False, path_type=Path)
    help_text = "Draw memory over time (.svg, .png, .pdf)."
    return _all(click.option("--picture", type=path, metavar="FILE", help=help_text, hidden=hidden))


def find_max_batch(*, hidden: bool = False) -> Callable[[Command], Command]:
    help_text = "Search the largest micro batch that fits, of each stage."
    return _all(click.option("--find-max-batch", is_flag=True, help=help_text, hidden=hidden))


former = _all(
    click.option("--command", "line", metavar="LINE", hidden=True),
    click.option("--compare", "ways", metavar="STAGES", hidden=True),
    picture(hidden=True),
    find_max_batch(hidden=True),
    search(hidden=True),
    click.option("--attach", is_flag=False, flag_value="", metavar="[JOB]", hidden=True),
)
"""What became the other subcommands, as options of the first: the spelling of before."""
