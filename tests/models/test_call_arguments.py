"""The arguments of accelerate's classes that calls in scripts are held against are those of the installed release."""

from __future__ import annotations

import inspect

import pytest

from zerocfg.rules.calls import ACCELERATE

pytestmark = pytest.mark.libs
accelerate = pytest.importorskip("accelerate")
utils = pytest.importorskip("accelerate.utils")


@pytest.mark.parametrize("name", sorted(ACCELERATE))
def test_arguments(name: str) -> None:
    last = name.rpartition(".")[2]
    found = getattr(accelerate, last, None) or getattr(utils, last)
    assert set(inspect.signature(found).parameters) == ACCELERATE[name]
