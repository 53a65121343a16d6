"""Chooses the values that the spec leaves open: the best plan, or a problem that says why there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocfg.memory.overhead import GIB
from zerocfg.resolve.plan import Problem
from zerocfg.resolve.search.candidates import Candidate
from zerocfg.resolve.search.choice import MICRO, STAGE, STEPS, ZERO, describe_plan
from zerocfg.resolve.search.engine_search import Search, candidates_of, ranked_plans, search_of, searches_of
from zerocfg.resolve.search.nearest import Change, nearest
from zerocfg.resolve.search.ranking import considered
from zerocfg.resolve.search.search_space import ContradictionError
from zerocfg.resolve.search.take_plan import device_range, with_plan, with_stage

if TYPE_CHECKING:
    from zerocfg.resolve.inputs import Inputs


def with_open_values(inputs: Inputs) -> Inputs:
    """The inputs with the open values chosen and applied: precision, stage, offload, batch, recomputation."""
    goals = inputs.spec.goals
    searches = searches_of(inputs)
    if not searches:
        return inputs
    inputs = searches[0].inputs
    try:
        rows, notes = ranked_plans(searches)
    except ContradictionError as error:
        return _without_plan(inputs, Problem("goals", str(error), error.help))
    except ValueError as error:
        if goals is None:
            message = f"no source sets the ZeRO stage, and {error}"
            return _without_plan(inputs, Problem(STAGE, message, "Write `stage` into the source."))
        message = f"zerocfg cannot choose: {error}"
        return _without_plan(inputs, Problem("goals", message, "Name the values in the sources instead."))
    best, shortfall = rows[0]
    inputs = search_of(searches, best).inputs
    inputs = replace(inputs, notes=(*inputs.notes, *notes))
    if shortfall or goals is not None:
        inputs = replace(inputs, considered=tuple(considered(*row) for row in rows))
    if shortfall:
        return _without_plan(inputs, _no_plan_fits(search_of(searches, best), best, shortfall))
    return with_stage(inputs, best) if goals is None else with_plan(inputs, rows)


def _no_plan_fits(search: Search, smallest: Candidate, shortfall: str) -> Problem:
    message = f"no plan fits: the one that needs least ({_words(smallest.choice.settings())}) {shortfall}"
    chooses_stage = search.inputs.spec.goals is None
    changes = nearest(
        search.inputs,
        search.space,
        lambda inputs: candidates_of(inputs, search.before, resize=not chooses_stage),
    )
    fits = f"What would fit: {'; or '.join(map(_changed, changes))}." if changes else ""
    if not chooses_stage:
        return Problem("goals", message, fits or "Use more devices, more memory or shorter sequences.")
    remedy = fits or "Use more devices or shorter sequences, or offload the optimizer."
    return Problem(
        STAGE, f"no source sets the ZeRO stage, and {message}", f"{remedy} Or write `stage` into the source."
    )


def _changed(change: Change) -> str:
    plan = describe_plan(change.plan.choice.settings())
    return f"{change.what}, with {plan}: {device_range(change.plan)} of {change.room / GIB:.1f}"


def _without_plan(inputs: Inputs, problem: Problem) -> Inputs:
    return replace(inputs, problems=(*inputs.problems, problem))


def _words(settings: dict[str, Any]) -> str:
    names = {STAGE: "ZeRO", MICRO: "micro batch", STEPS: "accumulation", "num_processes": "ranks"}
    return ", ".join(
        f"{names.get(name, name.removeprefix(ZERO).replace('.device', ''))} {value}" for name, value in settings.items()
    )
