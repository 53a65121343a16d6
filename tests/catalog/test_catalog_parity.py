"""The catalog judges keys and values of DeepSpeed's typed sections as the real pydantic sections do."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerocfg.catalog.check import check
from zerocfg.catalog.schema import load_schema
from zerocfg.source.json_reader import read_json
from zerocfg.source.node import Entry, Mapping, Node, Scalar, Sequence
from zerocfg.source.text import Span

pytestmark = pytest.mark.libs

NOWHERE = Span(0, 0)
REFUSING = {"unknown-crash", "type", "range", "choice", "null", "section-type", "removed"}

SECTIONS: dict[str, tuple[str, str]] = {
    "zero_optimization": ("deepspeed.runtime.zero.config", "DeepSpeedZeroConfig"),
    "zero_optimization.offload_param": ("deepspeed.runtime.zero.offload_config", "DeepSpeedZeroOffloadParamConfig"),
    "zero_optimization.offload_optimizer": (
        "deepspeed.runtime.zero.offload_config",
        "DeepSpeedZeroOffloadOptimizerConfig",
    ),
    "fp16": ("deepspeed.runtime.precision_config", "DeepSpeedFP16Config"),
    "bf16": ("deepspeed.runtime.precision_config", "DeepSpeedBF16Config"),
    "comms_logger": ("deepspeed.comm.config", "CommsLoggerConfig"),
    "tensorboard": ("deepspeed.monitor.config", "TensorBoardConfig"),
}

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.5, 1.0, 5e8, 1e30, 2.0, -1.0]),
    st.sampled_from(
        ["1", "5e8", "500_000", "true", "False", "yes", "off", "2", "", "cpu", "CPU", "nvme", "none", "auto", "AUTO"]
    ),
    st.text(max_size=6),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.sampled_from(["device", "x"]), st.sampled_from(["cpu", 1]), max_size=1),
)


def _node(value: Any) -> Node:
    if isinstance(value, dict):
        return Mapping(NOWHERE, [Entry(key, NOWHERE, _node(item)) for key, item in value.items()])
    if isinstance(value, list):
        return Sequence(NOWHERE, [_node(item) for item in value])
    return Scalar(value, NOWHERE, str(value))


def _keys(section: str) -> list[str]:
    key = load_schema("deepspeed").find(tuple(section.split(".")))
    assert key is not None
    found = key.section(load_schema("deepspeed"))
    assert found is not None
    return [*found.names, "typo"]


def _real(section: str, values: dict[str, Any]) -> str | None:
    """The real section's refusal of a value, or None. "auto" is dropped by the constructor, as in the library."""
    from importlib import import_module

    from deepspeed.runtime.zero.config import get_zero_config

    module, name = SECTIONS[section]
    try:
        if section == "zero_optimization":
            get_zero_config({"zero_optimization": values})
        else:
            getattr(import_module(module), name)(**values)
        return None
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("section", SECTIONS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_same_verdict_as_the_library(section: str, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(_keys(section)))
    value = data.draw(VALUES)
    tree: Any = {key: value}
    for part in reversed(section.split(".")):
        tree = {part: tree}
    issues = [issue for issue in check(_node(tree), load_schema("deepspeed")) if issue.kind in REFUSING]
    # A section inside this one is a test of its own; a bool with fp16.loss_scale is refused by a validator.
    refusal = _real(section, {key: value})
    if isinstance(value, float) and math.isnan(value) and refusal is not None and not issues:
        pytest.fail(f"{section}.{key}: nan is refused: {refusal}")
    assert (refusal is not None) == bool(issues), (section, key, value, refusal, issues)


def test_optimizer_parameters_by_type() -> None:
    from zerocfg.source.text import SourceText

    text = '{"optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "max_grad_norm": 1, "weight_deacy": 0.1}}}'
    document = read_json(SourceText("ds.json", text))
    found = {issue.path[-1]: issue for issue in check(document.root, load_schema("deepspeed"))}
    assert set(found) == {"max_grad_norm", "weight_deacy"}
    assert found["weight_deacy"].suggestion == "weight_decay"
