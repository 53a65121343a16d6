"""Deterministic launches, ordinary and nasty, for the comparison with the real libraries."""

from __future__ import annotations

import json
import os
import random
from typing import Any

SEED = int(os.environ.get("ZEROCFG_PARITY_SEED", "20260"))

Case = dict[str, Any]


def cases(count: int) -> list[Case]:
    """``count`` different (accelerate YAML, DeepSpeed JSON, TrainingArguments) triples, always the same ones."""
    chance = random.Random(SEED)
    found: list[Case] = []
    seen: set[str] = set()
    while len(found) < count:
        case = _case(chance)
        text = json.dumps(case, sort_keys=True)
        if text not in seen:
            seen.add(text)
            found.append(case)
    return found


def _case(chance: random.Random) -> Case:
    kind = chance.choices(("yaml", "yaml+json", "trainer", "raw", "raw+json", "launch"), (5, 5, 6, 3, 3, 5))[0]
    if kind == "launch":
        return _case_of(_any_yaml(chance), None, _flags(chance), {}, None, None)
    consumer = "accelerate" if kind.startswith("raw") else "transformers"
    arguments = _arguments(chance) if consumer == "transformers" else {}
    if kind == "trainer":
        yaml = _plain_yaml(chance) if chance.random() < 0.7 else None
        return _case_of(yaml, _deepspeed(chance, arguments, consumer), [], arguments, consumer, "trainer")
    with_file = kind.endswith("json")
    section: dict[str, Any] = {"deepspeed_config_file": "ds.json"} if with_file else {}
    _plugin_fields(chance, section, 0.06 if with_file else 0.45)
    yaml_lines = _deepspeed_yaml(chance, section, with_file)
    config = _deepspeed(chance, arguments, consumer) if with_file else None
    return _case_of(yaml_lines, config, [], arguments, consumer, "accelerate" if with_file else None)


def _case_of(yaml: str | None, config: Any, flags: list[str], arguments: Any, consumer: Any, route: Any) -> Case:
    text = None if config is None else json.dumps(config)
    flags = ["--config_file", "acc.yaml", *flags] if yaml is not None else []
    return {
        "yaml": yaml,
        "json": text,
        "flags": flags,
        "arguments": arguments,
        "consumer": consumer,
        "route": route,
    }


def _maybe(chance: random.Random, data: dict[str, Any], share: float, **choices: list[Any]) -> None:
    for name, values in choices.items():
        if chance.random() < share:
            data[name] = chance.choice(values)


def _plugin_fields(chance: random.Random, section: dict[str, Any], share: float) -> None:
    _maybe(
        chance,
        section,
        share,
        zero_stage=["0", "1", "2", "3", "3", "'3'", "auto", "3.0"],
        gradient_accumulation_steps=["1", "1", "2", "4", "auto", "'2'", "2.0"],
        gradient_clipping=["1.0", "1.0", "0.5", "0", "auto", "1"],
        offload_optimizer_device=["none", "cpu", "CPU", "nvme", "null"],
        offload_param_device=["none", "cpu", "nvme"],
        zero3_init_flag=["true", "false", "'true'", "yes", "maybe"],
        zero3_save_16bit_model=["true", "false", "'yes'", "'True'"],
    )
    _maybe(
        chance,
        section,
        0.08,
        offload_optimizer_nvme_path=["/scratch"],
        reduce_bucket_size=["5e8"],
        overlap_comm=["true"],
        deepspeed_multinode_launcher=["standard"],
        num_processes=["4"],
        mixed_precision=["bf16"],
        debug=["true"],
        deepspeed_moe_layer_cls_names=["LlamaMLP", "LlamaMLP,LlamaAttention"],
    )


def _deepspeed_yaml(chance: random.Random, section: dict[str, Any], with_file: bool) -> str:
    top: dict[str, Any] = {
        "distributed_type": "DEEPSPEED",
        "num_processes": chance.choice(["1", "2", "2", "8", "'2'"]),
    }
    _maybe(chance, top, 0.1 if with_file else 0.6, mixed_precision=["bf16", "bf16", "fp16", "'no'", "BF16"])
    _maybe(
        chance,
        top,
        0.15,
        same_network=["true"],
        use_cpu=["false"],
        machine_rank=["0"],
        num_machines=["1", "2"],
    )
    if top.get("num_machines") == "2":
        if top["num_processes"] == "1":  # not one process a machine: nothing would run
            top["num_processes"] = "2"
        section.setdefault("deepspeed_multinode_launcher", "standard")
        top |= {"main_process_ip": "10.0.0.1", "main_process_port": "29512"}
    return _write(top, {"deepspeed_config": section})


def _plain_yaml(chance: random.Random) -> str:
    kind = chance.choice(["MULTI_GPU", "DEEPSPEED", "DEEPSPEED", "'NO'"])
    top: dict[str, Any] = {
        "distributed_type": kind,
        "num_processes": "1" if kind == "'NO'" else chance.choice("248"),
    }
    _maybe(chance, top, 0.35, mixed_precision=["bf16", "fp16", "'no'"])
    section: dict[str, Any] = {}
    _plugin_fields(chance, section, 0.05)
    return _write(top, {"deepspeed_config": section})


def _any_yaml(chance: random.Random) -> str:
    kinds = ["DEEPSPEED", "FSDP", "MULTI_GPU", "'NO'", "MEGATRON_LM", "MULTI_CPU", "deepspeed", "TPU", "NO"]
    top: dict[str, Any] = {"distributed_type": chance.choices(kinds, (4, 5, 4, 3, 2, 2, 1, 1, 1))[0]}
    _maybe(
        chance,
        top,
        0.85,
        num_processes=["1", "2", "2", "4", "7", "'4'", "2.0"],
        num_machines=["1", "1", "1", "2"],
        machine_rank=["0", "1"],
    )
    _maybe(chance, top, 0.5, mixed_precision=["'no'", "bf16", "fp16", "no", "fp32", "BF16"])
    _maybe(
        chance,
        top,
        0.15,
        use_cpu=["true", "false"],
        debug=["true", "false"],
        gpu_ids=["'0,1'", "all", "0", "[0, 1]", "'0'"],
        main_process_ip=["10.0.0.1"],
        main_process_port=["29513", "'29513'"],
        rdzv_backend=["static", "c10d"],
        same_network=["true"],
        enable_cpu_affinity=["true"],
        downcast_bf16=["'no'"],
        use_xpu=["false"],
        main_training_function=["main"],
        compute_environment=["LOCAL_MACHINE", "LOCAL_MACHINE", "AWS"],
        fp16=["true"],
        dynamo_backend=["INDUCTOR", "'NO'"],
    )
    sections: dict[str, Any] = {}
    if chance.random() < 0.5:
        sections["deepspeed_config"] = {}
        _plugin_fields(chance, sections["deepspeed_config"], 0.3)
    if chance.random() < 0.6:
        sections["fsdp_config"] = _fsdp(chance)
    if chance.random() < 0.12:
        sections["megatron_lm_config"] = {"megatron_lm_tp_degree": "2", "pp_degree": "2"}
    if chance.random() < 0.12:
        sections["parallelism_config"] = {
            chance.choice(["parallelism_config_sp_size", "dp_shard_size", "parallelism_config_cp_size"]): chance.choice(
                ["2", "1", "'2'"]
            )
        }
    if chance.random() < 0.12:
        sections["dynamo_config"] = {chance.choice(["dynamo_backend", "backend"]): chance.choice(["INDUCTOR", "foo"])}
    if chance.random() < 0.06:
        top["deepspeed_config"] = chance.choice(["ds.json", "[1]", "null"])
        sections.pop("deepspeed_config", None)
    if chance.random() < 0.04:
        del top["distributed_type"]
    return _write(top, sections)


def _fsdp(chance: random.Random) -> dict[str, Any]:
    section: dict[str, Any] = {}
    prefix = chance.choice(["fsdp_", ""])
    _maybe(
        chance,
        section,
        0.3,
        version=["1", "2"],
        sharding_strategy=["FULL_SHARD", "1"],
        reshard_after_forward=["true", "false"],
        offload_params=["true", "false"],
        auto_wrap_policy=["TRANSFORMER_BASED_WRAP"],
        transformer_layer_cls_to_wrap=["LlamaDecoderLayer", "[A, B]"],
        min_num_params=["1e8", "2000"],
        backward_prefetch=["BACKWARD_PRE"],
        state_dict_type=["SHARDED_STATE_DICT"],
        cpu_ram_efficient_loading=["true", "false", "'false'"],
        sync_module_states=["true", "false"],
        activation_checkpointing=["true"],
        ignored_modules=["x.*"],
    )
    return {prefix + name: value for name, value in section.items()}


def _flags(chance: random.Random) -> list[str]:
    options = [
        ["--num-processes", "3"],
        ["--mixed_precision", "fp16"],
        ["--zero_stage", "1"],
        ["--use_deepspeed"],
        ["--multi_gpu"],
        ["--cpu"],
        ["--same_network"],
        ["--gradient_accumulation_steps", "2"],
        ["--rdzv_backend", "c10d"],
        ["--num_machines", "two"],
        ["--gradient_clipping", "0.5"],
        ["--fsdp_version", "2"],
        ["--use_fsdp"],
        ["--debug"],
        ["--gpu_ids", "0"],
    ]
    chosen = chance.sample(options, chance.choices((0, 1, 2, 3), (4, 4, 3, 1))[0])
    return [word for option in chosen for word in option]


def _arguments(chance: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    _maybe(
        chance,
        found,
        0.35,
        per_device_train_batch_size=[1, 2, 4],
        gradient_accumulation_steps=[1, 2, 4],
        max_grad_norm=[1.0, 0.5, 0.0],
        learning_rate=[5e-5, 1e-4],
        warmup_steps=[0, 3, 0.1],
        max_steps=[5, 5, -1],
        weight_decay=[0.0, 0.1],
        bf16=[True, False],
    )
    _maybe(
        chance,
        found,
        0.04,
        fp16=[True],
        save_on_each_node=[True],
        bf16_full_eval=[True],
        auto_find_batch_size=[True],
    )
    found.setdefault("max_steps", 7)
    return found


def _deepspeed(chance: random.Random, arguments: dict[str, Any], consumer: str) -> dict[str, Any]:
    """A DeepSpeed config that mostly agrees with the arguments."""

    def mostly(right: Any, *wrong: Any, share: float = 0.12) -> Any:
        value = right if chance.random() > share else chance.choice(wrong)
        return value if chance.random() < 0.35 else ("auto" if chance.random() > share / 2 else value)

    config: dict[str, Any] = {}
    _maybe(
        chance,
        config,
        0.85,
        train_micro_batch_size_per_gpu=[mostly(arguments.get("per_device_train_batch_size", 8), 3, "2", None)],
        gradient_accumulation_steps=[mostly(arguments.get("gradient_accumulation_steps", 1), 3, "1")],
        train_batch_size=["auto", "auto", "auto", 16 if consumer == "transformers" else "auto"],
    )
    _maybe(chance, config, 0.6, gradient_clipping=[mostly(arguments.get("max_grad_norm", 1.0), 0.1, None)])
    config["zero_optimization"] = _zero(chance)
    if chance.random() < 0.6:
        config["bf16"] = {"enabled": mostly(bool(arguments.get("bf16", consumer != "transformers")), True, False)}
    if chance.random() < 0.3:
        config["fp16"] = {"enabled": mostly(False, True)}
        _maybe(chance, config["fp16"], 0.2, loss_scale=[0], auto_cast=["auto", False])
    if chance.random() < 0.4:
        config["optimizer"] = {"type": "AdamW", "params": {}}
        _maybe(
            chance,
            config["optimizer"]["params"],
            0.7,
            lr=[mostly(arguments.get("learning_rate", 5e-5), 0.5)],
            weight_decay=[mostly(arguments.get("weight_decay", 0.0), 0.3)],
        )
        _maybe(
            chance,
            config["optimizer"]["params"],
            0.4,
            betas=["auto", [0.9, 0.999], [0.9, 0.95]],
            eps=["auto", 1e-8],
        )
    if chance.random() < 0.35:
        config["scheduler"] = {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto"}}
        _maybe(
            chance,
            config["scheduler"]["params"],
            0.6,
            warmup_min_lr=["auto", 0],
            warmup_max_lr=["auto", 5e-5],
            warmup_num_steps=["auto", "auto", 0, 3],
        )
    _maybe(
        chance,
        config,
        0.12,
        steps_per_print=[10],
        wall_clock_breakdown=[False, "auto"],
        zero_allow_untested_optimizer=[True],
        gradient_allreduce_op=["mean", "sum"],
        checkpoint=[{"tag_validation": "Warn"}],
        amp=[{"enabled": False}],
    )
    if chance.random() < 0.04:
        config["zero_optimization"] = chance.choice([True, None])
    if chance.random() < 0.04:
        del config["zero_optimization"]
    return config


def _zero(chance: random.Random) -> dict[str, Any]:
    zero: dict[str, Any] = {}
    if chance.random() < 0.93:
        zero["stage"] = chance.choice([0, 1, 2, 2, 3, 3, 3, "auto", "3"])
    _maybe(
        chance,
        zero,
        0.35,
        overlap_comm=[True, False, True, "auto"],
        contiguous_gradients=[True],
        reduce_bucket_size=["auto", 5e8, 1000],
        stage3_prefetch_bucket_size=["auto", 15000],
        stage3_param_persistence_threshold=["auto", 1e5],
        stage3_gather_16bit_weights_on_model_save=["auto", True, False],
        sub_group_size=[1e9],
    )
    _maybe(
        chance,
        zero,
        0.25,
        offload_optimizer=[
            {"device": "cpu"},
            {"device": "auto"},
            {"device": "cpu", "nvme_path": "auto"},
            "none",
            None,
        ],
        offload_param=[{"device": "cpu"}, {"device": "auto", "pin_memory": True}, {"device": "none"}],
    )
    _maybe(chance, zero, 0.03, mics_shard_size=[1])
    return zero


def _write(top: dict[str, Any], sections: dict[str, dict[str, Any]]) -> str:
    """YAML text; values are written as they are."""
    lines = [f"{name}: {value}" for name, value in top.items()]
    for section, keys in sections.items():
        lines.append(f"{section}:" + ("" if keys else " {}"))
        lines += [f"  {name}: {value}" for name, value in keys.items()]
    return "\n".join(lines) + "\n"
