"""`parallelism_config` of an accelerate file: sizes of the dimensions of the device mesh."""

from __future__ import annotations

from typing import ClassVar, Literal

from zerocfg.models.accelerate.facts import option, variable
from zerocfg.models.base import Section, key


def _exported(name: str, **needs: dict[str, object]) -> list[dict[str, object]]:
    """The variable of ``name``: exported whenever the section is in use and the other ``needs`` hold."""
    return [
        variable(
            f"PARALLELISM_CONFIG_{name}",
            "multi_gpu",
            "deepspeed",
            when="always",
            needs={"use_parallelism_config": {"const": True}, **needs},
        )
    ]


_CP: dict[str, dict[str, object]] = {"parallelism_config_cp_size": {"exclusiveMinimum": 1}}
_SP: dict[str, dict[str, object]] = {"parallelism_config_sp_size": {"exclusiveMinimum": 1}}


class ParallelismConfig(Section):
    """The keys must be written with their prefix; a key without it is silently dropped.

    Any non-empty mapping sets ACCELERATE_USE_PARALLELISM_CONFIG and exports every size. Their product must be
    the number of processes.
    """

    unknown: ClassVar[Literal["error", "ignored", "passed"]] = "ignored"
    null: ClassVar[Literal["absent", "error"]] = "absent"
    source: ClassVar[str] = "accelerate/parallelism_config.py"
    library: ClassVar[str] = "accelerate"
    prefix: ClassVar[str] = "parallelism_config_"
    also: ClassVar[str] = "accelerate-launcher"

    parallelism_config_dp_replicate_size: int = key(
        "Replicas of the sharded group (data parallelism).",
        default=1,
        unit="ranks",
        ge=1,
        reads="int",
        cli=option("parallelism_config_dp_replicate_size"),
        env=_exported("DP_REPLICATE_SIZE"),
    )
    parallelism_config_dp_shard_size: int = key(
        "Ranks that parameters are sharded over.",
        default=1,
        unit="ranks",
        ge=1,
        reads="int",
        cli=option("parallelism_config_dp_shard_size"),
        env=_exported("DP_SHARD_SIZE"),
    )
    parallelism_config_tp_size: int = key(
        "Ranks of tensor parallelism; they share each batch.",
        default=1,
        unit="ranks",
        ge=1,
        reads="int",
        cli=option("parallelism_config_tp_size"),
        env=_exported("TP_SIZE"),
    )
    parallelism_config_cp_size: int = key(
        "Ranks that share one sequence by context parallelism (FSDP version 2). A quoted number breaks the launch.",
        default=1,
        unit="ranks",
        ge=1,
        reads="raw",
        cli=option("parallelism_config_cp_size"),
        env=_exported("CP_SIZE"),
    )
    parallelism_config_cp_backend: Literal["torch"] = key(
        "Library of context parallelism.",
        default="torch",
        reads="str",
        cli=option("parallelism_config_cp_backend"),
        env=_exported("CP_BACKEND"),
    )
    parallelism_config_cp_comm_strategy: Literal["allgather", "alltoall"] = key(
        "How keys and values travel between the ranks of one sequence.",
        default="allgather",
        reads="str",
        cli=option("parallelism_config_cp_comm_strategy"),
        env=_exported("CP_COMM_STRATEGY", **_CP),
    )
    parallelism_config_sp_size: int = key(
        "Ranks that share one sequence by Ulysses sequence parallelism (DeepSpeed). A quoted number breaks the launch.",
        default=1,
        unit="ranks",
        ge=1,
        reads="raw",
        cli=option("parallelism_config_sp_size"),
        env=_exported("SP_SIZE"),
    )
    parallelism_config_sp_backend: Literal["deepspeed"] = key(
        "Library of sequence parallelism.",
        default="deepspeed",
        reads="str",
        cli=option("parallelism_config_sp_backend"),
        env=_exported("SP_BACKEND"),
    )
    parallelism_config_sp_seq_length: int | None = key(
        "Length of every sequence; read only when sp_seq_length_is_variable is false, and then needed.",
        default=None,
        unit="tokens",
        reads="int",
        cli=option("parallelism_config_sp_seq_length"),
        env=_exported("SP_SEQ_LENGTH", **_SP),
    )
    parallelism_config_sp_seq_length_is_variable: bool = key(
        "Sequence lengths differ between batches.",
        default=True,
        reads="true",
        cli=option("parallelism_config_sp_seq_length_is_variable"),
        env=_exported("SP_SEQ_LENGTH_IS_VARIABLE", **_SP),
    )
    parallelism_config_sp_attn_implementation: str = key(
        "Attention of the model: sdpa, flash_attention_2, flash_attention_3 or a Hub kernel whose name "
        "holds a slash and flash-attn.",
        default="sdpa",
        reads="str",
        pattern=r"^(sdpa|flash_attention_2|flash_attention_3|.*/.*flash-attn.*|.*flash-attn.*/.*)$",
        cli=option("parallelism_config_sp_attn_implementation"),
        env=_exported("SP_ATTN_IMPLEMENTATION", **_SP),
    )
