"""The keywords that calls in scripts are held against are those of the installed releases."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import pytest

from zerocfg.catalog.history import signatures
from zerocfg.catalog.signatures import LIBRARIES, parameters
from zerocfg.rules.calls import ACCELERATE

pytestmark = pytest.mark.libs
accelerate = pytest.importorskip("accelerate")
utils = pytest.importorskip("accelerate.utils")

TODAY = sorted(
    (library, name)
    for library in LIBRARIES
    for name in signatures(library).raw
    if "." not in name and signatures(library).today(name) is not None
)


@pytest.mark.parametrize("name", sorted(ACCELERATE))
def test_arguments(name: str) -> None:
    last = name.rpartition(".")[2]
    found = getattr(accelerate, last, None) or getattr(utils, last)
    assert set(inspect.signature(found).parameters) == ACCELERATE[name]


@pytest.mark.parametrize(("library", "name"), TODAY)
def test_signatures(library: str, name: str) -> None:
    found = inspect.signature(getattr(pytest.importorskip(library), name)).parameters.values()
    assert signatures(library).today(name) == {}
    assert not any(one.kind is one.VAR_KEYWORD for one in found)
    assert {one.name for one in found} == parameters(library, name)


def test_every_trainer_is_known() -> None:
    trl = pytest.importorskip("trl")
    assert {name for library, name in TODAY if library == "trl"} == {one for one in dir(trl) if one.endswith("Trainer")}


@pytest.mark.parametrize(
    ("library", "name", "keywords"),
    [
        ("accelerate", "Accelerator", {"dispatch_batches": True}),
        ("accelerate", "Accelerator", {"even_batches": True}),
        ("transformers", "Trainer", {"model": None, "tokenizer": None}),
        ("trl", "SFTTrainer", {"model": "m", "max_seq_length": 2048}),
        ("trl", "SFTTrainer", {"model": "m", "tokenizer": None}),
        ("trl", "GRPOTrainer", {"model": "m", "reward_funcs": len, "tokenizer": None}),
    ],
)
def test_the_library_refuses(library: str, name: str, keywords: dict[str, Any]) -> None:
    wrong = list(keywords)[-1]
    with pytest.raises(TypeError, match=rf"unexpected keyword argument '{wrong}'"):
        getattr(import_module(library), name)(**keywords)
