"""docs/smoke.md says what the smoke-run does: every option, every word of a reduction, every way to share a card."""

from __future__ import annotations

import re

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
    known = {option for parameter in bounded(command).params for option in parameter.opts if option.startswith("--")}
    assert listed == known


def test_every_kind_of_reduction_is_listed() -> None:
    """The gate's `allow-reduced` takes them. `launch` speaks of configs written by hand, which are not certified."""
    listed = {word for row in table("What is made smaller") for word in row if word.islower()}
    assert listed == {kind.value for kind in Kind} - {Kind.LAUNCH.value}


def test_every_way_to_share_a_card_is_listed() -> None:
    assert [row[0] for row in table("Several ranks on one card")] == list(MODES)
