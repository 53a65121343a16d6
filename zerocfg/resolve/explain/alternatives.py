"""All plans for a job on its hardware (stage, offload, micro batch, recomputation), including what its sources fix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from zerocfg.resolve.explain.refused_values import require_accepted_values
from zerocfg.resolve.model.setup import setup_of_run
from zerocfg.resolve.search.candidates import Candidate
from zerocfg.resolve.search.choice import (
    ENGINE,
    LIGER,
    LIVE,
    MICRO,
    OPTIMIZER_DEVICE,
    PARAM_DEVICE,
    PERSISTENCE,
    REDUCED,
    STAGE,
    STEPS,
)
from zerocfg.resolve.search.engine_search import candidates_of, other_engines, rank_engines
from zerocfg.resolve.search.ranking import evaluate
from zerocfg.resolve.search.search_space import SearchSpace, choices, offloads

if TYPE_CHECKING:
    from zerocfg.resolve.build import BuildResult
    from zerocfg.resolve.inputs import Inputs
    from zerocfg.resolve.search.choice import Prefer


RECOMPUTE = "gradient_checkpointing"


@dataclass(frozen=True, slots=True)
class Alternative:
    """A plan, and why it is not the best; empty for the best. ``own``: the plan that the run is built with."""

    candidate: Candidate
    excluded: str
    own: bool


def alternatives(built: BuildResult, *, tracing: bool = False) -> list[Alternative]:
    """All plans with the global batch of the run, the best first; empty where neither memory nor hardware is known.

    Raises ValueError with one line when nothing can be predicted.
    """
    inputs, plan = built.inputs, built.plan
    profile = inputs.profile
    if plan is None or profile is None:
        return []
    require_accepted_values(built)
    goals = inputs.spec.goals
    prefer: Prefer = goals.prefer if goals else "throughput"
    values = {name: setting.value for name, setting in plan.settings.items()}
    micro, steps = values.get(MICRO), values.get(STEPS)
    counted = isinstance(micro, int) and isinstance(steps, int)
    batch = profile.world_size * micro * steps if counted else None  # type: ignore[operator]
    own, chosen = _own(built, values), goals is not None and ENGINE in inputs.chosen
    started = [(inputs, inputs.before or built.run.effective)]
    if chosen:
        own[ENGINE] = plan.engine
        started += [(other.inputs, other.before) for other in other_engines(inputs)]
    levers = _levers(built) if goals is not None else {}
    if "fused_loss" in levers:
        started = [(_without_liger(item), before) for item, before in started]
    found: list[Candidate] = []
    for item, before in started:
        sharded = item.engine == "deepspeed"
        what = SearchSpace(
            layouts=((profile.nodes, profile.accelerators_per_node),),
            stages=(0, 1, 2, 3) if sharded else (None,),
            offloads=offloads(item) if sharded else None,
            checkpointing=(False, True),
            micro=None,
            steps=None,
            micro_open=counted,
            steps_open=counted,
            global_batch=batch,
            engine=item.engine if chosen else None,
        )
        candidates = candidates_of(item, before, resize=goals is not None, tracing=tracing)
        plans = evaluate(candidates, choices(what))
        if levers:
            ways = [way for way in choices(what) if way.settings() | {RECOMPUTE: bool(way.checkpointing)} == own]
            plans += [candidates.of(replace(way, **levers)) for way in ways]
        found += plans
    rows = rank_engines(found, prefer)
    return [Alternative(row, why, _settings(row) == own and _has(row, levers)) for row, why in rows]


def _settings(candidate: Candidate) -> dict[str, Any]:
    work = candidate.setup.workload
    return candidate.choice.plain.settings() | {RECOMPUTE: work is not None and work.gradient_checkpointing}


def _without_liger(inputs: Inputs) -> Inputs:
    """The inputs as they were before zerocfg chose the loss, like the settings of all else."""
    arguments = {name: argument for name, argument in inputs.run.arguments.items() if name != LIGER}
    return replace(inputs, run=replace(inputs.run, arguments=arguments))


def _has(candidate: Candidate, levers: dict[str, Any]) -> bool:
    return all(getattr(candidate.choice, name) == value for name, value in levers.items())


def _levers(built: BuildResult) -> dict[str, Any]:
    """Those of the plan that zerocfg chose, by their names in a choice."""
    chosen, changed = built.inputs.chosen, built.inputs.changes
    found = {"live": chosen.get(LIVE), "persistence": chosen.get(PERSISTENCE), "fused_loss": changed.get(LIGER)}
    best = built.inputs.considered[0].settings if built.inputs.considered else {}
    if REDUCED in best:
        found["bucket"] = chosen.get(REDUCED)
    return {name: decision.value for name, decision in found.items() if decision is not None}


def _own(built: BuildResult, values: dict[str, Any]) -> dict[str, Any]:
    """The settings of the run as it is built, by the names that a choice has for them."""
    assert built.plan is not None
    plan = built.plan
    work = setup_of_run(built.run, values.get, built.inputs.spec, plan.num_processes).workload
    own = {name: values.get(name) for name in ("num_processes", MICRO, STEPS)}
    if plan.engine == "deepspeed":
        own |= {STAGE: values.get(STAGE)}
        own |= {name: values.get(name) or "none" for name in (OPTIMIZER_DEVICE, PARAM_DEVICE)}
    return own | {RECOMPUTE: work is not None and work.gradient_checkpointing}
