"""The ``zero_optimization`` section. Every size in it counts elements of tensors, never bytes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BeforeValidator

from zerocfg.models.base import key
from zerocfg.models.deepspeed.section import Auto, Count, Positive, Removed, Strict, filled

Share = Annotated[float, Ge(0.0), Le(1.0)]
Device = Literal["none", "cpu", "nvme"]

_PINNED = (
    "Keep the host copy in page-locked memory, which copies faster but cannot be paged out and counts "
    "against the memlock limit."
)


def _plugin(name: str, otherwise: str) -> dict[str, str]:
    """An auto that accelerate's DeepSpeedPlugin fills from its own argument or the launcher's variable."""
    return filled(accelerate=f"{name} of DeepSpeedPlugin, which is {otherwise} unless it is set")


class OffloadParam(Strict):
    """Where the sharded parameters live between their uses. Stage 3 only; lower stages ignore the section."""

    null = "absent"
    source = "deepspeed/runtime/zero/offload_config.py"
    known_as = "zero_optimization.offload_param"

    device: Device | Auto = key(
        "Where the parameters are kept; `none` is no offload.", auto=_plugin("offload_param_device", "none")
    )
    nvme_path: str | Auto | None = key(
        "Directory on a local NVMe drive; needed for device `nvme`.",
        auto=_plugin("offload_param_nvme_path", "the text none"),
    )
    buffer_count: Count = key("Staging buffers for reads from NVMe.", unit="buffers")
    buffer_size: Count = key("Size of one NVMe staging buffer; no parameter shard may be larger.", unit="elements")
    max_in_cpu: Count = key("Parameter elements kept in host memory when NVMe is used.", unit="elements")
    pin_memory: bool = key(
        _PINNED + " The flat 16-bit buffer of stage 3 is pinned even when this is false.",
        default_before={"0.19.5": False},
    )


class OffloadOptimizer(Strict):
    """Where the optimizer states live and where the optimizer step is computed."""

    null = "absent"
    source = "deepspeed/runtime/zero/offload_config.py"
    known_as = "zero_optimization.offload_optimizer"

    device: Device | Auto = key(
        "Where the states are kept. `nvme` works with stage 3 only.", auto=_plugin("offload_optimizer_device", "none")
    )
    nvme_path: str | Auto | None = key(
        "Directory on a local NVMe drive; needed for device `nvme`.",
        auto=_plugin("offload_optimizer_nvme_path", "the text none"),
    )
    buffer_count: Count = key(
        "Staging buffers for NVMe: at least the number of states of one parameter, 4 for Adam.", unit="buffers"
    )
    pin_memory: bool = key(_PINNED, default_before={"0.19.5": False})
    pipeline_read: bool = key("Read the next tile from NVMe while this one is computed.")
    pipeline_write: bool = key("Write the previous tile to NVMe while this one is computed.")
    fast_init: bool = key("Initialise states on NVMe quickly; works only when the parameters are there too.")
    ratio: Share = key("Share of the states updated on the CPU; below 1 needs stage 3.", unit="share")
    super_offload: bool = key("Offload engine for superchips. Stage 3 and CUDA only.", since="0.18.0")
    cpuadam_cores_perc: Share = key("Share of the CPU cores for CPU Adam with super_offload.", unit="share")


class ZenFlow(Strict):
    """Asynchronous optimizer offload: important gradients now, the others later."""

    null = "absent"
    source = "deepspeed/runtime/zenflow/zenflow_config.py"
    known_as = "zero_optimization.zenflow"

    topk_ratio: Annotated[float, Gt(0.0), Lt(1.0)] = key("Share of gradient columns updated at once.", unit="share")
    select_strategy: Literal["auto", "step", "epoch"] = key("When the important columns are chosen anew.")
    select_interval: int | Auto = key(
        "Steps or epochs between two choices.", unit="steps or epochs", facts={"no_text": True}
    )
    update_interval: Annotated[int, Gt(0)] | Auto = key(
        "Steps between two updates of the unimportant columns. It replaces gradient_accumulation_steps.",
        unit="steps",
        facts={"no_text": True},
    )
    overlap_step: bool = key("Compute the optimizer step beside forward and backward.")
    offload: bool = key("Keep the states of the important columns on the CPU too.")
    auto_ratio: Share = key("Threshold of the automatic update interval.", unit="share")
    full_warm_up_rounds: int = key("First rounds in which every gradient is updated.", unit="steps")
    pt_reserved_cores_perc: Share = key("Share of the CPU cores left to PyTorch.", unit="share")
    steps_per_epoch: int | None = key(
        "Set by the engine at run time; not for config files.",
        unit="steps",
        inert="the engine overwrites it when training starts",
    )


class LeafModule(Strict):
    """Modules that stage 3 gathers as a whole (mixture-of-experts blocks)."""

    null = "absent"
    source = "deepspeed/runtime/zero/leaf_module_config.py"
    known_as = "zero_optimization.leaf_module"

    classes: list[str] | str = key("Dotted names of module classes.")
    names: list[str] | str = key("Names of modules.")
    name_suffixes: list[str] | str = key("Suffixes of module names.")


def _digits(value: object) -> Any:
    return int(value) if isinstance(value, str) and value.strip().isdecimal() else value


class ZeroOptimization(Strict):
    """ZeRO: sharding of optimizer states, gradients and parameters over the data-parallel ranks."""

    source = "deepspeed/runtime/zero/config.py"
    known_as = "zero_optimization"

    stage: Annotated[Literal[0, 1, 2, 3], BeforeValidator(_digits)] | Auto = key(
        "What is sharded: 0 nothing, 1 optimizer states, 2 and gradients, 3 and parameters.",
        auto=_plugin("zero_stage", "2"),
    )
    contiguous_gradients: bool = key(
        "Copy gradients into one buffer as they are made. Optimizer offload forces it in stages 1 and 2."
    )
    reduce_scatter: bool = key("Reduce each gradient to its owner instead of to every rank.")
    reduce_bucket_size: Positive | Auto = key(
        "Gradient elements reduced at a time. The buffer takes this many times the bytes of one element, "
        "twice that with overlap_comm in stages 1 and 2.",
        unit="elements",
        auto=filled(trainer="hidden_size**2", accelerate="hidden_size**2"),
    )
    use_multi_rank_bucket_allreduce: bool = key("Reduce the buckets of several ranks in one collective.")
    allgather_partitions: bool = key(
        "Gather updated parameters with all-gather instead of broadcasts. Stage 3 does not use it."
    )
    allgather_bucket_size: Count = key(
        "Parameter elements gathered at a time. Even for stages 1 and 2; stage 3 does not use it.", unit="elements"
    )
    overlap_comm: bool | None = key(
        "Reduce gradients while backward runs. null and absent: true for stage 3, false otherwise."
    )
    compute_grad_norm: bool = key("Compute the global gradient norm; false needs stage 1 or 2 and no clipping.")
    load_from_fp32_weights: bool = key("Restore the master weights from fp32 instead of 16-bit copies.")
    elastic_checkpoint: bool = key("Old elastic checkpoints. Ignored by stage 3.")
    offload_param: OffloadParam | None = key("Offload of parameters; stage 3.")
    offload_optimizer: OffloadOptimizer | None = key("Offload of optimizer states.")
    zenflow: ZenFlow | None = key("Asynchronous optimizer offload.", since="0.17.5")
    sub_group_size: Count = key(
        "Elements of the local shard that the optimizer of stage 3 handles at a time.", unit="elements"
    )
    cpu_offload_param: bool | None = key(
        deprecated="write offload_param: {device: cpu}", renamed_to="offload_param.device"
    )
    cpu_offload_use_pin_memory: bool | None = key(
        deprecated="write pin_memory in offload_param or offload_optimizer", inert="read, warned about, unused"
    )
    cpu_offload: bool | None = key(
        deprecated="write offload_optimizer: {device: cpu}", renamed_to="offload_optimizer.device"
    )
    stage3_prefetch_bucket_size: Count | Auto = key(
        "Parameter elements fetched ahead of their use.",
        unit="elements",
        aliases=("prefetch_bucket_size",),
        auto=filled(
            trainer="int(0.9 * hidden_size**2) with stage 3, else left to accelerate",
            accelerate="int(0.9 * hidden_size**2)",
        ),
    )
    stage3_param_persistence_threshold: Count | Auto = key(
        "Parameters with at most this many elements (counted before sharding) stay whole on every rank.",
        unit="elements",
        aliases=("param_persistence_threshold",),
        auto=filled(trainer="10 * hidden_size with stage 3, else left to accelerate", accelerate="10 * hidden_size"),
    )
    stage3_model_persistence_threshold: Count = key(
        "Most elements that may stay whole in all.",
        unit="elements",
        aliases=("model_persistence_threshold",),
    )
    stage3_max_live_parameters: Count = key(
        "Most gathered parameter elements on a rank at a time.", unit="elements", aliases=("max_live_parameters",)
    )
    stage3_max_reuse_distance: Count = key(
        "Keep a parameter that is used again within this many elements.",
        unit="elements",
        aliases=("max_reuse_distance",),
    )
    stage3_gather_16bit_weights_on_model_save: bool | Auto = key(
        "Gather the sharded weights to save the model. Without it a stage 3 save leaves no model weights.",
        aliases=("gather_16bit_weights_on_model_save",),
        auto=filled(accelerate="False"),
    )
    stage3_module_granularity_threshold: int = key(
        "Fetch modules with fewer elements per submodule than this as a whole.",
        unit="elements",
        aliases=("module_granularity_threshold",),
    )
    stage3_use_all_reduce_for_fetch_params: bool = key(
        "Fetch parameters with all-reduce.", aliases=("use_all_reduce_for_fetch_params",)
    )
    stage3_allgather_sequential: bool = key(
        "Gather parameters one by one without a bucket; forces a prefetch bucket of 1.",
        aliases=("allgather_sequential",),
        since="0.18.5",
    )
    stage3_gather_fp16_weights_on_model_save: bool = key(
        deprecated="renamed", renamed_to="stage3_gather_16bit_weights_on_model_save"
    )
    ignore_unused_parameters: bool = key("Accept parameters without a gradient. Stage 2.")
    legacy_stage1: bool = key("Old stage 1. True raises an exception at start-up.")
    round_robin_gradients: bool = key("Spread gradient copies to the CPU over the ranks. Stages 1 and 2.")
    parameter_alignment: bool = key("Start each parameter of the flat buffer at 16 bytes. Stages 1 and 2.")
    zero_hpz_partition_size: Count = key(
        "Ranks in the group of the secondary parameter copy (ZeRO++ hpZ).", unit="ranks"
    )
    zero_quantized_weights: bool = key("Gather parameters in int8 (ZeRO++ qwZ).")
    zero_quantized_nontrainable_weights: bool = key("Keep frozen parameters in int8.")
    zero_quantized_gradients: bool = key("Reduce gradients in quantised form (ZeRO++ qgZ). Stage 3.")
    memory_efficient_linear: bool = key("Linear layer that saves memory in stage 3.")
    pipeline_loading_checkpoint: bool = key("Load checkpoints in a pipelined manner. Stage 3.")
    override_module_apply: bool = key("Replace `nn.Module.apply` in stage 3.")
    log_trace_cache_warnings: bool = key("Log when the parameter trace is thrown away.")
    enable_sanity_checks: bool = key("Internal checks.")
    save_muon_momentum_buffer_in_memory: bool = key(
        "Keep the momentum of Muon in memory when the other states go to NVMe."
    )
    leaf_module: LeafModule | None = key("Modules that stage 3 gathers as a whole.", default=LeafModule)
    mics_shard_size: Removed = key(removed="MiCS was removed from DeepSpeed")
    mics_hierarchical_params_gather: Removed = key(removed="MiCS was removed from DeepSpeed")
    zeropp_loco_param: Removed = key(removed="LoCo-ZeRO++ was removed from DeepSpeed; drop the key")
