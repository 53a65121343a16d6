"""What a live DeepSpeed engine runs with, read where it acts: the ZeRO optimizer, its coordinator, the parameters.

The attributes are those of deepspeed 0.19.8; one that is missing (another release) is not told as acting, and the
parsed value is all that is known then.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING

from ..values import flat, mapping, plain

if TYPE_CHECKING:
    from collections.abc import Callable

    import deepspeed
    import torch

    from ..report_schema import Held, Master, Seen

ZERO = "zero_optimization."
# Setting -> attribute of the object that DeepSpeed makes at this stage (runtime/zero/stage_1_and_2.py).
STAGES_1_AND_2 = {
    "reduce_bucket_size": "reduce_bucket_size",
    "allgather_bucket_size": "allgather_bucket_size",
    "reduce_scatter": "reduce_scatter",
    "overlap_comm": "overlap_comm",
    "contiguous_gradients": "contiguous_gradients",
    "round_robin_gradients": "round_robin_gradients",
    "ignore_unused_parameters": "ignore_unused_parameters",
    "elastic_checkpoint": "elastic_checkpoint",
    "use_multi_rank_bucket_allreduce": "use_multi_rank_bucket_allreduce",
    "offload_optimizer.pin_memory": "cpu_offload_pin_memory",
}
# runtime/zero/stage3.py
STAGE_3 = {
    "reduce_bucket_size": "reduce_bucket_size",
    "reduce_scatter": "reduce_scatter",
    "contiguous_gradients": "contiguous_gradients",
    "sub_group_size": "sub_group_size",
    "stage3_prefetch_bucket_size": "prefetch_elements",
    "zero_hpz_partition_size": "zero_hpz_partition_size",
    "elastic_checkpoint": "elastic_checkpoint",
    "zero_quantized_nontrainable_weights": "zero_quantized_nontrainable_weights",
    "offload_optimizer.pin_memory": "offload_optimizer_pin_memory",
    "offload_optimizer.ratio": "partial_offload",
    "offload_param.pin_memory": "offload_param_pin_memory",
    "offload_param.max_in_cpu": "max_params_in_cpu",
}
# runtime/zero/parameter_offload.py: the object that holds the coordinator
HOOKS = {
    "stage3_param_persistence_threshold": "param_numel_persistence_threshold",
    "stage3_model_persistence_threshold": "model_persistence_threshold",
    "zero_quantized_weights": "zero_quantized_weights",
}
# runtime/zero/partitioned_param_coordinator.py: decides what is fetched and released. Its fields are private.
COORDINATOR = {
    "stage3_max_live_parameters": "_PartitionedParameterCoordinator__max_n_available_params",
    "stage3_max_reuse_distance": "_PartitionedParameterCoordinator__max_reuse_dist_in_numel",
    "stage3_prefetch_bucket_size": "_PartitionedParameterCoordinator__prefetch_bucket_sz",
}
# What the engine asks its config for whenever it needs it (runtime/engine.py), so that the config is where it acts.
ENGINE = {
    "train_batch_size": "train_batch_size",
    "train_micro_batch_size_per_gpu": "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "steps_per_print": "steps_per_print",
    "wall_clock_breakdown": "wall_clock_breakdown",
    "zero_allow_untested_optimizer": "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer": "zero_force_ds_cpu_optimizer",
    ZERO + "stage3_gather_16bit_weights_on_model_save": "zero_gather_16bit_weights_on_model_save",
}


def _take(source: object, names: dict[str, str]) -> dict[str, object]:
    """The settings of ``names`` that the object has an attribute for."""
    return {ZERO + key: plain(getattr(source, name)) for key, name in names.items() if hasattr(source, name)}


def settings_of_engine(engine: deepspeed.DeepSpeedEngine) -> dict[str, object]:
    """What the engine asks its config for whenever it needs it."""
    return {key: plain(getattr(engine, name)()) for key, name in ENGINE.items() if hasattr(engine, name)}


def zero(engine: deepspeed.DeepSpeedEngine) -> dict[str, object]:
    """What the object holds that DeepSpeed made for the stage."""
    level = stage(engine)
    names = {0: {}, 3: STAGE_3}.get(level, STAGES_1_AND_2)
    found = {ZERO + "stage": level, **_take(engine.optimizer, names)}
    if offload_of_optimizer(engine) == "none":
        found.pop(ZERO + "offload_optimizer.pin_memory", None)
    if offload_of_parameters(engine) == "none":
        found.pop(ZERO + "offload_param.pin_memory", None)
    return found


def parameter_hooks(engine: deepspeed.DeepSpeedEngine) -> dict[str, object]:
    """What fetches and releases parameters under stage 3."""
    if stage(engine) != 3:
        return {}
    hooks = getattr(engine.optimizer, "parameter_offload", engine.optimizer)  # without an optimizer, it is the hooks
    return _take(hooks, HOOKS) | _take(getattr(hooks, "param_coordinator", None), COORDINATOR)


def streams(engine: deepspeed.DeepSpeedEngine) -> dict[str, object]:
    """What stage 3 made streams, process groups and swappers for."""
    optimizer = engine.optimizer
    if stage(engine) != 3:
        return {}
    found: dict[str, object] = {}
    if hasattr(optimizer, "all2all_process_group"):
        found[ZERO + "zero_quantized_gradients"] = optimizer.all2all_process_group is not None
    stream = getattr(optimizer, "reduce_and_partition_stream", None)
    if stream is not None:  # a processor has no streams: nothing overlaps there
        from deepspeed.accelerator import get_accelerator

        found[ZERO + "overlap_comm"] = stream != get_accelerator().default_stream()
    if getattr(optimizer, "optimizer_swapper", None) is not None:
        config = getattr(optimizer.optimizer_swapper, "swap_config", None)
        found[ZERO + "offload_optimizer.nvme_path"] = plain(getattr(config, "nvme_path", None))
    return found


def offload(engine: deepspeed.DeepSpeedEngine) -> dict[str, object]:
    """Where states and parameters are worked on."""
    return {
        ZERO + "offload_optimizer.device": offload_of_optimizer(engine),
        ZERO + "offload_param.device": offload_of_parameters(engine),
    }


def gradients(engine: deepspeed.DeepSpeedEngine) -> dict[str, object]:
    """What is done to gradients before a step. Stage 0 keeps no optimizer of DeepSpeed's own in fp32; the engine clips
    and scales itself then."""
    optimizer = engine.optimizer
    predivide = getattr(optimizer, "gradient_predivide_factor", engine.gradient_predivide_factor())
    return {
        "gradient_clipping": clipping(engine),
        "prescale_gradients": not getattr(optimizer, "postscale_gradients", engine.postscale_gradients()),
        "gradient_predivide_factor": plain(predivide),
        "gradient_allreduce_op": "mean" if engine.gradient_average else "sum",
    }


def clipping(engine: deepspeed.DeepSpeedEngine) -> object:
    return plain(getattr(engine.optimizer, "clip_grad", engine.gradient_clipping()))


def dtypes(engine: deepspeed.DeepSpeedEngine) -> dict[str, object]:
    """In which dtypes gradients are sent and added up."""
    optimizer, communication = engine.optimizer, engine.communication_data_type
    accumulation = getattr(optimizer, "grad_acc_dtype", engine.get_data_types()[1])
    return {
        "communication_data_type": plain(getattr(optimizer, "communication_data_type", communication)),
        "data_types.grad_accum_dtype": plain(getattr(optimizer, "gradient_accumulation_dtype", accumulation)),
    }


def parsed(engine: deepspeed.DeepSpeedEngine) -> dict[str, object]:
    """Every setting as the engine's config holds it, defaults filled in: the most that is known of some."""
    config = engine._config
    found = flat({key: value for key, value in engine.config.items() if key not in ("zero_optimization", "zero")})
    sections = {"zero_optimization": "zero_config", "bf16": "bfloat16_config", "fp16": "float16_config"}
    for name, attribute in sections.items():
        section = getattr(config, attribute, None)
        if section is not None and hasattr(section, "model_dump"):
            found.update(flat(section.model_dump(by_alias=True), f"{name}."))
    for name in ("gradient_allreduce_op", "prescale_gradients", "gradient_predivide_factor"):
        found.setdefault(name, plain(getattr(config, name, None)))
    for name in ("optimizer", "param"):
        found.setdefault(f"{ZERO}offload_{name}.device", "none")
    found.update(flat(mapping(getattr(config, "aio_config", None)), "aio."))
    return found


def stage(engine: deepspeed.DeepSpeedEngine) -> int:
    """0 to 3, from the kind of the object that holds the gradients and the states."""
    optimizer = engine.optimizer
    names = {kind.__name__ for kind in type(optimizer).__mro__}
    if names & {"DeepSpeedZeroOptimizer_Stage3", "DeepSpeedZeRoOffload"}:
        return 3
    if "DeepSpeedZeroOptimizer" in names:
        return 2 if optimizer.partition_gradients else 1
    if "BF16_Optimizer" in names:  # bf16 with gradients in fp32 at stage 1
        return 1
    return 0


def offload_of_optimizer(engine: deepspeed.DeepSpeedEngine) -> str:
    """Where the engine's object works on the states: "none", "cpu" or "nvme"."""
    optimizer = engine.optimizer
    if getattr(optimizer, "swap_optimizer", False):
        return "nvme"
    return "cpu" if getattr(optimizer, "offload_optimizer", getattr(optimizer, "cpu_offload", False)) else "none"


def offload_of_parameters(engine: deepspeed.DeepSpeedEngine) -> str:
    """Where the shards of the parameters rest: "none", "cpu" or "nvme"."""
    optimizer = engine.optimizer
    if getattr(optimizer, "params_in_nvme_and_cpu", False):
        return "nvme"
    if getattr(optimizer, "offload_param", False):
        return "cpu"
    device = getattr(optimizer, "offload_device", None)  # DeepSpeedZeRoOffload
    return str(plain(device)) if device is not None else "none"


def loss_scale(optimizer: object) -> dict[str, object]:
    """``fp16.*`` of the object that scales the loss; nothing when none does."""
    scaler = getattr(optimizer, "loss_scaler", None) or getattr(optimizer, "loss_scale_config", None)
    if scaler is None or str(plain(getattr(optimizer, "dtype", "fp16"))) != "fp16":
        return {}
    if getattr(scaler, "use_grad_scaling", True) is False:
        return {}
    if not getattr(scaler, "dynamic", getattr(scaler, "dynamic_loss_scale", False)):
        return {"fp16.loss_scale": plain(scaler.cur_scale)}
    found: dict[str, object] = {"fp16.loss_scale": 0}
    with contextlib.suppress(ValueError):
        found["fp16.initial_scale_power"] = math.log2(scaler.cur_scale)
    attributes = {
        "loss_scale_window": ("scale_window",),
        "min_loss_scale": ("min_scale", "min_loss_scale"),
        "hysteresis": ("delayed_shift",),
        "consecutive_hysteresis": ("consecutive_hysteresis",),
    }
    for key, names in attributes.items():
        name = next((name for name in names if getattr(scaler, name, None) is not None), None)
        if name is not None:
            found[f"fp16.{key}"] = plain(getattr(scaler, name))
    return found


def facts(engine: deepspeed.DeepSpeedEngine) -> Held:
    """What is held where."""
    parameters = list(engine.module.parameters())
    sizes = [math.prod(getattr(parameter, "ds_shape", parameter.shape)) for parameter in parameters]
    found: Held = {
        "ranks": engine.dp_world_size,
        "parameters": sum(sizes),
        "trainable": sum(size for size, item in zip(sizes, parameters, strict=True) if item.requires_grad),
        "tensors": len(parameters),
        "experts": bool(getattr(engine, "has_moe_layers", False)),
    }
    shards = [parameter.ds_tensor for parameter in parameters if getattr(parameter, "ds_tensor", None) is not None]
    if shards:
        found["shard"] = sum(int(getattr(shard, "ds_numel", shard.numel())) for shard in shards)
        found["shard_devices"] = sorted(
            {parameter.ds_tensor.device.type for parameter in parameters if _rests(parameter)}
        )
        found["kept_whole"] = sum(1 for parameter in parameters if getattr(parameter, "ds_persist", False))
    names = ("fp32_partitioned_groups_flat", "single_partition_of_fp32_groups", "fp32_groups_flat_partition",
             "fp32_groups_flat", "fp32_groups")  # fmt: skip
    groups = next((value for name in names if (value := getattr(engine.optimizer, name, None))), None)
    if groups:
        tensors = [item for group in groups for item in (group if isinstance(group, (list, tuple)) else [group])]
        found["groups"] = len(tensors)
        master: Master = {
            "elements": sum(int(getattr(tensor, "ds_numel", tensor.numel())) for tensor in tensors),
            "dtypes": sorted({str(plain(tensor.dtype)) for tensor in tensors}),
            "devices": sorted({tensor.device.type for tensor in tensors if tensor.numel()}),
        }
        on_host = [tensor for tensor in tensors if tensor.device.type == "cpu" and tensor.numel()]
        if on_host:
            master["pinned"] = all(_pinned(item) for item in on_host)
        found["master"] = master
    return found


def _rests(parameter: torch.nn.Parameter) -> bool:
    """Whether a shard rests where offload_param says.

    Shards of trained parameters are moved into one buffer (runtime/zero/stage3.py,
    _create_fp16_partitions_with_defragmentation). One of a frozen parameter stays where it was made, which for a
    persisted one may be the device (runtime/zero/partition_parameters.py, _partition_param).
    """
    shard = getattr(parameter, "ds_tensor", None)
    persisted = getattr(parameter, "ds_persist", False) and not parameter.requires_grad
    return shard is not None and shard.numel() > 0 and not persisted


def _pinned(tensor: torch.Tensor) -> bool:
    """Whether memory is page-locked; by DeepSpeed, which has an allocator that torch does not know."""
    from deepspeed.accelerator import get_accelerator

    return bool(get_accelerator().is_pinned(tensor))


SEEN: dict[str, Callable[[deepspeed.DeepSpeedEngine], Seen]] = {
    "the stage": lambda engine: {"stage": stage(engine)},
    "the micro batch": lambda engine: {"micro_batch": engine.train_micro_batch_size_per_gpu()},
    "the accumulation": lambda engine: {"gradient_accumulation_steps": engine.gradient_accumulation_steps()},
    "the clipping": lambda engine: {"gradient_clipping": clipping(engine)},
    "the optimizer's offload": lambda engine: {"offload_optimizer": offload_of_optimizer(engine)},
    "the parameters' offload": lambda engine: {"offload_param": offload_of_parameters(engine)},
    "what is held": lambda engine: {"held": facts(engine)},
}
"""Groups of fields of a report that are read from a live engine."""
ACTING: dict[str, Callable[[deepspeed.DeepSpeedEngine], dict[str, object]]] = {
    "the engine's settings": settings_of_engine,
    "the settings of ZeRO": zero,
    "the parameter hooks": parameter_hooks,
    "the streams": streams,
    "the offload": offload,
    "the gradients": gradients,
    "the dtypes": dtypes,
    "the loss scale": lambda engine: loss_scale(engine.optimizer),
}
"""Groups of settings by the names of the lock, as the engine's objects hold them."""
