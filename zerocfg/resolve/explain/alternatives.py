"""All plans for a job on its hardware (stage, offload, micro batch, recomputation), including what its sources fix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zerocfg.resolve.model.setup import setup_of_run
from zerocfg.resolve.search.candidates import Candidate
from zerocfg.resolve.search.choice import ENGINE, MICRO, OPTIMIZER_DEVICE, PARAM_DEVICE, STAGE, STEPS
from zerocfg.resolve.search.engine_search import candidates_of, other_engines, rank_engines
from zerocfg.resolve.search.ranking import evaluate
from zerocfg.resolve.search.search_space import SearchSpace, choices, offloads

if TYPE_CHECKING:
    from zerocfg.resolve.build import BuildResult
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
    goals = inputs.spec.goals
    prefer: Prefer = goals.prefer if goals else "throughput"
    values = {name: one.value for name, one in plan.settings.items()}
    micro, steps = values.get(MICRO), values.get(STEPS)
    counted = isinstance(micro, int) and isinstance(steps, int)
    batch = profile.world_size * micro * steps if counted else None  # type: ignore[operator]
    own, chosen = _own(built, values), goals is not None and ENGINE in inputs.chosen
    started = [(inputs, inputs.before or built.run.effective)]
    if chosen:
        own[ENGINE] = plan.engine
        started += [(other.inputs, other.before) for other in other_engines(inputs)]
    found: list[Candidate] = []
    for one, before in started:
        sharded = one.engine == "deepspeed"
        what = SearchSpace(
            layouts=((profile.nodes, profile.accelerators_per_node),),
            stages=(0, 1, 2, 3) if sharded else (None,),
            offloads=offloads(one) if sharded else None,
            checkpointing=(False, True),
            micro=None,
            steps=None,
            micro_open=counted,
            steps_open=counted,
            global_batch=batch,
            engine=one.engine if chosen else None,
        )
        found += evaluate(candidates_of(one, before, resize=goals is not None, tracing=tracing), choices(what))
    return [Alternative(one, why, _settings(one) == own) for one, why in rank_engines(found, prefer)]


def _settings(one: Candidate) -> dict[str, Any]:
    work = one.setup.workload
    return one.choice.settings() | {RECOMPUTE: work is not None and work.gradient_checkpointing}


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
