"""The terms of DDP, FSDP and adapters against what real ranks held when they were recorded; the same checks as of ranks
that run now (``test_sharding_real.py``, ``test_adapters_real.py``)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.memory import test_adapters_real as adapters
from tests.memory import test_sharding_real as sharding


@cache
def recorded(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(path.read_text())["cases"]
    return found


def test_every_case_is_recorded() -> None:
    assert list(recorded(sharding.RECORD)) == list(sharding.CASES)
    assert list(recorded(adapters.RECORD)) == list(adapters.CASES)


@pytest.mark.parametrize("name", sharding.CASES)
def test_a_rank_holds_what_was_measured(name: str) -> None:
    sharding.holds(name, recorded(sharding.RECORD)[name])


@pytest.mark.parametrize("name", adapters.CASES)
def test_a_rank_with_adapters_holds_what_was_measured(name: str) -> None:
    adapters.holds(name, recorded(adapters.RECORD)[name])


@pytest.mark.parametrize("name", [name for name in adapters.CASES if name != "fsdp2"])
def test_units_of_adapters_and_what_is_sent(name: str) -> None:
    adapters.wraps(name, recorded(adapters.RECORD)[name])
    adapters.sends(name, recorded(adapters.RECORD)[name])
