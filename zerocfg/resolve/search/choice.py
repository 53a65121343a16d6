"""The values that zerocfg may choose, by their setting names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

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
ENGINES = {"single": "one process", "ddp": "DDP", "fsdp": "FSDP 2"}
"""Engines in words; of DeepSpeed the stage tells."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The values that may be open; None: the engine has no such value, or the run has its own.

    ``nodes`` of ``per_node`` ranks, which may be a part of what there is. ``micro_batch`` counts samples of one rank,
    ``accumulation`` micro batches of one optimizer step.
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

    @property
    def processes(self) -> int:
        return self.nodes * self.per_node

    @property
    def way(self) -> Choice:
        """The way to run the job, with whatever micro batch."""
        return replace(self, micro_batch=None, accumulation=None)

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
        return {name: value for name, value in values.items() if value is not None}


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
    return ", ".join(found) or "as it is"
