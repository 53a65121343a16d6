"""The values that zerocfg may choose, by their setting names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from zerocfg.memory.options import Device

Prefer = Literal["throughput", "memory", "cost"]
ZERO = "zero_optimization."
STAGE = ZERO + "stage"
OPTIMIZER_DEVICE = ZERO + "offload_optimizer.device"
PARAM_DEVICE = ZERO + "offload_param.device"
GATHER = ZERO + "stage3_gather_16bit_weights_on_model_save"
MICRO = "train_micro_batch_size_per_gpu"
STEPS = "gradient_accumulation_steps"


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

    @property
    def processes(self) -> int:
        return self.nodes * self.per_node

    @property
    def offloads(self) -> bool:
        """Whether anything is kept on the host or on drives."""
        return any(place not in (None, "none") for place in (self.offload_optimizer, self.offload_param))

    def settings(self) -> dict[str, Any]:
        """The values by the names that they have in a plan."""
        values = {
            "num_processes": self.processes,
            STAGE: self.stage,
            OPTIMIZER_DEVICE: self.offload_optimizer,
            PARAM_DEVICE: self.offload_param,
            MICRO: self.micro_batch,
            STEPS: self.accumulation,
            "gradient_checkpointing": self.checkpointing,
        }
        return {name: value for name, value in values.items() if value is not None}
