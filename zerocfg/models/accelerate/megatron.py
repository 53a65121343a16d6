"""`megatron_lm_config` of an accelerate file: the Megatron-LM back end."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from zerocfg.models.accelerate.facts import option, variable
from zerocfg.models.base import Section, key


def _key(
    name: str,
    default: object,
    doc: str,
    reads: Literal["int", "float", "bool", "str"],
    type: Literal["str", "int", "float", "truth"] = "str",
    launcher_default: object = None,
    when: Literal["always", "set"] = "set",
    **facts: Any,
) -> Any:
    """One key: ``default`` holds in a job without the variable, ``launcher_default`` in the launcher."""
    return key(
        doc,
        default=default,
        reads=reads,
        cli=option(f"megatron_lm_{name}", type, default=launcher_default),
        env=[
            variable(
                f"MEGATRON_LM_{name.upper()}",
                "multi_gpu",
                when=when,
                needs={"use_megatron_lm": {"const": True}},
            )
        ],
        **facts,
    )


class MegatronLmConfig(Section):
    """The keys must be written with their prefix; a key without it is silently dropped."""

    unknown: ClassVar[Literal["error", "ignored", "passed"]] = "ignored"
    null: ClassVar[Literal["absent", "error"]] = "absent"
    source: ClassVar[str] = "accelerate/utils/dataclasses.py"
    library: ClassVar[str] = "accelerate"
    prefix: ClassVar[str] = "megatron_lm_"
    also: ClassVar[str] = "accelerate-launcher"

    megatron_lm_tp_degree: int = _key(
        "tp_degree", 1, "Ranks of tensor parallelism.", "int", "int", 1, "always", unit="ranks", ge=1
    )
    megatron_lm_pp_degree: int = _key("pp_degree", 1, "Pipeline stages.", "int", "int", 1, "always", unit="ranks", ge=1)
    megatron_lm_num_micro_batches: int | None = _key(
        "num_micro_batches", 1, "Micro batches in one global batch.", "int", "int", unit="micro batches", ge=1
    )
    megatron_lm_sequence_parallelism: bool | None = _key(
        "sequence_parallelism", False, "Shard the sequence over the tensor parallel ranks.", "bool"
    )
    megatron_lm_recompute_activations: bool | None = _key(
        "recompute_activations", False, "Recompute attention in the backward pass.", "bool"
    )
    megatron_lm_use_distributed_optimizer: bool | None = _key(
        "use_distributed_optimizer", False, "Shard optimizer state over the data parallel ranks.", "bool"
    )
    megatron_lm_gradient_clipping: float = _key(
        "gradient_clipping", 1.0, "Largest gradient norm.", "float", "float", 1.0, "always", unit="norm", ge=0
    )
    megatron_lm_use_custom_fsdp: bool = _key(
        "use_custom_fsdp", False, "Use Megatron's own FSDP.", "bool", "truth", False, "always"
    )
    megatron_lm_no_load_optim: bool | None = _key(
        "no_load_optim", False, "Leave optimizer state out when loading.", "bool", "truth", False
    )
    megatron_lm_eod_mask_loss: bool | None = _key(
        "eod_mask_loss", False, "Leave end-of-document tokens out of the loss.", "bool", "truth", False
    )
    megatron_lm_no_save_optim: bool | None = _key(
        "no_save_optim", False, "Leave optimizer state out when saving.", "bool", "truth", False
    )
    megatron_lm_optimizer_cpu_offload: bool | None = _key(
        "optimizer_cpu_offload", False, "Keep optimizer state in host memory.", "bool", "truth", False
    )
    megatron_lm_use_precision_aware_optimizer: bool | None = _key(
        "use_precision_aware_optimizer", False, "Let the optimizer hold its state in lower precision.",
        "bool", "truth", False,
    )  # fmt: skip
    megatron_lm_overlap_cpu_optimizer_d2h_h2d: bool | None = _key(
        "overlap_cpu_optimizer_d2h_h2d", False, "Overlap an offloaded optimizer's copies with its step.",
        "bool", "truth", False,
    )  # fmt: skip
    megatron_lm_decoder_last_pipeline_num_layers: int | None = _key(
        "decoder_last_pipeline_num_layers", None, "Decoder layers in the last pipeline stage.", "int", "int",
        unit="layers",
    )  # fmt: skip
    megatron_lm_recompute_granularity: str | None = _key(
        "recompute_granularity", "full", "What is recomputed: full or selective.", "str"
    )
    megatron_lm_recompute_method: str | None = _key(
        "recompute_method", "uniform", "How layers to recompute are chosen: uniform or block.", "str"
    )
    megatron_lm_recompute_num_layers: int | None = _key(
        "recompute_num_layers", 1, "Layers in one unit of recomputation.", "int", "int", unit="layers"
    )
    megatron_lm_attention_backend: bool | None = _key(
        "attention_backend", True, "A truth word, although the name suggests a back end.", "bool"
    )
    megatron_lm_expert_model_parallel_size: int | None = _key(
        "expert_model_parallel_size",
        1,
        "Ranks that experts are spread over.",
        "int",
        "int",
        unit="ranks",
        ge=1,
    )
    megatron_lm_context_parallel_size: int | None = _key(
        "context_parallel_size", 2, "Ranks that share one sequence; 2 when the key is missing.", "int", "int",
        unit="ranks", ge=1,
    )  # fmt: skip
    megatron_lm_attention_dropout: float | None = _key(
        "attention_dropout",
        0.0,
        "Dropout of attention weights.",
        "float",
        "float",
        unit="probability",
        ge=0,
        le=1,
    )
    megatron_lm_hidden_dropout: float | None = _key(
        "hidden_dropout", 0.0, "Dropout of hidden states.", "float", "float", unit="probability", ge=0, le=1
    )
    megatron_lm_attention_softmax_in_fp32: bool | None = _key(
        "attention_softmax_in_fp32", True, "Compute attention's softmax in fp32.", "bool"
    )
    megatron_lm_expert_tensor_parallel_size: int | None = _key(
        "expert_tensor_parallel_size", 1, "Ranks of tensor parallelism inside an expert.", "int", "int",
        unit="ranks", ge=1,
    )  # fmt: skip
    megatron_lm_calculate_per_token_loss: bool | None = _key(
        "calculate_per_token_loss", True, "Average the loss over tokens instead of samples.", "bool"
    )
    megatron_lm_use_rotary_position_embeddings: bool | None = _key(
        "use_rotary_position_embeddings", True, "Rotary position embeddings.", "bool"
    )
