"""TrainingArguments: distribution and data loading."""

from __future__ import annotations

from typing import ClassVar, Literal

from zerocfg.models.base import Section, key
from zerocfg.models.training_arguments.facts import integer, mapping, optional_switch, switch, text

_STRATEGIES = Literal["full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"]


class TrainerFsdpConfig(Section):
    """Read only when `fsdp` is set. A leading `fsdp_` is taken off; unknown keys are silently ignored."""

    unknown: ClassVar[Literal["error", "ignored", "passed"]] = "ignored"
    null: ClassVar[Literal["absent", "error"]] = "absent"
    source: ClassVar[str] = "transformers/training_args.py"
    library: ClassVar[str] = "transformers"

    version: Literal[1, 2] = key(
        "Version of FSDP; accelerate's own default is 1.",
        default=2,
        reads="int",
        aliases=("fsdp_version",),
        setting="fsdp_config.fsdp_version",
    )
    reshard_after_forward: bool | _STRATEGIES = key(
        "Version 2: a truth word. Version 1: a strategy, full_shard when absent.",
        default=True,
        reads="bool",
        ignore_case=True,
        aliases=("fsdp_reshard_after_forward",),
        setting="fsdp_config.fsdp_reshard_after_forward",
    )
    cpu_offload: bool = key(
        "Keep parameters, gradients and optimizer state in host memory; accelerate's name for it is offload_params.",
        default=False,
        reads="truth",
        aliases=("fsdp_cpu_offload",),
        setting="fsdp_config.fsdp_offload_params",
    )
    auto_wrap_policy: Literal["TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"] = key(
        "In capitals, unlike accelerate's.",
        default="TRANSFORMER_BASED_WRAP",
        reads="raw",
        aliases=("fsdp_auto_wrap_policy",),
        setting="fsdp_config.fsdp_auto_wrap_policy",
    )
    transformer_layer_cls_to_wrap: str | list[str] | None = key(
        "Layer classes to wrap.",
        default=None,
        reads="raw",
        aliases=("fsdp_transformer_layer_cls_to_wrap",),
        setting="fsdp_config.fsdp_transformer_layer_cls_to_wrap",
    )
    min_num_params: int = key(
        "Smallest module that SIZE_BASED_WRAP wraps.",
        default=0,
        unit="elements",
        reads="raw",
        aliases=("fsdp_min_num_params",),
        setting="fsdp_config.fsdp_min_num_params",
    )
    state_dict_type: Literal["FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"] = key(
        "What a checkpoint holds; accelerate's own default for version 2 is SHARDED_STATE_DICT.",
        default="FULL_STATE_DICT",
        reads="str",
        ignore_case=True,
        aliases=("fsdp_state_dict_type",),
        setting="fsdp_config.fsdp_state_dict_type",
    )
    cpu_ram_efficient_loading: bool = key(
        "Only rank 0 loads the weights.",
        default=False,
        reads="bool",
        aliases=("fsdp_cpu_ram_efficient_loading",),
        setting="fsdp_config.fsdp_cpu_ram_efficient_loading",
    )
    activation_checkpointing: bool = key(
        "Recompute activations; refused together with the Trainer's own.",
        default=False,
        reads="bool",
        aliases=("fsdp_activation_checkpointing",),
        setting="fsdp_config.fsdp_activation_checkpointing",
    )
    forward_prefetch: bool = key(
        "Version 1 alone.",
        default=False,
        reads="bool",
        facts={"versions": [1]},
        aliases=("fsdp_forward_prefetch",),
        setting="fsdp_config.fsdp_forward_prefetch",
    )
    backward_prefetch: Literal["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"] = key(
        "Version 1 alone.",
        default="NO_PREFETCH",
        reads="raw",
        ignore_case=True,
        facts={"versions": [1]},
        aliases=("fsdp_backward_prefetch",),
        setting="fsdp_config.fsdp_backward_prefetch",
    )
    use_orig_params: bool = key(
        "Version 1 alone.",
        default=True,
        reads="bool",
        facts={"versions": [1]},
        aliases=("fsdp_use_orig_params",),
        setting="fsdp_config.fsdp_use_orig_params",
    )
    sync_module_states: bool = key(
        "Version 1 alone.",
        default=True,
        reads="bool",
        facts={"versions": [1]},
        aliases=("fsdp_sync_module_states",),
        setting="fsdp_config.fsdp_sync_module_states",
    )
    limit_all_gathers: bool = key(
        "Version 1 alone.", default=False, reads="bool", facts={"versions": [1]}, aliases=("fsdp_limit_all_gathers",)
    )
    xla: bool = key("FSDP of torch_xla instead.", default=False, reads="truth", aliases=("fsdp_xla",))
    xla_fsdp_settings: dict[str, object] | None = key(
        "Arguments of XLA's FSDP.", default=None, reads="raw", aliases=("fsdp_xla_fsdp_settings",)
    )
    xla_fsdp_v2: bool = key(
        "Second version of XLA's FSDP.", default=False, reads="truth", aliases=("fsdp_xla_fsdp_v2",)
    )
    xla_fsdp_grad_ckpt: bool = key(
        "Recompute activations under XLA.", default=False, reads="truth", aliases=("fsdp_xla_fsdp_grad_ckpt",)
    )


class AcceleratorSettings(Section):
    """Handed to Accelerator(); an unknown key is a TypeError."""

    unknown: ClassVar[Literal["error", "ignored", "passed"]] = "error"
    null: ClassVar[Literal["absent", "error"]] = "absent"
    source: ClassVar[str] = "transformers/trainer_pt_utils.py"
    library: ClassVar[str] = "transformers"
    reads = "raw"

    split_batches: bool = key("The batch size counts for all ranks together.", default=False)
    dispatch_batches: bool | None = key("Rank 0 loads and sends the batches.", default=None)
    even_batches: bool = key("Fill the last batch up from the start.", default=True)
    use_seedable_sampler: bool = key("Sampler that is reproducible over ranks.", default=True)
    non_blocking: bool = key("Copy to the device without waiting.", default=False)
    gradient_accumulation_kwargs: dict[str, object] | None = key("Arguments of accumulation.", default=None)
    use_configured_state: bool = key("Use an Accelerator that exists already.", default=False)


class Distributed(Section):
    """Distribution and data loading."""

    deepspeed: dict[str, object] | str | None = mapping(
        "DeepSpeed configuration: mapping or path of a JSON file. Wins over the accelerate file's.",
        facts={"schema": "deepspeed"},
    )
    fsdp: bool | str | list[str] | None = key(
        "true switches FSDP on; the older strategy words still work. The text `true` is refused.",
        cli={"type": "str", "nargs": "?"},
    )
    fsdp_config: TrainerFsdpConfig | str | None = mapping("Settings of FSDP, without effect when fsdp is not set.")
    accelerator_config: AcceleratorSettings | str | None = mapping("Settings of Accelerator().")
    parallelism_config: None = key("An object that only a script can make.", cli={"type": "ParallelismConfig"})
    ddp_backend: Literal["nccl", "gloo", "mpi", "xccl", "hccl", "cncl", "mccl"] | None = text(
        "Collective library; default: by device."
    )
    ddp_timeout: int = integer("Patience with a collective operation.", unit="seconds")
    ddp_find_unused_parameters: bool | None = optional_switch(
        "Look for parameters without gradient; default: not under activation checkpointing."
    )
    ddp_bucket_cap_mb: int | None = integer("Bucket of DistributedDataParallel.", unit="MiB")
    ddp_broadcast_buffers: bool | None = optional_switch("Broadcast buffers before each forward pass.")
    ddp_static_graph: bool | None = optional_switch("Promise that the graph does not change.")
    local_rank: int = integer("Set by the launcher.")
    debug: str | list[Literal["underflow_overflow", "tpu_metrics_debug"]] = key(
        "Debugging aids, separated by spaces.", cli={"type": "DebugOption", "nargs": "+"}
    )

    dataloader_drop_last: bool = switch("Drop an incomplete last batch.")
    dataloader_num_workers: int = integer("Loading processes of each rank.", unit="processes", ge=0)
    dataloader_pin_memory: bool = switch("Pinned host memory.")
    dataloader_persistent_workers: bool = switch("Keep loading processes between epochs.")
    dataloader_prefetch_factor: int | None = integer(
        "Batches each process loads ahead; refused without loading processes.", unit="batches"
    )
    dataloader_multiprocessing_context: Literal["fork", "spawn", "forkserver"] | None = text(
        "How loading processes start."
    )
    dataloader_in_order: bool = switch("Keep the order of batches.")
    remove_unused_columns: bool = switch("Drop columns that the model does not take.")
    train_sampling_strategy: Literal["random", "sequential", "group_by_length", "batch_rebalance"] = text(
        "Order of the samples."
    )
    length_column_name: str = text("Column that holds lengths.")
