"""The record of what the libraries did is what they do."""

from __future__ import annotations

import pytest

from tests.parity.record import ENGINES, LAUNCHES, differences, engines, launches

pytestmark = pytest.mark.libs


def test_launches() -> None:
    assert differences(LAUNCHES, launches()) == []


def test_engines() -> None:
    assert differences(ENGINES, engines()) == []
