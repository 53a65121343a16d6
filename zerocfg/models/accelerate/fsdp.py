"""`fsdp_config` of an accelerate file: PyTorch's fully sharded data parallelism, version 1 or 2."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from zerocfg.models.accelerate.facts import option, variable
from zerocfg.models.base import Section, key

_V1: dict[str, object] = {"versions": [1]}
_V2: dict[str, object] = {"versions": [2]}


def _exported(name: str, when: Literal["always", "set"] = "always", text: Literal["str", "lower"] = "lower") -> Any:
    return [variable(f"FSDP_{name}", "multi_gpu", when=when, text=text, needs={"use_fsdp": {"const": True}})]


class FsdpConfig(Section):
    """All launcher defaults are exported, even those of keys that the file does not write.

    A key that starts with `fsdp` is taken as it is, any other gets `fsdp_` in front. Some keys are
    read with one version of FSDP alone.
    """

    unknown: ClassVar[Literal["error", "ignored", "passed"]] = "ignored"
    null: ClassVar[Literal["absent", "error"]] = "absent"
    source: ClassVar[str] = "accelerate/utils/dataclasses.py"
    library: ClassVar[str] = "accelerate"
    prefix: ClassVar[str] = "fsdp_"
    prefix_optional: ClassVar[bool] = True
    also: ClassVar[str] = "accelerate-launcher"

    fsdp_version: Literal[1, 2] = key(
        "Version of FSDP. TrainingArguments.fsdp_config has another default: 2.",
        default=1,
        reads="int",
        cli=option("fsdp_version"),
        env=_exported("VERSION", text="str"),
    )
    fsdp_sharding_strategy: (
        Literal["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"]
        | Literal[1, 2, 3, 4, 5]
    ) = key(
        "What is sharded, by name or number. Version 2 does not read it: reshard_after_forward takes its place.",
        default="FULL_SHARD",
        reads="str",
        ignore_case=True,
        cli=option("fsdp_sharding_strategy"),
        env=_exported("SHARDING_STRATEGY", text="str"),
        facts=_V1,
    )
    fsdp_reshard_after_forward: (
        bool | Literal["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"]
    ) = key(
        "Version 2: free gathered parameters after the forward pass (true is like ZeRO-3, false like "
        "ZeRO-2); a strategy name is fatal. Version 1 does not read it, although `accelerate config` writes "
        "a name here.",
        default=True,
        reads="bool",
        ignore_case=True,
        cli=option("fsdp_reshard_after_forward"),
        env=_exported("RESHARD_AFTER_FORWARD"),
        facts=_V2,
    )
    fsdp_offload_params: bool = key(
        "Keep parameters, gradients and optimizer state in host memory.",
        default=False,
        reads="bool",
        cli=option("fsdp_offload_params"),
        env=_exported("OFFLOAD_PARAMS"),
    )
    fsdp_min_num_params: int = key(
        "Smallest module that SIZE_BASED_WRAP makes a unit of its own.",
        default=100_000_000,
        unit="elements",
        ge=0,
        reads="int",
        cli=option("fsdp_min_num_params"),
        env=_exported("MIN_NUM_PARAMS", text="str"),
    )
    fsdp_auto_wrap_policy: Literal["TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"] | None = key(
        "How the model is cut into units. Without a policy the entire model is one unit: it is gathered at once.",
        default="NO_WRAP",
        reads="str",
        ignore_case=True,
        cli=option("fsdp_auto_wrap_policy"),
        env=_exported("AUTO_WRAP_POLICY", "set", "str"),
    )
    fsdp_transformer_layer_cls_to_wrap: str | None = key(
        "Layer classes for TRANSFORMER_BASED_WRAP, separated by commas without spaces; absent: the model's "
        "own list. A YAML list does not work: its text is split at the commas.",
        default=None,
        reads="str",
        cli=option("fsdp_transformer_layer_cls_to_wrap"),
        env=_exported("TRANSFORMER_CLS_TO_WRAP", "set", "str"),
    )
    fsdp_backward_prefetch: Literal["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"] | Literal[1, 2] | None = key(
        "When the next unit is gathered during the backward pass. Version 2 warns and drops it.",
        default=None,
        reads="str",
        ignore_case=True,
        cli=option("fsdp_backward_prefetch"),
        env=_exported("BACKWARD_PREFETCH", "set", "str"),
        facts=_V1,
    )
    fsdp_state_dict_type: (
        Literal["FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"] | Literal[1, 2, 3] | None
    ) = key(
        "What a checkpoint holds. Default: FULL_STATE_DICT for version 1, SHARDED_STATE_DICT for version 2, "
        "which refuses LOCAL_STATE_DICT.",
        default=None,
        reads="str",
        ignore_case=True,
        cli=option("fsdp_state_dict_type"),
        env=_exported("STATE_DICT_TYPE", "set", "str"),
    )
    fsdp_forward_prefetch: bool = key(
        "Gather the next unit during the forward pass.",
        default=False,
        reads="bool",
        cli=option("fsdp_forward_prefetch"),
        env=_exported("FORWARD_PREFETCH"),
        facts=_V1,
    )
    fsdp_use_orig_params: bool = key(
        "Show the original parameters instead of flat ones; needed when only some are trained. Always so in version 2.",
        default=True,
        reads="bool",
        cli=option("fsdp_use_orig_params"),
        env=_exported("USE_ORIG_PARAMS"),
        facts=_V1,
    )
    fsdp_cpu_ram_efficient_loading: bool = key(
        "Only rank 0 loads the weights; the others get them by broadcast. The launcher refuses it when "
        "sync_module_states is falsy, for both versions.",
        default=True,
        reads="bool",
        cli=option("fsdp_cpu_ram_efficient_loading"),
        env=_exported("CPU_RAM_EFFICIENT_LOADING"),
    )
    fsdp_sync_module_states: bool = key(
        "Broadcast the weights of rank 0 when wrapping. Read by version 1 alone.",
        default=True,
        reads="bool",
        cli=option("fsdp_sync_module_states"),
        env=_exported("SYNC_MODULE_STATES"),
        facts=_V1,
    )
    fsdp_activation_checkpointing: bool = key(
        "Recompute activations in the backward pass; refused together with the Trainer's own checkpointing.",
        default=False,
        reads="bool",
        cli=option("fsdp_activation_checkpointing"),
        env=_exported("ACTIVATION_CHECKPOINTING"),
    )
    fsdp_activation_checkpointing_offload: bool = key(
        "Keep checkpointed activations in host memory; needs activation_checkpointing and version 2.",
        default=False,
        reads="bool",
        cli=option("fsdp_activation_checkpointing_offload"),
        env=_exported("ACTIVATION_CHECKPOINTING_OFFLOAD"),
        facts=_V2,
    )
    fsdp_ignored_modules: str | None = key(
        "Regular expression; modules whose full name matches stay unsharded. Has no command line option.",
        default=None,
        reads="str",
        env=_exported("IGNORED_MODULES", "set", "str"),
    )
