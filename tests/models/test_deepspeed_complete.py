"""The models of the DeepSpeed JSON hold exactly the keys that the installed DeepSpeed reads."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("deepspeed")

import torch
from deepspeed.runtime import lr_schedules
from deepspeed.runtime.config import _REMOVED_TOP_LEVEL_CONFIG_KEYS, _REMOVED_ZERO_CONFIG_KEYS
from real_deepspeed import (
    DEEPSPEED,
    FULL,
    MINIMAL,
    STRICT,
    RealConfig,
    facts_of,
    loose_sections,
    names_of,
    removed_of,
)
from recording import RecordingDict

from tests import warm
from zerocfg.models.deepspeed import DeepSpeedConfig, features, optimizer, scheduler, zero

if TYPE_CHECKING:
    from zerocfg.models.base import Section

pytestmark = pytest.mark.libs

# Configs that between them make the parse look at every key.
VARIANTS: list[dict[str, Any]] = [MINIMAL, FULL, {**MINIMAL, "zero_optimization": True}]

# Keys that the parse hands on unread, and the file that reads them.
READ_LATER: dict[tuple[str, ...], dict[str, str]] = {
    ("data_efficiency", "data_sampling", "curriculum_learning"): {
        "data_cluster_path": "runtime/data_pipeline/data_sampling/data_sampler.py",
    },
    ("data_efficiency", "data_sampling", "dynamic_batching"): {
        "metrics_path": "runtime/data_pipeline/data_sampling/variable_batch_size_and_lr.py",
    },
    ("data_efficiency", "data_routing", "random_ltd"): dict.fromkeys(
        ("total_layer_num", "random_ltd_layer_num", "random_ltd_schedule", "layer_token_lr_schedule"),
        "runtime/data_pipeline/data_routing/scheduler.py",
    )
    | dict.fromkeys(
        ("model_mask_name", "model_type", "hidden_state_order"),
        "runtime/data_pipeline/data_routing/basic_layer.py",
    )
    | {"random_ltd_layer_id": "runtime/engine.py"},
}


@cache
def parsed_reads() -> dict[tuple[str, ...], set[str]]:
    """The keys that DeepSpeedConfig looks at, by path of the mapping, over all variants."""
    union: dict[tuple[str, ...], set[str]] = {}
    for variant in VARIANTS:
        config = RecordingDict(variant)
        RealConfig(config)
        for path, keys in config.seen.items():
            union.setdefault(path, set()).update(keys)
    return union


@cache
def initialize_reads() -> dict[str, set[str]]:
    """The same for deepspeed.initialize and the pipeline engine, run in a process of their own."""
    done = subprocess.run(
        [warm.python(), str(Path(__file__).with_name("initialize_reads.py"))],
        env={**os.environ, "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("READS ")]
    assert lines, done.stderr[-3000:]
    return {name: set(keys) for name, keys in json.loads(lines[-1][len("READS ") :]).items()}


def test_the_top_level_has_exactly_the_keys_that_are_read() -> None:
    assert names_of(DeepSpeedConfig) == parsed_reads()[()] | initialize_reads()["top"]


def test_the_removed_keys_are_the_refused_ones() -> None:
    assert removed_of(DeepSpeedConfig) == set(_REMOVED_TOP_LEVEL_CONFIG_KEYS)
    assert removed_of(zero.ZeroOptimization) == set(_REMOVED_ZERO_CONFIG_KEYS)


@pytest.mark.parametrize(
    ("path", "model"),
    [
        (path, model)
        for path, model in loose_sections()
        if path not in {(), ("optimizer", "params"), ("scheduler", "params"), ("pipeline",)}
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else None,
)
def test_a_loose_section_has_exactly_the_keys_that_are_read(path: tuple[str, ...], model: type[Section]) -> None:
    later = READ_LATER.get(path, {})
    read = parsed_reads()[path]
    assert not read & set(later), "the table of keys that are read later is out of date"
    assert names_of(model) == read | set(later)


def test_keys_that_are_read_later_are_read_by_the_named_file() -> None:
    from deepspeed.runtime.data_pipeline import constants

    words = {value: name for name, value in vars(constants).items() if isinstance(value, str)}
    words |= {"enabled": "", "random_ltd_schedule": "RANDOM_LTD_SCHEDULER"}
    for table in READ_LATER.values():
        for key, file in table.items():
            source = (DEEPSPEED / file).read_text(encoding="utf-8")
            assert f"[{words[key]}]" in source or f"\n                    {words[key]}]" in source, (
                key,
                file,
            )


def test_the_pipeline_section() -> None:
    from deepspeed.runtime.config import get_pipeline_config

    defaults = get_pipeline_config({})
    read = initialize_reads()["pipeline"]
    assert names_of(features.Pipeline) == set(defaults) | read
    inert = {name for name, field in features.Pipeline.model_fields.items() if "inert" in facts_of(field)}
    assert inert == set(defaults) - read
    for name, value in defaults.items():
        assert features.Pipeline.model_fields[name].default == value, name


@pytest.mark.parametrize("model", STRICT, ids=lambda model: model.__name__)
def test_a_strict_section_has_exactly_the_fields_of_the_real_one(model: type[Section]) -> None:
    real: set[str] = set()
    for name, field in STRICT[model].model_fields.items():
        real |= {name, field.alias or name}
    assert names_of(model) - removed_of(model) == real


@pytest.mark.parametrize("model", STRICT, ids=lambda model: model.__name__)
def test_a_strict_section_refuses_an_unknown_key(model: type[Section]) -> None:
    assert model.unknown == "error"
    with pytest.raises(ValueError, match="Extra inputs are not permitted"):
        STRICT[model](**{"no_such_key": 1})


def parameters(function: Any, *dropped: str) -> dict[str, Any]:
    return {
        name: parameter.default
        for name, parameter in inspect.signature(function.__init__).parameters.items()
        if name not in {"self", "params", "model_params", "optimizer", *dropped}
    }


def optimizer_parameters(kind: str) -> set[str]:
    from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
    from deepspeed.ops.lamb import FusedLamb
    from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion
    from deepspeed.runtime.engine import DeepSpeedEngine

    # Taken out of the parameters by the engine itself (get_optimizer_configuration).
    adam = {"torch_adam", "adam_w_mode", "fp32_optimizer_states", "foreach"}
    if kind == "muon":
        halves = set(DeepSpeedEngine._MUON_HALF_KEYS) | set(DeepSpeedEngine._ADAM_HALF_KEYS)
        return halves | adam | {"muon_lr", "adam_lr", "per_head_muon"}
    constructors = {
        "adam": (FusedAdam, DeepSpeedCPUAdam, torch.optim.Adam, torch.optim.AdamW),
        "adagrad": (DeepSpeedCPUAdagrad, torch.optim.Adagrad),
        "lamb": (FusedLamb,),
        "lion": (FusedLion, DeepSpeedCPULion),
    }[kind]
    found = set().union(*(parameters(constructor) for constructor in constructors))
    # The engine passes adamw_mode itself: writing it as well is an error. max_grad_norm is refused for all.
    return (found | adam if kind == "adam" else found) - {"adamw_mode", "max_grad_norm"}


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("adam", optimizer.AdamParams),
        ("adagrad", optimizer.AdagradParams),
        ("lamb", optimizer.LambParams),
        ("lion", optimizer.LionParams),
        ("muon", optimizer.MuonParams),
    ],
)
def test_optimizer_parameters(kind: str, model: type[Section]) -> None:
    assert names_of(model) - removed_of(model) == optimizer_parameters(kind)


def test_optimizer_variants_are_native_types() -> None:
    from deepspeed.runtime.config import DEEPSPEED_OPTIMIZERS

    external, of_torch = {"muadam", "muadamw", "musgd"}, {"sgd"}
    assert set(optimizer.Optimizer.variants["params"].cases) - of_torch == set(DEEPSPEED_OPTIMIZERS) - external
    sgd = inspect.signature(torch.optim.SGD).parameters
    stated = optimizer.SgdParams.model_fields
    assert {name: stated[name].default for name in ("lr", "weight_decay")} == {
        name: sgd[name].default for name in ("lr", "weight_decay")
    }


@pytest.mark.parametrize("kind", lr_schedules.VALID_LR_SCHEDULES)
def test_scheduler_parameters(kind: str) -> None:
    model = scheduler.Scheduler.variants["params"].cases[kind]
    real = parameters(getattr(lr_schedules, kind))
    assert set(model.model_fields) == set(real)
    for name, default in real.items():
        field = model.model_fields[name]
        assert field.is_required() == (default is inspect.Parameter.empty), name
        if not field.is_required():
            assert field.default == default, name


def test_scheduler_variants_are_native_types() -> None:
    assert set(scheduler.Scheduler.variants["params"].cases) == set(lr_schedules.VALID_LR_SCHEDULES)
