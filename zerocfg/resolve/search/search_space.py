"""The search space of a run: what it leaves open, and every combination of it.

Without ``goals:`` only the ZeRO stage is open; with them everything that no source names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from zerocfg.memory.options import Device
from zerocfg.resolve.engine.open_engines import TRAINERS
from zerocfg.resolve.model import grpo
from zerocfg.resolve.model.fused_loss import can_fuse, leaves_open, stated
from zerocfg.resolve.model.setup import CHECKPOINTING, arguments_written
from zerocfg.resolve.model.trl_trainer import GRPO, SFT, trainer_of
from zerocfg.resolve.search.candidates import free_on_drives, is_named, is_set
from zerocfg.resolve.search.choice import (
    ALLGATHERED,
    LIVE,
    MICRO,
    OPTIMIZER_DEVICE,
    PARAM_DEVICE,
    PERSISTENCE,
    PREFETCHED,
    REDUCED,
    REUSE,
    STAGE,
    STEPS,
    Choice,
    Lever,
    Prefer,
)
from zerocfg.run.model import UNKNOWN, Effective, Setting
from zerocfg.run.stages.fsdp import PARALLEL

if TYPE_CHECKING:
    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.resolve.inputs import Inputs
    from zerocfg.resolve.plan import Engine

Offload = tuple[Device, Device]  # of the optimizer, of the parameters
LARGEST_MICRO = 64  # samples
OFFLOADS: dict[int, tuple[Offload, ...]] = {
    0: (("none", "none"),),
    1: (("none", "none"),),
    2: (("none", "none"), ("cpu", "none")),
    3: (("none", "none"), ("cpu", "none"), ("cpu", "cpu"), ("nvme", "none"), ("nvme", "cpu"), ("nvme", "nvme")),
}

OF_SIZES: dict[Lever, tuple[str, ...]] = {
    "live": (LIVE, REUSE),
    "persistence": (PERSISTENCE,),
    "bucket": (REDUCED, ALLGATHERED, PREFETCHED),
}
"""The levers of ZeRO, and the settings by which an author decides about them."""
SIZES = tuple(name for names in OF_SIZES.values() for name in names)


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """The open values of a run. One value: it is fixed; None: the engine has no such value."""

    layouts: tuple[tuple[int, int], ...]
    stages: tuple[int | None, ...]
    offloads: tuple[Offload, ...] | None
    checkpointing: tuple[bool | None, ...]
    micro: int | None
    steps: int | None
    micro_open: bool
    steps_open: bool
    global_batch: int | None
    sharing: int = 1
    """Ranks that get the same samples: those of one tensor, or of one sequence."""
    group: int = 1
    """Samples that one prompt has, all of which have to be in the batch that is generated for a step."""
    levers: frozenset[Lever] = frozenset()
    """Values that stay at their defaults unless they gain; see :mod:`.levers`."""
    engine: Engine | None = None
    """The engine that these values are of, where several are compared."""


class ContradictionError(ValueError):
    """The goals cannot be met with what the sources fix: one line, and what to change."""

    def __init__(self, message: str, help: str) -> None:
        super().__init__(message)
        self.help = help


def choices(what: SearchSpace) -> Iterator[Choice]:
    """Every combination. Raises ContradictionError when no batch gives the global one, however many ranks are used."""
    why_not: ContradictionError | None = None
    any_batch = False
    for nodes, each in what.layouts:
        if what.engine == "fsdp" and nodes * each == 1:
            continue  # nothing to shard over
        try:
            pairs = batches(what, _data_parallel(what, nodes * each))
        except ContradictionError as error:
            why_not = why_not or error
            continue
        any_batch = True
        for stage, recompute, (micro, steps) in product(what.stages, what.checkpointing, pairs):
            offloads = [(None, None)] if stage is None else _offloads(what, stage)
            for optimizer, parameters in offloads:
                yield Choice(nodes, each, stage, optimizer, parameters, micro, steps, recompute, what.engine)
    if why_not is not None and not any_batch:
        raise why_not


def _data_parallel(what: SearchSpace, ranks: int) -> int:
    if ranks % what.sharing:
        message = f"{ranks} ranks cannot be divided into groups of {what.sharing} that share their samples"
        raise ContradictionError(message, "Correct `parallelism_config`, or use another number of devices.")
    return ranks // what.sharing


def _offloads(what: SearchSpace, stage: int) -> list[tuple[Device | None, Device | None]]:
    if what.offloads is None:
        return [(None, None)]
    return [pair for pair in OFFLOADS[stage] if pair in what.offloads]


def batches(what: SearchSpace, ranks: int) -> list[tuple[int | None, int | None]]:
    """Micro batch and accumulation that give the global batch on that many ranks."""
    micro, steps, wanted = what.micro, what.steps, what.global_batch
    if wanted is None:
        if not what.micro_open:
            return [(None, None)]
        sizes = [1 << power for power in range(LARGEST_MICRO.bit_length())]
        return [(size, None) for size in sizes if size * ranks * (steps or 1) % what.group == 0]
    if micro is None and not what.micro_open:
        raise ContradictionError(
            "a global batch is wanted, but nothing that zerocfg writes decides the micro batch",
            "Name the recipe, or write `train_micro_batch_size_per_gpu` into the DeepSpeed config.",
        )
    if wanted % what.group:
        raise ContradictionError(
            f"{wanted} completions of a step are no whole groups of {what.group}, which each prompt has",
            f"Ask for a multiple of {math.lcm(what.group, ranks)}, or change `num_generations`.",
        )
    if wanted % ranks:
        near = [item for item in (wanted // ranks * ranks, -(-wanted // ranks) * ranks) if item]
        raise ContradictionError(
            f"{wanted} sample{'s' if wanted != 1 else ''} cannot be shared among {ranks} ranks",
            f"Ask for {' or '.join(map(str, dict.fromkeys(near)))}, or use another number of devices.",
        )
    own = wanted // ranks
    if not what.micro_open and not what.steps_open:
        if micro * steps != own:  # type: ignore[operator]
            total = ranks * micro * steps  # type: ignore[operator]
            raise ContradictionError(
                f"{wanted} samples are wanted, but {ranks} ranks x micro batch {micro} x {steps} accumulation steps "
                f"are {total}",
                "Take one of the two out of the sources (zerocfg then chooses it for the recipe), or correct the goal.",
            )
        return [(None, None)]
    for fixed, name, is_open in ((micro, "micro batch", what.micro_open), (steps, "accumulation", what.steps_open)):
        if not is_open and (not fixed or own % fixed):
            raise ContradictionError(
                f"{wanted} samples over {ranks} ranks are {own} each, which {name} {fixed} does not divide",
                f"Take the {name} out of the sources, or ask for a multiple of {ranks * (fixed or 1)} samples.",
            )
    if not what.micro_open:
        return [(None, own // micro)]  # type: ignore[operator]
    if not what.steps_open:
        return [(own // steps, None)]  # type: ignore[operator]
    fitting = [size for size in range(1, min(own, LARGEST_MICRO) + 1) if own % size == 0]
    return [(size, own // size) for size in fitting]


def layouts(profile: HardwareProfile, prefer: Prefer) -> tuple[tuple[int, int], ...]:
    """All devices; for the lowest cost also parts of them: half of the nodes, half of a node, and so on."""
    nodes, each = profile.nodes, profile.accelerators_per_node
    found = [(nodes, each)]
    if prefer == "cost":
        while nodes > 1:
            nodes //= 2
            found.append((nodes, each))
        while each > 1:
            each //= 2
            found.append((nodes, each))
    return tuple(found)


def search_space(inputs: Inputs, before: Effective) -> SearchSpace | None:
    """The values to choose from; None: there is nothing to search. ``before``: the settings before any choice."""
    goals, sharded = inputs.spec.goals, inputs.engine == "deepspeed"
    stages = _stages(inputs, before) if sharded else (None,)
    if goals is None and (not sharded or stages_named(before)):
        return None
    batch = goals is not None and _writes_batch(inputs)
    wanted = goals.global_batch_size if goals is not None else None
    return SearchSpace(
        layouts=layouts(inputs.profile, goals.prefer if goals else "throughput") if inputs.profile else (),
        stages=stages,
        offloads=offloads(inputs) if goals is not None and sharded and not _names_offload(before) else None,
        checkpointing=(False, True) if goals is not None and _recomputation_open(inputs) else (None,),
        micro=_count(before.get(MICRO)),
        steps=_count(before.get(STEPS)),
        micro_open=batch and not is_set(before.get(MICRO)),
        steps_open=batch and not is_set(before.get(STEPS)) and wanted is not None,
        global_batch=wanted,
        group=_group(inputs),
        levers=_levers(inputs, before) if goals is not None else frozenset(),
        sharing=_sharing(before, ("sp",) if sharded else ("tp", "cp", "sp")),
        engine=inputs.engine if inputs.before_engine is not None else None,
    )


def leaves_batch_open(inputs: Inputs, before: Effective) -> bool:
    """Whether the samples of a step depend on what the search chooses: micro batch, accumulation or ranks."""
    space = search_space(inputs, before)
    return space is not None and (space.micro_open or space.steps_open or len(space.layouts) > 1)


def _levers(inputs: Inputs, before: Effective) -> frozenset[Lever]:
    """Those of which no source names a setting, not even as ``"auto"``: then the Trainer fills it."""
    found: set[Lever] = {"fused_loss"} if _fused_loss_open(inputs, before) else set()
    if inputs.engine == "deepspeed":
        named = {name for name in SIZES if is_named(before, name)}
        found |= {lever for lever, names in OF_SIZES.items() if not named & set(names)}
    return frozenset(found)


def _fused_loss_open(inputs: Inputs, before: Effective) -> bool:
    """Only where the author has Liger's package; what shares sequences computes a loss of its own."""
    stages = _stages(inputs, before) if inputs.engine == "deepspeed" else (None,)
    if inputs.run.recipe is None or not leaves_open(inputs) or _sharing(before, ("tp", "cp", "sp")) > 1:
        return False
    return any(can_fuse(inputs, stage=stage) for stage in stages) and stated(inputs.run) is not None


def _group(inputs: Inputs) -> int:
    written = arguments_written(inputs.run)
    return grpo.group(written) if trainer_of(inputs.run, written) == GRPO else 1


def _sharing(before: Effective, dimensions: tuple[str, ...]) -> int:
    return math.prod(_count(before.get(f"{PARALLEL}{dimension}_size")) or 1 for dimension in dimensions)


def stages_named(before: Effective) -> bool:
    """Whether a source gives the ZeRO stage; for ``"auto"`` the libraries would take a default."""
    return is_set(before.get(STAGE))


def _stages(inputs: Inputs, before: Effective) -> tuple[int | None, ...]:
    stage = before.value(STAGE)
    if stages_named(before):
        return (stage,) if isinstance(stage, int) and stage in (0, 1, 2, 3) else (None,)
    optimizer, parameters = before.value(OPTIMIZER_DEVICE, "none"), before.value(PARAM_DEVICE, "none")
    if parameters not in (None, "none") or optimizer == "nvme":
        return (3,)
    if optimizer == "cpu":
        return (2, 3)
    alone = inputs.profile is not None and inputs.profile.world_size == 1
    return (0, 1, 2, 3) if alone and inputs.spec.goals is not None else (1, 2, 3)


def _names_offload(before: Effective) -> bool:
    return any(is_named(before, name) for name in (OPTIMIZER_DEVICE, PARAM_DEVICE))


def offloads(inputs: Inputs) -> tuple[Offload, ...]:
    """What may be offloaded: to drives only where the profile knows one, and nothing where the ranks are the host."""
    profile = inputs.profile
    if profile is None or profile.accelerator.vendor == "cpu":
        return (("none", "none"),)
    places: list[Device] = ["cpu", "nvme"] if free_on_drives(profile) else ["cpu"]
    found: list[Offload] = [("none", "none")]
    for place in places:
        found += [(place, "none"), (place, "cpu")]
    return (*found, ("nvme", "nvme")) if "nvme" in places else tuple(found)


def _writes_batch(inputs: Inputs) -> bool:
    """Whether what zerocfg emits decides the batch: the Trainer's recipe, or the DeepSpeed file of an own loop."""
    run = inputs.run
    if run.consumer in TRAINERS:
        written = arguments_written(run)
        trainer = trainer_of(run, written)
        # Of completions that are generated for more than a step, the batch has to hold whole groups as well.
        generates = trainer == GRPO and not any(name in written for name in grpo.BATCH)
        return run.recipe is not None and (trainer in (None, SFT) or generates)
    return inputs.engine == "deepspeed" and run.consumer == "deepspeed"


def _recomputation_open(inputs: Inputs) -> bool:
    run = inputs.run
    if run.consumer not in TRAINERS or run.recipe is None or inputs.spec.gradient_checkpointing is not None:
        return False
    recipe = run.recipe.data()
    written = {**(recipe if isinstance(recipe, dict) else {}), **run.arguments}
    return not any(name in written for name in CHECKPOINTING)


def _count(setting: Setting | None) -> int | None:
    value = setting.value if setting is not None and setting.value is not UNKNOWN else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
