"""The values that zerocfg may choose, by their setting names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from zerocfg.memory.options import Options

if TYPE_CHECKING:
    from zerocfg.memory.options import Device
    from zerocfg.resolve.plan import Engine

Prefer = Literal["throughput", "memory", "cost"]
ENGINE = "engine"
ZERO = "zero_optimization."
STAGE = ZERO + "stage"
OPTIMIZER_DEVICE = ZERO + "offload_optimizer.device"
PARAM_DEVICE = ZERO + "offload_param.device"
GATHER = ZERO + "stage3_gather_16bit_weights_on_model_save"
MICRO = "train_micro_batch_size_per_gpu"
STEPS = "gradient_accumulation_steps"
LIVE, REUSE = ZERO + "stage3_max_live_parameters", ZERO + "stage3_max_reuse_distance"
PERSISTENCE = ZERO + "stage3_param_persistence_threshold"
REDUCED, ALLGATHERED = ZERO + "reduce_bucket_size", ZERO + "allgather_bucket_size"
PREFETCHED = ZERO + "stage3_prefetch_bucket_size"
LIGER = "use_liger_kernel"
ENGINES = {"single": "one process", "ddp": "DDP", "fsdp": "FSDP 2"}
"""Engines in words; of DeepSpeed the stage tells."""
Lever = Literal["fused_loss", "live", "persistence", "bucket"]
LEVERS: tuple[Lever, ...] = get_args(Lever)
LIVE_BY_DEFAULT = Options.max_live_parameters


@dataclass(frozen=True, slots=True)
class Choice:
    """The values that may be open; None: the engine has no such value, or the run has its own.

    ``nodes`` of ``per_node`` ranks, which may be a part of what there is. ``micro_batch`` counts samples of one rank,
    ``accumulation`` micro batches of one optimizer step. The last four are levers, which a plan has only where one
    gains enough (:mod:`.levers`): the loss without all logits, and of ZeRO, in elements, what stage 3 keeps gathered,
    up to which size it keeps tensors whole, and its buckets.
    """

    nodes: int
    per_node: int
    stage: int | None = None
    offload_optimizer: Device | None = None
    offload_param: Device | None = None
    micro_batch: int | None = None
    accumulation: int | None = None
    checkpointing: bool | None = None
    engine: Engine | None = None
    fused_loss: bool | None = None
    live: int | None = None
    persistence: int | None = None
    bucket: int | None = None

    @property
    def processes(self) -> int:
        return self.nodes * self.per_node

    @property
    def way(self) -> Choice:
        """The way to run the job, with whatever micro batch and levers."""
        return replace(self.plain, micro_batch=None, accumulation=None)

    @property
    def levers(self) -> tuple[Lever, ...]:
        """Those that it has."""
        return tuple(name for name in LEVERS if getattr(self, name) is not None)

    @property
    def plain(self) -> Choice:
        """The same without levers."""
        return replace(self, fused_loss=None, live=None, persistence=None, bucket=None) if self.levers else self

    def without(self, lever: Lever) -> Choice:
        """The same but for one lever."""
        nothing: dict[str, Any] = {lever: None}
        return replace(self, **nothing)

    @property
    def offloads(self) -> bool:
        """Whether anything is kept on the host or on drives."""
        return any(place not in (None, "none") for place in (self.offload_optimizer, self.offload_param))

    @property
    def sharding(self) -> int:
        """What the ranks share among themselves, in stages of ZeRO: FSDP 2 shards all of it."""
        return 3 if self.engine == "fsdp" else self.stage or 0

    def settings(self) -> dict[str, Any]:
        """The values by the names that they have in a plan."""
        values = {
            ENGINE: self.engine,
            "num_processes": self.processes,
            STAGE: self.stage,
            OPTIMIZER_DEVICE: self.offload_optimizer,
            PARAM_DEVICE: self.offload_param,
            MICRO: self.micro_batch,
            STEPS: self.accumulation,
            "gradient_checkpointing": self.checkpointing,
        }
        for name in self.levers:
            values |= self.settings_of(name)
        return {name: value for name, value in values.items() if value is not None}

    def settings_of(self, lever: Lever) -> dict[str, Any]:
        """The settings that one of its levers is made of, with their values."""
        value = getattr(self, lever)
        if lever == "bucket":
            return dict.fromkeys((REDUCED, PREFETCHED if self.stage == 3 else ALLGATHERED), value)
        if lever == "live" and value < LIVE_BY_DEFAULT:
            return {LIVE: value, REUSE: value}  # either of them alone would keep as much
        return {{"fused_loss": LIGER, "live": LIVE, "persistence": PERSISTENCE}[lever]: value}


def describe_plan(settings: dict[str, Any]) -> str:
    """A plan in short: ``ZeRO-3, optimizer on cpu, 2 x 8, recomputed``."""
    engine = settings.get(ENGINE, "")
    alone = engine == "ddp" and settings.get("num_processes") == 1
    found = [name for name in [ENGINES.get("single" if alone else engine)] if name]
    if STAGE in settings:
        found.append(f"ZeRO-{settings[STAGE]}")
    places = [settings.get(name, "none") for name in (OPTIMIZER_DEVICE, PARAM_DEVICE)]
    if places[0] == places[1] != "none":
        found.append(f"all on {places[0]}")
    else:
        found += [
            f"{what} on {place}"
            for what, place in zip(("optimizer", "parameters"), places, strict=True)
            if place != "none"
        ]
    if MICRO in settings:
        found.append(
            f"{settings[MICRO]} x {settings[STEPS]}" if STEPS in settings else f"micro batch {settings[MICRO]}"
        )
    if settings.get("gradient_checkpointing"):
        found.append("recomputed")
    if settings.get(LIGER):
        found.append("fused loss")
    for name, what in ((LIVE, "live parameters"), (PERSISTENCE, "whole tensors"), (REDUCED, "buckets")):
        if name in settings:
            found.append(f"{what} {'of ' if name == REDUCED else 'up to '}{settings[name]:.3g}".replace("e+0", "e"))
    return ", ".join(found) or "as it is"
