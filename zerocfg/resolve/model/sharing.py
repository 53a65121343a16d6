"""Which ranks share a copy of the model, each layer, or a sequence. Raises ValueError for what is not modelled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocfg.memory.options import TorchOptions
from zerocfg.resolve.model.trl_trainer import GRPO
from zerocfg.run.stages.fsdp import PARALLEL

if TYPE_CHECKING:
    from zerocfg.memory.options import Options
    from zerocfg.resolve.model.reader import Reader


def shard_ranks(read: Reader, world_size: int, strategy: Any) -> int | None:
    """Ranks that share one copy of the model, where that is not all of them."""
    replicas = read.count(f"{PARALLEL}dp_replicate_size", 1)
    if _dimension(read, "tp") > 1:
        raise ValueError(
            f"parallelism_config has tp_size {_dimension(read, 'tp')} beside FSDP, which is not modelled: accelerate "
            "1.15 refuses a model that transformers 5.23 has split (ImportError: ReplicateParallel), and splits none "
            "that is loaded whole, so that its ranks repeat each other's work"
        )
    if replicas > 1:
        return _dimension(read, "dp_shard") * _dimension(read, "cp")  # accelerate: the mesh dimension dp_shard_cp
    if strategy == "NO_SHARD":
        return 1
    if strategy in ("HYBRID_SHARD", "HYBRID_SHARD_ZERO2"):
        return max(world_size // read.count("num_machines", 1), 1)  # torch shards within a node
    return None


def split_by_deepspeed(read: Reader) -> int:
    """Ranks that share each layer of a DeepSpeed engine."""
    if _dimension(read, "tp") > 1:
        raise ValueError(
            f"parallelism_config has tp_size {_dimension(read, 'tp')} beside DeepSpeed, which is not modelled; "
            "what splits the layers of its models is `tensor_parallel.autotp_size`"
        )
    return read.count("tensor_parallel.autotp_size", 1)


def split_by_transformers(read: Reader, world_size: int) -> int:
    """Ranks that share each layer without DeepSpeed or FSDP: all, where accelerate takes a model that was split."""
    ranks = _dimension(read, "tp")
    if ranks not in (1, world_size):
        raise ValueError(
            f"parallelism_config has tp_size {ranks} for {world_size} ranks, which is modelled for all of them or "
            "beside DeepSpeed (`tensor_parallel.autotp_size`): what is left over transformers shards by itself"
        )
    return ranks


def require_whole(read: Reader, options: Options | TorchOptions, trainer: str | None) -> None:
    """Raises ValueError with one line for what is modelled of a model that is not split only."""
    if options.tensor_parallel == 1:
        return
    named = "tp_size" if isinstance(options, TorchOptions) else "autotp_size"
    said = f"{named} {options.tensor_parallel} splits each layer, which is not modelled"
    if read.flag("use_peft", False):
        raise ValueError(f"{said} with adapters (use_peft)")
    if any(read.flag(f"load_in_{bits}bit", False) for bits in (4, 8)):
        raise ValueError(f"{said} with a quantised base model")
    if trainer == GRPO:
        raise ValueError(f"{said} where completions are generated")


def _dimension(read: Reader, name: str) -> int:
    """Ranks of a dimension of parallelism_config."""
    return read.count(f"{PARALLEL}{name}_size", 1)


def parts_of_sequence(read: Reader) -> int:
    """Ranks that share one sequence: by context parallelism with FSDP 2, by Ulysses with DeepSpeed."""
    return _dimension(read, {"deepspeed": "sp", "fsdp": "cp"}.get(str(read.setting("engine")), ""))
