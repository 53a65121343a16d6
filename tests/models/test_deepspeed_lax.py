"""Values in the strict sections: the table and the typed models against the installed DeepSpeed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("deepspeed")

from lax_values import BOOLS, FLOATS, INTEGERS, LAX
from pydantic import ValidationError
from real_deepspeed import STRICT, parses, removed_of

if TYPE_CHECKING:
    from zerocfg.models.base import Section

pytestmark = pytest.mark.libs


@pytest.mark.parametrize(
    ("section", "key", "value", "taken"),
    LAX,
    ids=[f"{section}.{key}={value!r}" for section, key, value, _ in LAX],
)
def test_the_table_is_what_the_library_does(section: str, key: str, value: Any, taken: bool) -> None:
    config: dict[str, Any] = {}
    place = config
    for part in section.split("."):
        place = place.setdefault(part, {})
    place[key] = value
    assert parses(config) is taken


POOL = [value for value, _ in (*INTEGERS, *BOOLS, *FLOATS)] + ["none", "cpu", -1, ["a"], [1], {"a": 1}, "a"]

# What a section needs beside a key, so that its other rules do not speak.
BESIDE: dict[tuple[str, str], dict[str, Any]] = {("ZeroOptimization", "compute_grad_norm"): {"stage": 1}}

# Values that a validator of the library refuses and the model does not: the key and what it refuses.
NARROWER: dict[tuple[str, str], tuple[Any, ...]] = {
    ("Fp16", "loss_scale_window"): ("5.0",),
    ("Fp16", "min_loss_scale"): ("5.0",),
}
OBJECTS = {("TensorParallel", "dtype")}  # takes a torch.dtype: nothing that a file can hold


def takes(model: Any, values: dict[str, Any]) -> bool:
    try:
        model(**values)
    except (ValidationError, TypeError):
        return False
    return True


@pytest.mark.parametrize("model", STRICT, ids=lambda model: model.__name__)
def test_the_models_take_what_the_library_takes(model: type[Section]) -> None:
    real = STRICT[model]
    wrong = []
    for name in set(model.model_fields) - removed_of(model):
        for value in POOL:
            place = (model.__name__, name)
            if place in OBJECTS:
                continue
            values = {**BESIDE.get(place, {}), name: value}
            if any(value == narrow and type(value) is type(narrow) for narrow in NARROWER.get(place, ())):
                assert takes(model, values) and not takes(real, values), (name, value)
                continue
            if takes(model, values) is not takes(real, values):
                wrong.append((name, value, "taken by the library" if takes(real, values) else "refused"))
    assert wrong == []
