"""The compiled schemas are valid, regular, take real configs and underline typos."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from zerocfg.catalog.alternatives import alternatives, own_keys
from zerocfg.models.schema import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterator

ZERO3 = {
    "bf16": {"enabled": "auto"},
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "offload_param": {"device": "none"},
        "overlap_comm": True,
        "contiguous_gradients": True,
        "sub_group_size": 1e9,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
        "stage3_max_live_parameters": 1e9,
        "stage3_max_reuse_distance": 1e9,
        "stage3_gather_16bit_weights_on_model_save": "auto",
    },
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "steps_per_print": 2000,
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "wall_clock_breakdown": False,
}
ZERO2 = {
    "$schema": "https://example.org/deepspeed.json",
    "_comment": "for a node of eight",
    "fp16": {
        "enabled": True,
        "loss_scale": 0,
        "loss_scale_window": 1000,
        "hysteresis": 2,
        "min_loss_scale": 1,
    },
    "optimizer": {
        "type": "AdamW",
        "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto", "torch_adam": True},
    },
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {
            "warmup_min_lr": "auto",
            "warmup_max_lr": "auto",
            "warmup_num_steps": "auto",
            "total_num_steps": "auto",
        },
    },
    "zero_optimization": {"stage": 2, "allgather_bucket_size": 2e8, "overlap_comm": None},
    "train_micro_batch_size_per_gpu": 4,
    "communication_data_type": None,
}
OWN_LOOP = {
    "train_batch_size": 64,
    "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9, "nesterov": True}},
    "bfloat16": {"enabled": True},
    "zero_optimization": {
        "stage": 3,
        "prefetch_bucket_size": 50_000_000,
        "offload_optimizer": {
            "device": "nvme",
            "nvme_path": "/nvme",
            "buffer_count": 5,
            "pipeline_read": True,
        },
        "zenflow": None,
    },
    "aio": {"block_size": 1048576, "queue_depth": 16},
    "tensorboard": {"enabled": True, "output_path": "logs", "job_name": "run"},
    "flops_profiler": {"enabled": True, "output_file": None},
    "activation_checkpointing": {"partition_activations": True, "number_checkpoints": None},
    "checkpoint": {"tag_validation": "Warn", "writer": None},
    "timers": {"throughput": {"enabled": False}},
    "data_types": {"grad_accum_dtype": "fp32"},
}
MINIMAL: dict[str, Any] = {}
OLD = {"zero_optimization": True, "allgather_size": 5e8}


@pytest.fixture(scope="module")
def deepspeed() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(SCHEMAS["deepspeed"]())


@pytest.mark.parametrize("name", SCHEMAS)
def test_it_is_a_valid_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name]())


@pytest.mark.parametrize("config", [ZERO3, ZERO2, OWN_LOOP, MINIMAL, OLD])
def test_typical_configs_are_taken(deepspeed: jsonschema.Draft202012Validator, config: dict[str, Any]) -> None:
    assert [error.message for error in deepspeed.iter_errors(config)] == []


@pytest.mark.parametrize(
    "config",
    [
        {"zero_optimisation": {"stage": 3}},
        {"zero_optimization": {"stage3": True}},
        {"zero_optimization": {"allreduce_bucket_size": 5}},
        {"zero_optimization": {"offload_optimizer": {"max_in_cpu": 1}}},
        {"zero_optimization": {"offload_param": {"devices": "cpu"}}},
        {"bf16": {"loss_scale": 0}},
        {"fp16": {"opt_level": "O2"}},
        {"aio": {"thread_count": 2}},
        {"optimizer": {"type": "AdamW", "parms": {}}},
        {"optimizer": {"params": {"max_grad_norm": 1.0}}},
        {"wandb": {"entity": "team"}},
        {"amp": {"enabled": False}},
        {"zero_optimization": {"mics_shard_size": 8}},
    ],
)
def test_typos_and_removed_keys_are_refused(deepspeed: jsonschema.Draft202012Validator, config: dict[str, Any]) -> None:
    assert not deepspeed.is_valid(config)


@pytest.mark.parametrize(
    "config",
    [
        {"train_batch_size": 0},
        {"train_batch_size": "8"},
        {"zero_optimization": {"stage": 4}},
        {"zero_optimization": {"overlap_comm": "auto"}},
        {"zero_optimization": {"reduce_bucket_size": 0}},
        {"zero_optimization": {"reduce_bucket_size": 15099494.4}},
        {"zero_optimization": {"offload_optimizer": {"device": "gpu"}}},
        {"zero_optimization": {"offload_optimizer": {"ratio": 1.5}}},
        {"fp16": None},
        {"gradient_clipping": None},
        {"compile": {"passes": ["z2"]}},
    ],
)
def test_values_out_of_range_are_refused(deepspeed: jsonschema.Draft202012Validator, config: dict[str, Any]) -> None:
    assert not deepspeed.is_valid(config)


def sections(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    yield from schema["$defs"].values()


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_part_is_regular(name: str) -> None:
    """What the catalog of the lint road relies on."""
    schema = SCHEMAS[name]()
    assert schema["type"] == "object"
    for section in sections(schema):
        assert section["x-zerocfg"]["unknown"] in ("error", "ignored", "passed")
        assert section["x-zerocfg"]["null"] in ("absent", "error", "falsy")
        for key, prop in section["properties"].items():
            assert prop["description"] or prop.get("x-zerocfg"), key
            if "not" in prop:
                assert prop["x-zerocfg"]["removed"]
                continue
            for branch in alternatives(prop):
                if "$ref" in branch:
                    assert branch["$ref"].removeprefix("#/$defs/") in schema["$defs"]
                elif "enum" not in branch and "const" not in branch:
                    assert branch.get("type", "any") in (
                        "any", "integer", "number", "boolean", "string", "array", "object", "null",
                    )  # fmt: skip


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_default_is_taken(name: str) -> None:
    schema = SCHEMAS[name]()
    for section in sections(schema):
        for prop in section["properties"].values():
            if "default" in prop:
                alone = {**prop, "$defs": schema["$defs"]}
                jsonschema.Draft202012Validator(alone).validate(prop["default"])


def test_sizes_say_what_they_count() -> None:
    """A bucket size is elements; block and buffer sizes of I/O are bytes."""
    schema = SCHEMAS["deepspeed"]()
    zero = own_keys(schema["$defs"]["ZeroOptimization"]["properties"])
    counts = [name for name, prop in zero.items() if prop.get("type") != "boolean"]
    elements = [name for name in counts if name.endswith(("_size", "_threshold", "_parameters", "_distance"))]
    assert len(elements) > 8
    for name in elements:
        if "removed" not in zero[name]["x-zerocfg"]:
            expected = "ranks" if name == "zero_hpz_partition_size" else "elements"
            assert zero[name]["x-zerocfg"]["unit"] == expected, name
            assert expected in zero[name]["description"]
    assert schema["$defs"]["OffloadParam"]["properties"]["buffer_size"]["x-zerocfg"]["unit"] == "elements"
    for section, key in (("Aio", "block_size"), ("CheckpointWriter", "io_buffer_size")):
        assert schema["$defs"][section]["properties"][key]["x-zerocfg"]["unit"] == "bytes"


def test_variants_name_sections_that_exist() -> None:
    schema = SCHEMAS["deepspeed"]()
    for owner in ("Optimizer", "Scheduler"):
        variants = schema["$defs"][owner]["properties"]["params"]["x-zerocfg"]["variants"]
        assert variants["key"] in schema["$defs"][owner]["properties"]
        for reference in variants["cases"].values():
            assert reference.removeprefix("#/$defs/") in schema["$defs"]


def test_the_text_is_plain_json() -> None:
    for name in SCHEMAS:
        json.dumps(SCHEMAS[name](), allow_nan=False)
