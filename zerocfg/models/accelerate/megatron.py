"""`megatron_lm_config` of an accelerate file: the Megatron-LM back end."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from zerocfg.models.accelerate.facts import option, variable
from zerocfg.models.base import Section, key


def _key(
    name: str,
    doc: str,
    reads: Literal["int", "float", "bool", "str"],
    *,
    default: object,
    when: Literal["always", "set"] = "set",
    **facts: Any,
) -> Any:
    """One key; ``default`` holds in a job without the variable."""
    variable_name = f"MEGATRON_LM_{name.upper()}"
    exported = variable(variable_name, "multi_gpu", when=when, needs={"use_megatron_lm": {"const": True}})
    return key(doc, default=default, reads=reads, cli=option(f"megatron_lm_{name}"), env=[exported], **facts)


class MegatronLmConfig(Section):
    """The keys must be written with their prefix; a key without it is silently dropped."""

    unknown: ClassVar[Literal["error", "ignored", "passed"]] = "ignored"
    null: ClassVar[Literal["absent", "error"]] = "absent"
    source: ClassVar[str] = "accelerate/utils/dataclasses.py"
    library: ClassVar[str] = "accelerate"
    prefix: ClassVar[str] = "megatron_lm_"
    also: ClassVar[str] = "accelerate-launcher"

    megatron_lm_tp_degree: int = _key(
        "tp_degree", "Ranks of tensor parallelism.", "int", default=1, when="always", unit="ranks", ge=1
    )
    megatron_lm_pp_degree: int = _key(
        "pp_degree", "Pipeline stages.", "int", default=1, when="always", unit="ranks", ge=1
    )
    megatron_lm_num_micro_batches: int | None = _key(
        "num_micro_batches", "Micro batches in one global batch.", "int", default=1, unit="micro batches", ge=1
    )
    megatron_lm_sequence_parallelism: bool | None = _key(
        "sequence_parallelism", "Shard the sequence over the tensor parallel ranks.", "bool", default=False
    )
    megatron_lm_recompute_activations: bool | None = _key(
        "recompute_activations", "Recompute attention in the backward pass.", "bool", default=False
    )
    megatron_lm_use_distributed_optimizer: bool | None = _key(
        "use_distributed_optimizer", "Shard optimizer state over the data parallel ranks.", "bool", default=False
    )
    megatron_lm_gradient_clipping: float = _key(
        "gradient_clipping", "Largest gradient norm.", "float", default=1.0, when="always", unit="norm", ge=0
    )
    megatron_lm_use_custom_fsdp: bool = _key(
        "use_custom_fsdp", "Use Megatron's own FSDP.", "bool", default=False, when="always"
    )
    megatron_lm_no_load_optim: bool | None = _key(
        "no_load_optim", "Leave optimizer state out when loading.", "bool", default=False
    )
    megatron_lm_eod_mask_loss: bool | None = _key(
        "eod_mask_loss", "Leave end-of-document tokens out of the loss.", "bool", default=False
    )
    megatron_lm_no_save_optim: bool | None = _key(
        "no_save_optim", "Leave optimizer state out when saving.", "bool", default=False
    )
    megatron_lm_optimizer_cpu_offload: bool | None = _key(
        "optimizer_cpu_offload", "Keep optimizer state in host memory.", "bool", default=False
    )
    megatron_lm_use_precision_aware_optimizer: bool | None = _key(
        "use_precision_aware_optimizer", "Let the optimizer hold its state in lower precision.", "bool", default=False
    )
    megatron_lm_overlap_cpu_optimizer_d2h_h2d: bool | None = _key(
        "overlap_cpu_optimizer_d2h_h2d", "Overlap an offloaded optimizer's copies with its step.", "bool", default=False
    )
    megatron_lm_decoder_last_pipeline_num_layers: int | None = _key(
        "decoder_last_pipeline_num_layers",
        "Decoder layers in the last pipeline stage.",
        "int",
        default=None,
        unit="layers",
    )
    megatron_lm_recompute_granularity: str | None = _key(
        "recompute_granularity", "What is recomputed: full or selective.", "str", default="full"
    )
    megatron_lm_recompute_method: str | None = _key(
        "recompute_method", "How layers to recompute are chosen: uniform or block.", "str", default="uniform"
    )
    megatron_lm_recompute_num_layers: int | None = _key(
        "recompute_num_layers", "Layers in one unit of recomputation.", "int", default=1, unit="layers"
    )
    megatron_lm_attention_backend: bool | None = _key(
        "attention_backend", "A truth word, although the name suggests a back end.", "bool", default=True
    )
    megatron_lm_expert_model_parallel_size: int | None = _key(
        "expert_model_parallel_size", "Ranks that experts are spread over.", "int", default=1, unit="ranks", ge=1
    )
    megatron_lm_context_parallel_size: int | None = _key(
        "context_parallel_size",
        "Ranks that share one sequence; 2 when the key is missing.",
        "int",
        default=2,
        unit="ranks",
        ge=1,
    )
    megatron_lm_attention_dropout: float | None = _key(
        "attention_dropout", "Dropout of attention weights.", "float", default=0.0, unit="probability", ge=0, le=1
    )
    megatron_lm_hidden_dropout: float | None = _key(
        "hidden_dropout", "Dropout of hidden states.", "float", default=0.0, unit="probability", ge=0, le=1
    )
    megatron_lm_attention_softmax_in_fp32: bool | None = _key(
        "attention_softmax_in_fp32", "Compute attention's softmax in fp32.", "bool", default=True
    )
    megatron_lm_expert_tensor_parallel_size: int | None = _key(
        "expert_tensor_parallel_size",
        "Ranks of tensor parallelism inside an expert.",
        "int",
        default=1,
        unit="ranks",
        ge=1,
    )
    megatron_lm_calculate_per_token_loss: bool | None = _key(
        "calculate_per_token_loss", "Average the loss over tokens instead of samples.", "bool", default=True
    )
    megatron_lm_use_rotary_position_embeddings: bool | None = _key(
        "use_rotary_position_embeddings", "Rotary position embeddings.", "bool", default=True
    )
