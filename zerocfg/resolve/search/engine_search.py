"""Searches the plans of a run: with each engine that it may use, predicted, ranked, and the best ones traced."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zerocfg.memory.options import TorchOptions
from zerocfg.resolve.collect_inputs import with_engine
from zerocfg.resolve.engine.open_engines import engines_for
from zerocfg.resolve.model.activations import Activations, base_of, of_rank
from zerocfg.resolve.search.candidates import Candidate, Candidates
from zerocfg.resolve.search.choice import Choice, Prefer
from zerocfg.resolve.search.levers import at_best, better_with, explained, gains, measure, with_levers, worth_trying
from zerocfg.resolve.search.precision import with_precision
from zerocfg.resolve.search.ranking import ALIKE, Ranked, evaluate, ranked
from zerocfg.resolve.search.search_space import SearchSpace, choices, search_space
from zerocfg.run.model import Effective
from zerocfg.run.resolve_settings import resolve_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocfg.resolve.inputs import Inputs
    from zerocfg.resolve.plan import Engine

WITHOUT_MASTERS = "trains 16-bit weights without a copy in fp32"
TRACED_PLANS = 6  # the best by the closed formula; each different micro batch among them is traced


@dataclass(frozen=True, slots=True)
class Search:
    """One engine's part: the run as this engine would start it, its settings before any choice, and what is open."""

    inputs: Inputs
    before: Effective
    space: SearchSpace


def searches_of(inputs: Inputs) -> list[Search]:
    """One for each engine that can run the job; none where nothing is open."""
    own = _search_with(inputs)
    if own is None:
        return []
    if inputs.before_engine is None or own.before.value("engine") not in ("ddp", "single"):
        # Else the script makes the training arguments, and may name an engine there.
        return [replace(own, space=replace(own.space, engine=None))]
    return [own, *other_engines(inputs)]


def other_engines(inputs: Inputs) -> list[Search]:
    """The searches of the engines that a run whose engine is open could use as well."""
    started = [with_engine(inputs, engine) for engine in engines_for(inputs) if engine != inputs.engine]
    found = [_search_with(item) for item in started if not item.problems]
    return [search for search in found if search is not None and search.before.value("engine") == search.inputs.engine]


def _search_with(inputs: Inputs) -> Search | None:
    if inputs.spec.goals is not None:
        inputs = with_precision(inputs)
    before = resolve_settings(inputs.run)
    what = search_space(inputs, before)
    return None if what is None else Search(replace(inputs, before=before), before, what)


def search_of(searches: list[Search], candidate: Candidate) -> Search:
    """The search that a candidate is of."""
    return next((search for search in searches if search.space.engine == candidate.choice.engine), searches[0])


def ranked_plans(searches: list[Search]) -> tuple[list[Ranked], list[str]]:
    """All candidates, the best first, and notes. Raises ValueError with the reason why nothing can be searched."""
    inputs = searches[0].inputs
    profile, goals = inputs.profile, inputs.spec.goals
    if profile is None:
        raise ValueError("without `hardware:` zerocfg cannot choose one")
    on_cpu = profile.accelerator.vendor == "cpu"
    if profile.accelerator.planning_gib is None and not (goals and on_cpu):
        raise ValueError(f"the memory of {profile.name} is not known, so zerocfg cannot choose one")
    prefer = goals.prefer if goals else None
    found: list[Candidate] = []
    refused: list[ValueError] = []
    predictors: dict[Engine | None, Candidates] = {}
    for search in searches:
        try:
            candidates = candidates_of(search.inputs, search.before, resize=goals is not None)
            found += evaluate(candidates, choices(search.space))
            predictors[search.space.engine] = candidates
        except ValueError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    rows = rank_engines(found, prefer)
    if goals is None:
        return rows, []
    rows = _with_levers(searches, predictors, rows, goals.prefer)
    if goals.trace and not rows[0][1]:
        return _traced(searches, rows, goals.prefer)
    return _explained(predictors, rows), []


def _with_levers(
    searches: list[Search], predictors: Mapping[Engine | None, Candidates], rows: list[Ranked], prefer: Prefer
) -> list[Ranked]:
    """All plans, and those that gain by a lever."""
    more: list[Candidate] = []
    best, short = rows[0]
    least = float("inf") if short else measure(best, prefer)
    for candidate in worth_trying(rows, prefer):
        candidates, open_ = predictors[candidate.choice.engine], search_of(searches, candidate).space.levers
        if not open_ or at_best(candidates, candidate, open_, prefer) * (1 + ALIKE) >= least:
            continue
        changed = with_levers(candidates, candidate, open_, prefer)
        if changed.choice.levers:
            more.append(changed)
            if changed.word in ("fits", "likely"):
                least = min(least, measure(changed, prefer))
    return better_with(rows, rank_engines([*(row for row, _ in rows), *more], prefer), prefer) if more else rows


def _explained(predictors: Mapping[Engine | None, Candidates], rows: list[Ranked]) -> list[Ranked]:
    """The best plan with what it would be without its levers."""
    (best, why), *others = rows
    return [(explained(predictors[best.choice.engine], best), why), *others] if best.choice.levers else rows


def rank_engines(found: list[Candidate], prefer: Prefer | None) -> list[Ranked]:
    """:func:`ranked`; of several engines one that trains 16-bit weights without a copy in fp32 wins only where no other
    fits, because it trains another model than they do."""
    if len({candidate.choice.engine for candidate in found}) < 2:
        return ranked(found, prefer)
    kept = [candidate for candidate in found if not _loses_masters(candidate)]
    rows = ranked(kept, prefer) if kept else []
    if not rows or rows[0][1]:
        return ranked(found, prefer)
    rest = [candidate for candidate in found if _loses_masters(candidate)]
    return [
        *rows,
        *((candidate, candidate.short or WITHOUT_MASTERS) for candidate, _ in (ranked(rest, prefer) if rest else [])),
    ]


def _loses_masters(candidate: Candidate) -> bool:
    options = candidate.setup.options
    return isinstance(options, TorchOptions) and not options.master and candidate.setup.lora is None


def _traced(searches: list[Search], rows: list[Ranked], prefer: Prefer) -> tuple[list[Ranked], list[str]]:
    """The best plans once more, with the activations of the real model class, and notes.

    The formula may be too low for every one of them: then the next ones are traced, until a plan fits or none is left.
    """
    likely = [candidate for candidate, _ in rows[:TRACED_PLANS]]
    # The closed formula does not cover autocast, with which DDP computes: only traced it is known to fit.
    likely += [
        candidate for candidate, _ in rows[TRACED_PLANS:] if candidate.word == "unknown" and not candidate.short
    ][:TRACED_PLANS]
    again: list[Candidate] = []
    predictors: dict[Engine | None, Candidates] = {}
    asked: set[Choice] = set()
    while True:
        for search in searches:
            again += _traced_plans(
                search,
                [candidate for candidate in likely if search_of(searches, candidate) is search],
                rows,
                predictors,
            )
        asked = {candidate.choice for candidate in again}
        best = _best_of_traced(predictors, again, prefer)
        likely = [
            candidate for candidate, _ in rows if candidate.choice not in asked and candidate.word in ("fits", "likely")
        ][:TRACED_PLANS]
        if not best[0][1] or not likely:
            break
    notes = list(dict.fromkeys(note for predictor in predictors.values() for note in predictor.activations.notes))
    if best[0][1]:
        return best, notes
    rest = (row for row in rows if row[0].choice not in asked)
    return [*best, *(row for row in rest if best[0][0].choice.levers or not row[0].choice.levers)], notes


def _traced_plans(
    search: Search, plans: list[Candidate], rows: list[Ranked], predictors: dict[Engine | None, Candidates]
) -> list[Candidate]:
    """Some plans of one engine, and those with levers without them as well, predicted from traced activations."""
    if not plans:
        return []
    plain = {plan.choice.plain for plan in plans} - {plan.choice for plan in plans}
    plans = [*plans, *(row for row, _ in rows if row.choice in plain)]
    engine = search.space.engine
    if engine not in predictors:
        predictors[engine] = candidates_of(search.inputs, search.before, resize=True, tracing=True)
    workloads = dict.fromkeys(plan.setup.workload for plan in plans if plan.setup.workload)
    predictors[engine].activations.prepare(plans[0].setup, list(workloads))
    return evaluate(predictors[engine], [plan.choice for plan in plans])


def _best_of_traced(
    predictors: Mapping[Engine | None, Candidates], traced: list[Candidate], prefer: Prefer
) -> list[Ranked]:
    """Traced plans, the best first. One with levers only where they still gain by the traced figures."""
    by_choice = {candidate.choice: candidate for candidate in traced}
    usual = [candidate for candidate in traced if not candidate.choice.levers]
    best = rank_engines(usual, prefer) if usual else []
    if len(usual) == len(traced):
        return best
    gain = [
        candidate
        for candidate in traced
        if candidate.choice.plain not in by_choice or gains(candidate, by_choice[candidate.choice.plain], prefer)
    ]
    every = rank_engines([*usual, *(candidate for candidate in gain if candidate.choice.levers)], prefer)
    return _explained(predictors, better_with(best, every, prefer) if best else every)


def candidates_of(inputs: Inputs, before: Effective, *, resize: bool, tracing: bool = False) -> Candidates:
    """The predictor of a run's plans. Raises ValueError when the model's parameters are not known."""
    config = inputs.model_file.data() if inputs.model_file else None
    config = config if isinstance(config, dict) else None
    plain = Candidates(inputs, before, inputs.facts, Activations(inputs.facts, config, tracing=False, python=None))
    setup = plain.setup(_as_it_is(inputs))
    facts = of_rank(inputs.facts, config, setup)
    activations = Activations(facts, config, tracing=tracing, python=None)
    return Candidates(inputs, before, facts, activations, resize=resize, base=base_of(config, setup))


def _as_it_is(inputs: Inputs) -> Choice:
    profile = inputs.profile
    assert profile is not None
    return Choice(profile.nodes, profile.accelerators_per_node, stage=3 if inputs.engine == "deepspeed" else None)
