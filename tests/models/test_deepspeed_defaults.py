"""Defaults, bounds, kinds of value and deprecations of the models, against the installed DeepSpeed."""

from __future__ import annotations

import enum
import typing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from annotated_types import Ge, Gt, Le, Lt

pytest.importorskip("deepspeed")

import torch
from pydantic import BaseModel
from real_deepspeed import FULL, MINIMAL, SCHEMA, STRICT, RealConfig, facts_of, loose_sections, section_of

from zerocfg.catalog.alternatives import alternatives
from zerocfg.models.deepspeed import DeepSpeedConfig

if TYPE_CHECKING:
    from zerocfg.models.base import Section

pytestmark = pytest.mark.libs

# Section and key -> the default of ours that differs, and why.
OTHER_DEFAULTS: dict[tuple[str, str], Any] = {
    ("TensorParallel", "dtype"): None,  # torch.float16: an object that JSON cannot hold
}
# Section and key -> our bounds, where a validator instead of the field states them.
OTHER_BOUNDS: dict[tuple[str, str], dict[str, float]] = {
    ("Fp16", "loss_scale"): {"minimum": 0},
    ("ZenFlow", "update_interval"): {"exclusiveMinimum": 0},
}
# Section and key -> our kinds of value, where a validator instead of the field states them.
OTHER_KINDS: dict[tuple[str, str], set[Any]] = {
    ("ZenFlow", "select_strategy"): {("auto", "step", "epoch")},  # str, checked afterwards
    ("ZenFlow", "select_interval"): {"integer"},  # str or int; the only string is "auto"
    ("ZenFlow", "update_interval"): {"integer"},  # the same
    ("ZeroOptimization", "leaf_module"): {"section", "null"},  # null becomes an empty section
    ("LeafModule", "classes"): {"array", "string"},  # a string becomes a list of one
    ("LeafModule", "names"): {"array", "string"},
    ("LeafModule", "name_suffixes"): {"array", "string"},
}


def real_fields() -> list[Any]:
    return [
        pytest.param(model, name, field, id=f"{model.__name__}.{name}")
        for model, real in STRICT.items()
        for name, field in real.model_fields.items()
    ]


def ours(model: type[Section], name: str) -> tuple[str, Any]:
    """Our key that has this spelling."""
    for own, field in model.model_fields.items():
        if name == own or name in facts_of(field).get("aliases", ()):
            return own, field
    raise AssertionError(name)


def branches_of(model: type[Section], name: str) -> list[dict[str, Any]]:
    prop = SCHEMA["$defs"][model.__name__]["properties"][name]
    return [branch for branch in alternatives(prop) if branch.get("const") != "auto"]


@pytest.mark.parametrize(("model", "name", "real"), real_fields())
def test_defaults(model: type[Section], name: str, real: Any) -> None:
    own, field = ours(model, name)
    default = real.get_default(call_default_factory=True)
    if isinstance(default, enum.Enum):
        default = default.value
    child = section_of(field.annotation)
    if child is not None and default is not None:
        assert default == {} or type(default) is STRICT[child]
        assert field.default_factory is child
        return
    expected = OTHER_DEFAULTS.get((model.__name__, own), default)
    mine = field.get_default(call_default_factory=True)
    assert mine == expected and type(mine) in (type(expected), int, float)


@pytest.mark.parametrize(("model", "name", "real"), real_fields())
def test_bounds(model: type[Section], name: str, real: Any) -> None:
    own, _ = ours(model, name)
    words = {
        Ge: ("ge", "minimum"),
        Gt: ("gt", "exclusiveMinimum"),
        Le: ("le", "maximum"),
        Lt: ("lt", "exclusiveMaximum"),
    }
    expected = {words[type(item)][1]: getattr(item, words[type(item)][0]) for item in real.metadata}
    expected = OTHER_BOUNDS.get((model.__name__, own), expected)
    found = {word: branch[word] for branch in branches_of(model, own) for _, word in words.values() if word in branch}
    assert found == expected


def kinds_of(annotation: Any) -> set[Any]:
    """The kinds of value that a real field takes, in the words of JSON Schema; choices as a tuple."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Union:
        return set().union(*map(kinds_of, arguments))
    if origin is typing.Literal:
        return {arguments}
    if annotation in (object, torch.dtype):
        return {"any"}
    kind = origin or annotation
    for base, word in (
        (bool, "boolean"),
        (enum.Enum, None),
        (int, "integer"),
        (float, "number"),
        ((str, Path), "string"),
        (dict, "object"),
        ((list, tuple), "array"),
        (type(None), "null"),
        (BaseModel, "section"),
    ):
        if issubclass(kind, base):
            return {word} if word else {tuple(dict.fromkeys(member.value for member in kind))}
    raise AssertionError(annotation)


@pytest.mark.parametrize(("model", "name", "real"), real_fields())
def test_kinds_of_value(model: type[Section], name: str, real: Any) -> None:
    own, _ = ours(model, name)
    found = {
        tuple(branch["enum"]) if "enum" in branch else "section" if "$ref" in branch else branch.get("type", "any")
        for branch in branches_of(model, own)
    }
    expected = OTHER_KINDS.get((model.__name__, own), kinds_of(real.annotation))
    assert {frozenset(kind) if isinstance(kind, tuple) else kind for kind in found} == {
        frozenset(kind) if isinstance(kind, tuple) else kind for kind in expected
    }


@pytest.mark.parametrize(("model", "name", "real"), real_fields())
def test_deprecated_fields(model: type[Section], name: str, real: Any) -> None:
    _, field = ours(model, name)
    assert bool((real.json_schema_extra or {}).get("deprecated")) == ("deprecated" in facts_of(field))


def value_of(real: Any, path: tuple[str, ...]) -> Any:
    """The value that a parsed config holds for a key of a loose section."""
    places: dict[tuple[str, ...], Any] = {
        (): real,
        ("activation_checkpointing",): real.activation_checkpointing_config,
        ("aio",): real.aio_config,
        ("flops_profiler",): real.flops_profiler_config,
        ("autotuning",): real.autotuning_config,
        ("autotuning", "model_info"): real.autotuning_config.model_info,
        ("expert_parallel",): real.expert_parallel_config,
        ("checkpoint",): real.checkpoint_config,
        ("checkpoint", "writer"): real.checkpoint_config["writer"],
        ("data_efficiency",): real.data_efficiency_config,
        ("data_efficiency", "data_sampling"): real.data_efficiency_config["data_sampling"],
        ("data_efficiency", "data_sampling", "dynamic_batching"): real.data_efficiency_config["data_sampling"][
            "dynamic_batching"
        ],
        ("data_efficiency", "data_routing"): real.data_efficiency_config["data_routing"],
        ("data_types",): real,
        ("torch_autocast",): real,
    }
    attribute = {
        ("checkpoint", "load_universal"): "load_universal_checkpoint",
        ("checkpoint", "use_node_local_storage"): "use_node_local_storage",
        ("torch_autocast", "enabled"): "torch_autocast_enabled",
        ("torch_autocast", "dtype"): "torch_autocast_dtype",
        ("torch_autocast", "lower_precision_safe_modules"): "torch_autocast_lower_precision_safe_modules",
        ("use_data_before_expert_parallelism",): "use_data_before_expert_parallel_",
    }.get(path)
    if attribute:
        return getattr(real, attribute)
    place = places[path[:-1]]
    return place[path[-1]] if isinstance(place, dict) else getattr(place, path[-1])


# The parse keeps no value of these, or one that was worked out from others.
NO_PARSED_DEFAULT = {
    ("train_batch_size",): "worked out",
    ("gradient_accumulation_steps",): "worked out",
    ("train_micro_batch_size_per_gpu",): "given",
    ("vocabulary_size",): "only checked",
    ("sequence_parallel_size",): "read by deepspeed.initialize",
    ("data_parallel_size",): "read by deepspeed.initialize",
    ("allgather_size",): "another test",
    ("datastates_ckpt",): "another test",
    ("data_efficiency", "data_sampling", "dynamic_batching", "max_tokens"): "required",
    ("data_efficiency", "data_sampling", "dynamic_batching", "metrics_path"): "required later",
    ("expert_parallel", "expert_w3"): "a sentinel object",
}


def loose_scalars() -> list[Any]:
    skipped = {("optimizer",), ("scheduler",), ("pipeline",), ("timers",), ("checkpoint", "parallel_write")}
    return [
        pytest.param((*path, name), field, id=".".join((*path, name)))
        for path, model in loose_sections()
        if path not in skipped and model.unknown != "passed"
        for name, field in model.model_fields.items()
        if section_of(field.annotation) is None
        and "removed" not in facts_of(field)
        and (*path, name) not in NO_PARSED_DEFAULT
    ]


@cache
def parsed_empty() -> Any:
    """A parse in which every loose section is there and empty."""
    empty = {**FULL, "torch_autocast": {}}
    empty["data_efficiency"] = {"data_sampling": {"dynamic_batching": {}}}
    return RealConfig(empty)


@pytest.mark.parametrize(("path", "field"), loose_scalars())
def test_defaults_of_loose_sections(path: tuple[str, ...], field: Any) -> None:
    value = value_of(parsed_empty(), path)
    if path[-1].endswith("communication_data_type"):
        value = {None: None, torch.float32: "fp32"}[value]
    mine = field.get_default(call_default_factory=True)
    if facts_of(field).get("ignore_case") and isinstance(value, str):
        value, mine = value.lower(), mine.lower()
    assert mine == value
    assert isinstance(mine, bool) == isinstance(value, bool)


def test_the_default_of_the_old_bucket_size() -> None:
    real = RealConfig({**MINIMAL, "zero_optimization": True})
    assert real.zero_config.stage == 1
    assert real.zero_config.allgather_bucket_size == DeepSpeedConfig.model_fields["allgather_size"].default
    assert RealConfig({**MINIMAL, "zero_optimization": False}).zero_config.stage == 0


@pytest.mark.parametrize(("value", "enabled"), [(False, False), (None, True), ({}, True), ({"enabled": False}, True)])
def test_datastates_is_enabled_by_all_but_false(value: Any, enabled: bool) -> None:
    assert RealConfig({**MINIMAL, "datastates_ckpt": value}).datastates_config.enabled is enabled
