"""The nearest change that lets a job fit where no plan does: to what its sources fix, its hardware or its samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from zerocfg.hardware.between_nodes import with_network
from zerocfg.hardware.catalogue import CATALOGUE
from zerocfg.memory.verdict import FEW_LIVE, SMALL_PARAMETER
from zerocfg.resolve.engine.open_engines import TRAINERS
from zerocfg.resolve.model.fused_loss import can_fuse
from zerocfg.resolve.model.room import device_room
from zerocfg.resolve.search.buffer_sizes import LEAST
from zerocfg.resolve.search.choice import LIVE, PERSISTENCE, REDUCED, Lever
from zerocfg.resolve.search.ranking import evaluate, ranked
from zerocfg.resolve.search.search_space import OFFLOADS, ContradictionError, SearchSpace, choices, offloads

if TYPE_CHECKING:
    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.resolve.inputs import Inputs
    from zerocfg.resolve.search.candidates import Candidate, Candidates
    from zerocfg.resolve.search.choice import Choice

PER_NODE = 8  # devices; more are put into further nodes
MOST_DEVICES = 512
SHORTEST = 512  # tokens


@dataclass(frozen=True, slots=True)
class Change:
    """What to change, the plan that then fits, and the bytes that a device has in it."""

    what: str
    plan: Candidate
    room: int


_LESS: dict[Lever, tuple[str, int, str]] = {
    "bucket": (REDUCED, LEAST, f"buckets of {LEAST} elements"),
    "live": (LIVE, FEW_LIVE, f"`stage3_max_live_parameters` and `stage3_max_reuse_distance` of {FEW_LIVE}"),
    "persistence": (PERSISTENCE, SMALL_PARAMETER, f"`stage3_param_persistence_threshold` of {SMALL_PARAMETER}"),
}
"""The setting, the value that takes least memory and costs little time, and both in words."""
Predictor = Callable[["Inputs"], "Candidates"]
Attempt = tuple[str, "Inputs", SearchSpace, dict[str, Any]]
"""What to change, the job after it, and the levers of :class:`Choice` that are set in each of its plans."""


def nearest(inputs: Inputs, space: SearchSpace, predictor: Predictor) -> list[Change]:
    """The nearest change to the configs, and the nearest to the hardware; else shorter samples. Empty where none of
    them is enough.

    ``space`` is what was searched without success; ``predictor`` makes what predicts plans of some inputs.
    """
    found = [
        next(_fitting(inputs, _to_configs(inputs, space), predictor), None),
        next(_fitting(inputs, _to_hardware(inputs, space), predictor), None),
    ]
    changes = [change for change in found if change is not None]
    return changes or list(_fitting(inputs, _to_samples(inputs, space), predictor))[:1]


def _fitting(own: Inputs, attempts: Iterator[Attempt], predictor: Predictor) -> Iterator[Change]:
    for what, inputs, space, levers in attempts:
        try:
            plans = evaluate(predictor(inputs), _with_levers(inputs, choices(space), levers))
        except (ContradictionError, ValueError):
            continue  # this change makes no job
        fitting = [plan for plan in plans if plan.word == "fits"]
        room = device_room(inputs.profile)
        if fitting and room is not None:
            prefer = own.spec.goals.prefer if own.spec.goals is not None else None
            yield Change(what, ranked(fitting, prefer)[0][0], room)


def _to_configs(inputs: Inputs, space: SearchSpace) -> Iterator[Attempt]:
    """Each value that the sources fix left open, and all of them together, from cheap to dear."""
    single: list[tuple[str, SearchSpace]] = []
    wider = space
    if not space.micro_open and space.micro is not None and space.micro > 1:
        wider = _with_any_batch(inputs, space)
        single.append(("a smaller micro batch with more accumulation", wider))
    if space.checkpointing == (None,):
        single.append(("gradient checkpointing", replace(space, checkpointing=(True,))))
        wider = replace(wider, checkpointing=(True,))
    if len(space.stages) == 1 and space.stages != (None,):
        single.append(("another ZeRO stage", replace(space, stages=(1, 2, 3))))
        wider = replace(wider, stages=(1, 2, 3))
    if space.stages == (None,) and space.engine is None and inputs.run.consumer in TRAINERS:
        single.append(("DeepSpeed", replace(space, stages=(1, 2, 3), engine="deepspeed")))
        wider = replace(wider, stages=(1, 2, 3), engine="deepspeed")
    places = offloads(inputs)
    if space.offloads is None and len(places) > 1 and wider.stages != (None,):
        stages = tuple(stage for stage in wider.stages if stage is not None and len(OFFLOADS[stage]) > 1)
        moved = tuple(pair for pair in places if pair != ("none", "none"))
        single.append(("offload", replace(space, stages=stages, offloads=moved, engine=wider.engine)))
        wider = replace(wider, offloads=places)
    levers = _levers(inputs, space, wider)
    for what, value in levers:
        yield what, inputs, space, value
    for what, search_space in single:
        yield what, inputs, search_space, {}
    if len(single) > 1:
        yield " and ".join(what for what, _ in single), inputs, wider, {}
    if levers and len(single) + len(levers) > 1:
        every = " and ".join(what for what, _ in (*single, *levers))
        yield every, inputs, wider, {name: item for _, value in levers for name, item in value.items()}


def _levers(inputs: Inputs, space: SearchSpace, wider: SearchSpace) -> list[tuple[str, dict[str, Any]]]:
    """Those that would take less memory and that were not open: sources name a larger value, or a package is needed."""
    found: list[tuple[str, dict[str, Any]]] = []
    for lever, (name, size, what) in _LESS.items():
        own = inputs.before.value(name) if inputs.before is not None else None
        if lever not in space.levers and isinstance(own, int) and own > size:
            found.append((what, {lever: size}))
    if "fused_loss" not in space.levers and any(can_fuse(inputs, stage=stage) for stage in wider.stages):
        found.append(("`use_liger_kernel: true`, which needs the package liger-kernel", {"fused_loss": True}))
    return found


def _with_levers(inputs: Inputs, plans: Iterator[Choice], levers: dict[str, Any]) -> Iterator[Choice]:
    """The plans that have the levers which their stage knows; none where it knows none of them."""
    for plan in plans:
        known = {name: value for name, value in levers.items() if _knows(inputs, plan.stage, name)}
        if known or not levers:
            yield replace(plan, **known)


def _knows(inputs: Inputs, stage: int | None, lever: str) -> bool:
    if lever == "fused_loss":
        return can_fuse(inputs, stage=stage)
    return bool(stage) and (stage == 3 or lever == "bucket")


def _to_hardware(inputs: Inputs, space: SearchSpace) -> Iterator[Attempt]:
    """More of the same cards, then as many of a larger one."""
    profile = inputs.profile
    assert profile is not None
    if profile.accelerator.vendor == "cpu":
        return
    nodes, each = profile.nodes, profile.accelerators_per_node
    while 2 * nodes * each <= MOST_DEVICES:
        nodes, each = (nodes, 2 * each) if 2 * each <= PER_NODE else (2 * nodes, each)
        more = _counted(nodes, each, profile.accelerator.name)
        yield f"{nodes * each} cards ({more})", inputs, replace(space, layouts=((nodes, each),)), {}
    yield from _larger_cards(inputs, space, profile)


def _larger_cards(inputs: Inputs, space: SearchSpace, profile: HardwareProfile) -> Iterator[Attempt]:
    nodes, each, own = profile.nodes, profile.accelerators_per_node, profile.accelerator
    larger = [
        (device, link)
        for device, link in CATALOGUE.values()
        if device.vendor == own.vendor and (device.planning_gib or 0.0) > (own.planning_gib or 0.0)
    ]
    for device, link in sorted(larger, key=lambda item: (item[0].planning_gib or 0.0, item[0].name)):
        name = _counted(nodes, each, device.name)
        changed = {"name": name, "accelerator": device, "link_within_node": link if each > 1 else None}
        yield name, replace(inputs, profile=with_network(profile.model_copy(update=changed))), space, {}


def _to_samples(inputs: Inputs, space: SearchSpace) -> Iterator[Attempt]:
    length = inputs.spec.sequence_length
    while length is not None and length // 2 >= SHORTEST:
        length //= 2
        spec = inputs.spec.model_copy(update={"sequence_length": length})
        yield f"samples of {length} tokens, which is another training", replace(inputs, spec=spec), space, {}


def _counted(nodes: int, each: int, name: str) -> str:
    return f"{nodes}x{each}x{name}" if nodes > 1 else f"{each}x{name}"


def _with_any_batch(inputs: Inputs, space: SearchSpace) -> SearchSpace:
    """The space with every micro batch and accumulation that gives the global batch of the sources."""
    assert inputs.profile is not None and space.micro is not None
    own = inputs.profile.world_size // space.sharing * space.micro * (space.steps or 1)
    batch = space.global_batch or own
    return replace(space, micro=None, micro_open=True, steps=None, steps_open=True, global_batch=batch)
