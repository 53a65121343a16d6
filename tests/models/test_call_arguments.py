"""The arguments of accelerate's classes that calls in scripts are held against are those of the installed release."""

from __future__ import annotations

import inspect

import pytest

accelerate = pytest.importorskip("accelerate")

import accelerate.utils

from zerocfg.rules.calls import ACCELERATE

pytestmark = pytest.mark.libs


@pytest.mark.parametrize("name", sorted(ACCELERATE))
def test_arguments(name: str) -> None:
    last = name.rpartition(".")[2]
    found = getattr(accelerate, last, None) or getattr(accelerate.utils, last)
    assert set(inspect.signature(found).parameters) == ACCELERATE[name]
