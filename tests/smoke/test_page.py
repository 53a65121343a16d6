"""docs/smoke.md says what the smoke-run does: every option, every word of a reduction, every way to share a card."""

from __future__ import annotations

import re

import click

from tests.conftest import ROOT
from zerocfg.cli.bounded import bounded
from zerocfg.cli.commands.smoke import command
from zerocfg.smoke.model.reduction import Kind
from zerocfg.smoke.worker.job import MODES

PAGE = (ROOT / "docs" / "smoke.md").read_text(encoding="utf-8")


def table(heading: str, number: int = 0) -> list[list[str]]:
    """What is in backticks in the first column of a table below a heading, row by row."""
    part = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    tables = [block for block in part.split("\n\n") if block.strip().startswith("|")]
    return [re.findall(r"`([^`]+)`", line.split(" | ")[0]) for line in tables[number].strip().splitlines()[2:]]


def test_every_option_is_listed() -> None:
    listed = {re.split(r"[ \\]", name)[0] for row in table("Options") for name in row}
    bounded(command)
    known = {
        option
        for one in command.commands.values()
        for parameter in one.params
        if isinstance(parameter, click.Option) and not parameter.hidden
        for option in parameter.opts
    }
    assert listed == known


def test_every_command_is_listed() -> None:
    """With its arguments, as its usage shows them."""
    listed = [row[0].replace("\\|", "|") for row in table("Commands")]
    arguments = {
        name: [one.make_metavar(click.Context(held)) for one in held.params if isinstance(one, click.Argument)]
        for name, held in command.commands.items()
    }
    assert listed == [" ".join(["zerocfg smoke", name, *held]) for name, held in arguments.items()]


def test_every_kind_of_reduction_is_listed() -> None:
    """The gate's `allow-reduced` takes them. `launch` speaks of configs written by hand, which are not certified."""
    listed = {word for row in table("What is made smaller") for word in row if word.islower()}
    assert listed == {kind.value for kind in Kind} - {Kind.LAUNCH.value}


def test_every_way_to_share_a_card_is_listed() -> None:
    assert [row[0] for row in table("Several ranks on one card")] == list(MODES)
