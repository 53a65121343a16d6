"""What a run amounts to is what the real libraries made of the same files. They are not started here: what they did is
kept in tests/parity/recorded, which the tests marked libs hold against them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.parity.record import ENGINES, LAUNCHES, TRIPLES, read
from tests.parity.test_effective import SAYS, differs, environment_differs, predicted_of
from tests.parity.verdicts import Real, accelerate_run, deepspeed_run, values_differ

PARTS = 15
"""Tests, each of every fifteenth row."""


def rows(name: str, part: int) -> list[dict[str, Any]]:
    return read(name)[part::PARTS]


@pytest.mark.parametrize("part", range(PARTS))
def test_from_launch_to_engine(part: int) -> None:
    for row in rows(TRIPLES, part):
        assert differs(predicted_of(row["case"]), row["case"], row["real"]) == [], row["case"]


@pytest.mark.parametrize("part", range(PARTS))
def test_what_the_launcher_exports(part: int) -> None:
    for row in rows(LAUNCHES, part):
        effective = accelerate_run(row["text"]).effective
        failures = [failure for failure in effective.failures if failure.phase == "launch"]
        if row["error"] is not None:
            assert failures and re.search(SAYS[failures[0].kind], row["error"]), row
            continue
        assert not failures, row
        world = row["values"].pop("world")
        wrong = environment_differs(effective, {"environment": row["values"], "world": world})
        # where the counts are no plain numbers it is not told how many processes there are
        assert [one for one in wrong if "world: predicted UNKNOWN" not in one] == [], row["text"]


@pytest.mark.parametrize("part", range(PARTS))
def test_what_the_engine_parses(part: int) -> None:
    for row in rows(ENGINES, part):
        run = deepspeed_run(row["text"], row["world"])
        if row["error"] is None:
            assert run.effective.failures == (), row["text"]
            assert values_differ(run, Real(values=row["values"])) == [], row["text"]
