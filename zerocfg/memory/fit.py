"""Which ZeRO stage is enough: the first of a fixed order whose model states leave the room that is asked for.

States and DeepSpeed's buffers only (see :mod:`zerocfg.memory.states`); pass what activations need as
``reserved_gib``. The order goes from what communicates least to what needs least memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zerocfg.memory.states import Options, States, model_states

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.models.model_facts import ModelFacts

GIB = 1 << 30
SAFE_SHARE = 0.9  # of a device; the rest is the CUDA context, communication buffers and fragmentation


@dataclass(frozen=True)
class Fit:
    """The answer: the states of one rank, what there is, and whether the host's memory could be judged."""

    states: States
    device_bytes: int  # free for states on each device, after the reserve
    host_bytes: int | None  # for each rank; None: the memory of the host is not known
    passed_over: tuple[States, ...]  # tried before, too large

    @property
    def stage(self) -> int:
        return self.states.options.stage


def smallest_stage_that_fits(
    facts: ModelFacts,
    hardware: HardwareProfile,
    options: Options | None = None,
    *,
    reserved_gib: float = 0.0,
    share: float = SAFE_SHARE,
    offload: bool = True,
) -> Fit | None:
    """The least partitioned ZeRO configuration whose states fit; None when not even full offload does.

    ``options`` gives everything but stage, ranks and offload (precision, bucket sizes, ...).
    ``reserved_gib`` is kept free on each device for activations; with 0 the answer is a lower bound of
    the stage. Of the device's memory ``share`` is used. Without knowledge of the host's memory, offload
    is taken to fit there.

    Raises ValueError when the number of parameters or the device's memory is not known.
    """
    memory = hardware.accelerator.planning_gib
    if memory is None:
        raise ValueError(f"the memory of {hardware.accelerator.name} is not known")
    room = int(memory * share * GIB - reserved_gib * GIB)
    ram = hardware.host.planning_gib if hardware.host else None
    host_room = None if ram is None else int(ram * share * GIB / hardware.accelerators_per_node)
    passed_over: list[States] = []
    for candidate in _candidates(options or Options(0, 1), hardware.world_size, offload):
        states = model_states(facts, candidate)
        if states.peak("device") <= room and (host_room is None or states.peak("host") <= host_room):
            return Fit(states, room, host_room, tuple(passed_over))
        passed_over.append(states)
    return None


def _candidates(options: Options, world_size: int, offload: bool) -> Iterator[Options]:
    plain = replace(options, world_size=world_size, offload_optimizer="none", offload_param="none")
    # One rank has nothing to partition: its choices are stage 0 and offload.
    for stage in (0, 1, 2, 3) if world_size > 1 else (0,):
        yield replace(plain, stage=stage)
    if offload:
        yield replace(plain, stage=2, offload_optimizer="cpu")
        yield replace(plain, stage=3, offload_optimizer="cpu")
        yield replace(plain, stage=3, offload_optimizer="cpu", offload_param="cpu")
