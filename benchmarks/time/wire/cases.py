"""The cases of the comparison: what is run on the real libraries beside the options that predict it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from zerocfg.memory.options import Options, TorchOptions, Workload
from zerocfg.memory.time.wire import WireOptions
from zerocfg.models.model_facts import ModelFacts, from_config

HUGE = 10**9
# Two shapes: one that 2 and 4 ranks divide and one that nothing divides, so that padding shows.
EVEN = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 256,
}
ODD: dict[str, Any] = {
    "hidden_size": 57,
    "intermediate_size": 131,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 10,
    "vocab_size": 257,
}


@dataclass(frozen=True)
class Case:
    """``run`` goes to ``count.py``; the rest to :func:`zerocfg.memory.time.wire.traffic`. ``exact``: to the byte."""

    label: str
    run: dict[str, Any]
    options: Options | TorchOptions
    wire: WireOptions = field(default_factory=WireOptions)
    exact: bool = True

    @property
    def facts(self) -> ModelFacts:
        config = {"model_type": "llama", "tie_word_embeddings": False, **self.run["model"]}
        found = from_config(config)
        if "frozen" in self.run:
            rows = config["num_attention_heads"] * config["head_dim"]
            trained = config["num_hidden_layers"] * rows * config["hidden_size"]  # the query projections
            found = found.model_copy(update={"trainable_parameters": trained})
        return found

    @property
    def workload(self) -> Workload:
        return Workload(1, 8, gradient_checkpointing=self.run["checkpointing"])


def deepspeed(
    label: str,
    stage: int,
    ranks: int = 2,
    accumulation: int = 1,
    checkpointing: bool = False,
    model: dict[str, Any] = EVEN,
    zero: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
    frozen: str | None = None,
    wire: WireOptions | None = None,
    exact: bool = True,
    **options: Any,
) -> Case:
    """``zero`` and ``more`` are written into the config, ``options`` are the same settings in our words."""
    section = {"stage": stage, **(zero or {})}
    if stage == 3:
        # default thresholds keep every tensor of so small a model on every rank, and every gathered one until backward
        persistent, reuse, live = 100, options.pop("reuse", 0), options.pop("live", HUGE)
        prefetch = options.pop("prefetch", 0)
        section |= {
            "stage3_param_persistence_threshold": persistent,
            "stage3_max_reuse_distance": reuse,
            "stage3_max_live_parameters": live,
            "stage3_prefetch_bucket_size": prefetch,
        }
        options |= {
            "param_persistence_threshold": persistent,
            "max_reuse_distance": reuse,
            "max_live_parameters": live,
            "prefetch_bucket_size": prefetch,
        }
    run = {
        "kind": "deepspeed",
        "world_size": ranks,
        "accumulation": accumulation,
        "checkpointing": checkpointing,
        "model": model,
        "config": {"zero_optimization": section, **(more or {})},
        **({"frozen": frozen} if frozen else {}),
    }
    if "accumulation_dtype" in options:
        options["accumulation"] = options.pop("accumulation_dtype")
    chosen = Options(stage, ranks, gradient_accumulation_steps=accumulation, **options)
    return Case(label, run, chosen, wire or WireOptions(), exact)


def plain(
    label: str, kind: str, ranks: int = 2, accumulation: int = 1, checkpointing: bool = False, **more: Any
) -> Case:
    """DDP and FSDP. ``more``: what ``count.py`` takes; the same in our words follows from it."""
    wire = WireOptions(sync_every_micro_step=more.pop("every", False))
    exact = more.pop("exact", True)
    run = {
        "kind": kind,
        "world_size": ranks,
        "accumulation": accumulation,
        "checkpointing": checkpointing,
        "model": more.pop("model", EVEN),
        "no_sync": not wire.sync_every_micro_step,
        "sync_always": wire.sync_every_micro_step,
        **more,
    }
    options = TorchOptions(
        kind,  # type: ignore[arg-type]
        ranks,
        gradient_accumulation_steps=accumulation,
        reshard_after_forward=more.get("reshard", True) and more.get("strategy", "FULL_SHARD") == "FULL_SHARD",
        shard_ranks=more.get("shard_ranks"),
    )
    return Case(label, run, options, wire, exact)


def matrix() -> Iterator[Case]:
    """Stages 0 to 3, 2 and 4 ranks, accumulation 1, 2 and 4, with and without checkpointing.

    Stage 3 twice: with the defaults, under which a model this small stays gathered until backward, and with reuse and
    prefetching off, under which nothing does. A checkpointed block is then gathered a third time, all but its last
    module; which one that is, zerocfg does not know, so that its figure there is a bound.
    """
    for ranks in (2, 4):
        for accumulation in (1, 2, 4):
            for checkpointing in (False, True):
                shape = f"{ranks} ranks, accumulation {accumulation}{', checkpointing' if checkpointing else ''}"
                for stage in (0, 1, 2):
                    yield deepspeed(f"ZeRO-{stage}, {shape}", stage, ranks, accumulation, checkpointing)
                kept: dict[str, Any] = {"reuse": HUGE, "prefetch": 50_000_000}
                yield deepspeed(f"ZeRO-3, {shape}, all kept", 3, ranks, accumulation, checkpointing, **kept)
                label = f"ZeRO-3, {shape}, nothing kept"
                yield deepspeed(label, 3, ranks, accumulation, checkpointing, exact=not checkpointing)


def settings() -> Iterator[Case]:
    """One setting at a time."""
    full = WireOptions(communication="fp32")
    for stage in (1, 2, 3):
        yield deepspeed(f"ZeRO-{stage}, widths that nothing divides", stage, 4, 2, model=ODD)
        more: dict[str, Any] = {"communication_data_type": "fp32"}
        yield deepspeed(f"ZeRO-{stage}, communication_data_type fp32", stage, 2, 2, more=more, wire=full)
        more = {"data_types": {"grad_accum_dtype": "fp32"}}
        yield deepspeed(f"ZeRO-{stage}, grad_accum_dtype fp32", stage, 2, 2, more=more, accumulation_dtype="fp32")
        frozen = f"ZeRO-{stage}, only the query projections trained"
        yield deepspeed(frozen, stage, 2, 1, frozen="q_proj")
        small = {"reduce_bucket_size": 20000}
        yield deepspeed(f"ZeRO-{stage}, small buckets", stage, 2, 1, zero=small, reduce_bucket_size=20000)
    for stage in (1, 2):
        offload = {"offload_optimizer": {"device": "cpu"}}
        more = {"zero_force_ds_cpu_optimizer": False}
        yield deepspeed(
            f"ZeRO-{stage}, optimizer on the host", stage, 2, 2, zero=offload, more=more, offload_optimizer="cpu"
        )
        each = {"use_multi_rank_bucket_allreduce": False}
        wire = WireOptions(multi_rank_allreduce=False)
        yield deepspeed(f"ZeRO-{stage}, use_multi_rank_bucket_allreduce off", stage, 4, 1, zero=each, wire=wire)
    for stage in (2, 3):
        wire = WireOptions(reduce_scatter=False)
        yield deepspeed(f"ZeRO-{stage}, reduce_scatter off", stage, 2, 1, zero={"reduce_scatter": False}, wire=wire)
    yield deepspeed("ZeRO-0, fp32", 0, 2, 2, more={"bf16": {"enabled": False}}, precision="fp32")
    hpz = {"zero_hpz_partition_size": 2}
    for accumulation in (1, 2):
        label = f"ZeRO-3, hpZ of 2, accumulation {accumulation}"
        yield deepspeed(label, 3, 4, accumulation, zero=hpz, secondary_partition_size=2)
    deep = EVEN | {"num_hidden_layers": 24}
    for reuse, live, prefetch in ((100_000, 100_000, 5000), (100_000, 100_000, 0), (200_000, 200_000, 10_000)):
        for checkpointing in (False, True):
            label = f"ZeRO-3, 24 layers, reuse {reuse}, live {live}, prefetch {prefetch}"
            label += ", checkpointing" if checkpointing else ""
            limits: dict[str, Any] = {"reuse": reuse, "live": live, "prefetch": prefetch}
            yield deepspeed(label, 3, 2, 1, checkpointing, model=deep, exact=False, **limits)


def without_deepspeed() -> Iterator[Case]:
    """DDP, FSDP 1 and FSDP 2, with accumulation."""
    for ranks, accumulation in ((2, 1), (2, 4), (4, 2)):
        shape = f"{ranks} ranks, accumulation {accumulation}"
        yield plain(f"DDP, {shape}", "ddp", ranks, accumulation)
        for kind, name in (("fsdp1", "FSDP 1"), ("fsdp2", "FSDP 2")):
            yield plain(f"{name}, {shape}", kind, ranks, accumulation)
            yield plain(f"{name}, {shape}, checkpointing", kind, ranks, accumulation, True)
    yield plain("DDP, accumulation 2, without no_sync", "ddp", 2, 2, every=True)
    yield plain("FSDP 1, accumulation 2, without no_sync", "fsdp1", 2, 2, every=True)
    yield plain("FSDP 2, accumulation 2, without no_sync", "fsdp2", 2, 2, every=True)
    yield plain("FSDP 1, accumulation 2, SHARD_GRAD_OP", "fsdp1", 2, 2, strategy="SHARD_GRAD_OP")
    yield plain("FSDP 2, accumulation 2, no resharding", "fsdp2", 2, 2, reshard=False)
    yield plain("FSDP 2, accumulation 2, 2 x 2 hybrid", "fsdp2", 4, 2, shard_ranks=2)
    for kind, name in (("ddp", "DDP"), ("fsdp1", "FSDP 1"), ("fsdp2", "FSDP 2")):
        yield plain(f"{name}, only the query projections trained", kind, 2, 1, frozen="q_proj")
        yield plain(f"{name}, widths that nothing divides", kind, 4, 1, model=ODD, exact=kind == "ddp")


def cases() -> list[Case]:
    return [*matrix(), *settings(), *without_deepspeed()]
