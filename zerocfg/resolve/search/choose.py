"""Chooses what the author left open and the libraries would choose silently, or badly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from zerocfg.memory.options import TorchOptions
from zerocfg.memory.overhead import GIB
from zerocfg.memory.verdict import percent
from zerocfg.models.deepspeed.zero import MOE_BLOCKS
from zerocfg.resolve.collect_inputs import on_part, with_engine
from zerocfg.resolve.engine.open_engines import TRAINERS, engines_for
from zerocfg.resolve.model.activations import Activations, base_of, with_adapters
from zerocfg.resolve.model.room import device_room, host_room
from zerocfg.resolve.plan import Decision, Problem
from zerocfg.resolve.search import buffer_sizes
from zerocfg.resolve.search.apply_choice import apply_to_engine, apply_to_recipe, argument_of
from zerocfg.resolve.search.candidates import Candidate, Candidates, is_named, is_set
from zerocfg.resolve.search.choice import ENGINE, GATHER, MICRO, STAGE, STEPS, ZERO, Choice, Prefer, describe_plan
from zerocfg.resolve.search.nearest import Change, nearest
from zerocfg.resolve.search.ranking import Ranked, considered, evaluate, ranked
from zerocfg.resolve.search.search_space import (
    ContradictionError,
    SearchSpace,
    choices,
    search_space,
    stages_named,
)
from zerocfg.run.config import VERSIONS
from zerocfg.run.model import Effective, Origin, Run, Setting
from zerocfg.run.origins import origin_label
from zerocfg.run.resolve_settings import resolve_settings
from zerocfg.run.stages.parser import parser_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.models.model_facts import ModelFacts
    from zerocfg.resolve.inputs import Inputs

LEAVES = "zero_optimization.leaf_module.classes"
MOE_NAMES = "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES"
HALVES = ("bf16", "fp16")
WITHOUT_MASTERS = "trains 16-bit weights without a copy in fp32"
TRACED_PLANS = 6  # the best by the closed formula; each different micro batch among them is traced


def with_open_values(inputs: Inputs) -> Inputs:
    """The inputs with open values (precision, stage, offload, batch, recomputation) chosen and applied to the run."""
    goals = inputs.spec.goals
    searches = _searches(inputs)
    if not searches:
        return inputs
    inputs = searches[0].inputs
    try:
        rows, notes = _search(searches)
    except ContradictionError as error:
        return _without_plan(inputs, Problem("goals", str(error), error.help))
    except ValueError as error:
        if goals is None:
            message = f"no source sets the ZeRO stage, and {error}"
            return _without_plan(inputs, Problem(STAGE, message, "Write `stage` into the source."))
        message = f"zerocfg cannot choose: {error}"
        return _without_plan(inputs, Problem("goals", message, "Name the values in the sources instead."))
    best, short = rows[0]
    inputs = _search_of(searches, best).inputs
    inputs = replace(inputs, notes=(*inputs.notes, *notes))
    if short or goals is not None:
        inputs = replace(inputs, considered=tuple(considered(*row) for row in rows))
    if short:
        return _without_plan(inputs, _none_fits(_search_of(searches, best), best, short))
    return _with_stage(inputs, best) if goals is None else _with_plan(inputs, rows)


def _none_fits(search: Search, least: Candidate, short: str) -> Problem:
    message = f"no plan fits: the one that needs least ({_words(least.choice.settings())}) {short}"
    chooses_stage = search.inputs.spec.goals is None
    changes = nearest(
        search.inputs,
        search.space,
        lambda inputs: candidates_of(inputs, search.before, resize=not chooses_stage),
    )
    fits = f"What would fit: {'; or '.join(map(_changed, changes))}." if changes else ""
    if not chooses_stage:
        return Problem("goals", message, fits or "Use more devices, more memory or shorter sequences.")
    way_out = fits or "Use more devices or shorter sequences, or offload the optimizer."
    return Problem(
        STAGE, f"no source sets the ZeRO stage, and {message}", f"{way_out} Or write `stage` into the source."
    )


def _changed(one: Change) -> str:
    return f"{one.what}, with {describe_plan(one.plan.choice.settings())}: {_range(one.plan)} of {one.room / GIB:.1f}"


def _without_plan(inputs: Inputs, problem: Problem) -> Inputs:
    return replace(inputs, problems=(*inputs.problems, problem))


@dataclass(frozen=True, slots=True)
class Search:
    """One engine's part: the run as this engine would start it, its settings before any choice, and what is open."""

    inputs: Inputs
    before: Effective
    space: SearchSpace


def _searches(inputs: Inputs) -> list[Search]:
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
    found = [_search_with(one) for one in started if not one.problems]
    return [one for one in found if one is not None and one.before.value("engine") == one.inputs.engine]


def _search_with(inputs: Inputs) -> Search | None:
    if inputs.spec.goals is not None:
        inputs = _with_precision(inputs)
    before = resolve_settings(inputs.run)
    what = search_space(inputs, before)
    return None if what is None else Search(replace(inputs, before=before), before, what)


def _search_of(searches: list[Search], one: Candidate) -> Search:
    return next((search for search in searches if search.space.engine == one.choice.engine), searches[0])


def _search(searches: list[Search]) -> tuple[list[Ranked], list[str]]:
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
    for one in searches:
        try:
            candidates = candidates_of(one.inputs, one.before, resize=goals is not None)
            found += evaluate(candidates, choices(one.space))
        except ValueError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    rows = rank_engines(found, prefer)
    if goals is not None and goals.trace and not rows[0][1]:
        return _traced(searches, rows, goals.prefer)
    return rows, []


def rank_engines(found: list[Candidate], prefer: Prefer | None) -> list[Ranked]:
    """:func:`ranked`; of several engines one that trains 16-bit weights without a copy in fp32 wins only where no other
    fits, because it trains another model than they do."""
    if len({one.choice.engine for one in found}) < 2:
        return ranked(found, prefer)
    kept = [one for one in found if not _loses_masters(one)]
    rows = ranked(kept, prefer) if kept else []
    if not rows or rows[0][1]:
        return ranked(found, prefer)
    rest = [one for one in found if _loses_masters(one)]
    return [*rows, *((one, one.short or WITHOUT_MASTERS) for one, _ in (ranked(rest, prefer) if rest else []))]


def _loses_masters(one: Candidate) -> bool:
    options = one.setup.options
    return isinstance(options, TorchOptions) and not options.master and one.setup.lora is None


def _traced(searches: list[Search], rows: list[Ranked], prefer: Prefer) -> tuple[list[Ranked], list[str]]:
    """The best plans once more, with the activations of the real model class, and notes."""
    likely = [one for one, _ in rows[:TRACED_PLANS]]
    # The closed formula does not cover autocast, with which DDP computes: only traced it is known to fit.
    likely += [one for one, _ in rows[TRACED_PLANS:] if one.word == "unknown" and not one.short][:TRACED_PLANS]
    again: list[Candidate] = []
    notes: dict[str, None] = {}
    for search in searches:
        own = [one for one in likely if _search_of(searches, one) is search]
        if not own:
            continue
        candidates = candidates_of(search.inputs, search.before, resize=True, tracing=True)
        workloads = dict.fromkeys(one.setup.workload for one in own if one.setup.workload)
        candidates.activations.prepare(own[0].setup, list(workloads))
        again += evaluate(candidates, [one.choice for one in own])
        notes |= dict.fromkeys(candidates.activations.notes)
    best = rank_engines(again, prefer)
    return best if best[0][1] else [*best, *(row for row in rows if row[0] not in likely)], list(notes)


def candidates_of(inputs: Inputs, before: Effective, *, resize: bool, tracing: bool = False) -> Candidates:
    """The predictor of a run's plans. Raises ValueError when the model's parameters are not known."""
    config = inputs.model_file.data() if inputs.model_file else None
    config = config if isinstance(config, dict) else None
    plain = Candidates(inputs, before, inputs.facts, Activations(inputs.facts, config, tracing=False, python=None))
    setup = plain.setup(_as_it_is(inputs))
    facts = with_adapters(inputs.facts, config, setup)
    activations = Activations(facts, config, tracing=tracing, python=None)
    return Candidates(inputs, before, facts, activations, resize=resize, base=base_of(config, setup))


def _as_it_is(inputs: Inputs) -> Choice:
    profile = inputs.profile
    assert profile is not None
    return Choice(profile.nodes, profile.accelerators_per_node, stage=3 if inputs.engine == "deepspeed" else None)


def _words(settings: dict[str, Any]) -> str:
    short = {STAGE: "ZeRO", MICRO: "micro batch", STEPS: "accumulation", "num_processes": "ranks"}
    return ", ".join(
        f"{short.get(name, name.removeprefix(ZERO).replace('.device', ''))} {value}" for name, value in settings.items()
    )


# -- taking the best plan ----------------------------------------------------------------------------------------------


def _chosen(inputs: Inputs, decisions: Mapping[str, Decision]) -> Inputs:
    return replace(inputs, chosen={**inputs.chosen, **decisions})


def _in_engine(inputs: Inputs, decisions: Mapping[str, Decision]) -> Inputs:
    return replace(inputs, run=apply_to_engine(inputs.run, decisions))


def _with_stage(inputs: Inputs, best: Candidate) -> Inputs:
    assert inputs.profile is not None
    device, prediction = inputs.profile.accelerator, best.prediction
    memory = device.planning_gib or 0.0
    if best.word == "fits":
        about = f"the smallest stage that takes up to {prediction.device.high / GIB:.1f} GiB"
    elif prediction.complete:
        about = f"the stage most likely to fit ({percent(best.judged.chance or 0.0)}): {_range(best)}"
    else:
        about = f"the smallest stage whose states ({prediction.allocated.expected / GIB:.1f} GiB a rank) leave room"
    reason = f"zerocfg's choice: {about} of {device.name}'s {memory:.0f} GiB"
    stage = {STAGE: Decision(best.choice.stage, reason, "chosen", inputs=_given(inputs))}
    return _chosen(_in_engine(inputs, stage), stage)


def _with_plan(inputs: Inputs, rows: list[Ranked]) -> Inputs:
    """The inputs with the values of the best plan applied to the run."""
    (best, _), before = rows[0], inputs.before
    choice, profile = best.choice, inputs.profile
    assert profile is not None and before is not None
    why, given = _reason(inputs, best), _given(inputs)
    found = {name: Decision(value, why, "chosen", inputs=given) for name, value in choice.settings().items()}
    if stages_named(before):
        found.pop(STAGE, None)
    if choice.engine == "ddp" and choice.processes == 1:
        found[ENGINE] = replace(found[ENGINE], value="single")
    told = next((name for name in (ENGINE, STAGE, *found) if name in found and name != "num_processes"), None)
    if told is not None:
        found[told] = replace(found[told], reason=why + runner_up(rows))
    if choice.processes == profile.world_size:
        found.pop("num_processes")
    else:
        inputs = on_part(inputs, choice.nodes, choice.per_node, why)
    offload = {name for name in found if name.startswith(f"{ZERO}offload") and found[name].value == "none"}
    found = {name: one for name, one in found.items() if name not in offload}
    notes = list(inputs.notes)
    if best.verdict != "fits":
        left_out = "".join(f"; not modelled: {gap}" for gap in best.gaps)
        notes.append(f"the plan may not fit: {_predicted(best)}{left_out}; zerocfg plan shows what helps")
    if choice.offloads and host_room(profile) is None:
        host = (
            f"the plan takes {best.host / GIB:,.0f} GiB of a node's memory, and {profile.name} does not state how much"
        )
        notes.append(f"{host} there is; a profile that `zerocfg probe` wrote does")
    inputs = replace(inputs, notes=tuple(notes))
    if inputs.engine == "deepspeed":
        found |= _sizes(inputs, before, choice)
        inputs = _in_engine(inputs, {name: one for name, one in found.items() if name.startswith((ZERO, "aio."))})
    return _with_batch(inputs, found)


def _with_batch(inputs: Inputs, found: dict[str, Decision]) -> Inputs:
    """Batch and recomputation: into the recipe of a Trainer, else into the DeepSpeed file."""
    sizes = {name: one for name, one in found.items() if name in (MICRO, STEPS)}
    if inputs.run.consumer not in TRAINERS:
        return _chosen(_in_engine(inputs, sizes), found)
    for name in (MICRO, STEPS, "gradient_checkpointing"):
        if name in found:
            inputs = apply_to_recipe(inputs, argument_of(name), found[name])
    if inputs.run.deepspeed is not None:
        # A file that leaves them out means DeepSpeed's own default, which the Trainer would find to disagree.
        inputs = _in_engine(inputs, sizes)
    return _chosen(inputs, {name: one for name, one in found.items() if name != "gradient_checkpointing"})


def _sizes(inputs: Inputs, before: Effective, choice: Choice) -> dict[str, Decision]:
    """Buffers, and what the drives need, where no source names them."""
    profile = inputs.profile
    assert profile is not None
    found = dict(buffer_sizes.buffer_sizes(choice, inputs.facts, profile))
    for part, device in (("offload_optimizer", choice.offload_optimizer), ("offload_param", choice.offload_param)):
        if device == "nvme" and profile.host is not None and profile.host.nvme:
            mount = max(profile.host.nvme, key=lambda mount: mount.free_gib)
            why = f"zerocfg's choice: the drive with most room, {mount.free_gib:.0f} GiB"
            found[f"{ZERO}{part}.nvme_path"] = Decision(mount.path, why, "chosen")
            found |= buffer_sizes.aio(profile)
    return {name: one for name, one in found.items() if not is_named(before, name)}


def _reason(inputs: Inputs, best: Candidate) -> str:
    goals, device = inputs.spec.goals, inputs.profile.accelerator if inputs.profile else None
    prefer = goals.prefer if goals else "throughput"
    band, memory = best.prediction.device, device_room(inputs.profile)
    needs = f"up to {band.high / GIB:.1f} GiB" if best.verdict == "fits" else _range(best)
    takes = needs + (f" of {device.name}'s {memory / GIB:.0f} GiB" if device and memory else "")
    if not best.prediction.complete:
        takes = f"states of {best.prediction.allocated.expected / GIB:.1f} GiB a rank"
    speed = f", about {float(f'{best.time.tokens_per_second:.2g}'):,.0f} tokens/s" if best.time else ""
    word = {"throughput": "fastest", "memory": "smallest", "cost": "cheapest"}[prefer]
    fits = "fits" if best.verdict == "fits" else "may fit"
    if best.verdict == "likely":
        fits = f"likely fits ({percent(best.certain.chance or 0.0)})"
    return f"zerocfg's choice, the {word} plan that {fits}: {takes}{speed}"


def runner_up(rows: list[Ranked]) -> str:
    """The best of the other ways to run the job, and why it was not taken: "; next: ..."; nothing where there is none
    that may fit."""
    best = _way(rows[0][0])
    for one, why in rows[1:]:
        if _way(one) != best and one.word != "does not fit":
            return f"; next: {describe_plan(one.choice.settings())} ({why})"
    return ""


def _way(one: Candidate) -> Choice:
    return replace(one.choice, micro_batch=None, accumulation=None)


def _given(inputs: Inputs) -> dict[str, Any]:
    """The facts that a choice follows from."""
    goals, profile = inputs.spec.goals, inputs.profile
    found = {
        "hardware": profile.name if profile else None,
        "parameters": inputs.facts.parameters,
        "sequence_length": inputs.spec.sequence_length,
        "prefer": goals.prefer if goals else None,
        "global_batch_size": goals.global_batch_size if goals else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _predicted(best: Candidate) -> str:
    if best.prediction.complete:
        return f"{_range(best)} are predicted"
    return f"states take {best.prediction.allocated.expected / GIB:.1f} GiB a rank, and activations are not known"


def _range(best: Candidate) -> str:
    band = best.prediction.device
    return f"{band.low / GIB:.1f} to {band.high / GIB:.1f} GiB"


# -- precision ---------------------------------------------------------------------------------------------------------


def _with_precision(inputs: Inputs) -> Inputs:
    """bf16 where the device supports it, else fp16; only where no source sets either."""
    profile, run = inputs.profile, inputs.run
    if profile is None or profile.accelerator.vendor == "cpu" or profile.accelerator.bf16 is None:
        return inputs
    before = resolve_settings(run)
    recipe = run.recipe.data() if run.recipe else None
    said = {**(recipe if isinstance(recipe, dict) else {}), **run.arguments}
    names = ("mixed_precision", "bf16.enabled", "fp16.enabled")
    if any(name in said for name in HALVES):
        return inputs
    if any(is_set(before.get(name)) for name in names):
        for half in HALVES:
            if run.consumer in TRAINERS and run.recipe is not None and before.value(f"{half}.enabled") is True:
                # The Trainer compares its own argument with the engine's key.
                inputs = apply_to_recipe(inputs, half, Decision(True, f"as {half}.enabled of the engine", "computed"))
        return inputs
    device = profile.accelerator
    half = "bf16" if device.bf16 else "fp16"
    how = "computes in" if device.bf16 else "cannot compute in bf16, but in"
    one = Decision(True, f"zerocfg's choice: {device.name} {how} {half}", "chosen", inputs={"accelerator": device.name})
    if run.consumer in TRAINERS:
        if run.recipe is None:
            return inputs
        inputs = apply_to_recipe(inputs, half, one)
        if run.consumer == "trl" and half == "fp16":
            inputs = apply_to_recipe(inputs, "bf16", Decision(False, "fp16 is on", "computed"))
        if run.deepspeed is not None:
            inputs = _in_engine(inputs, {f"{half}.enabled": one})
        return _chosen(inputs, {f"{half}.enabled": one}) if inputs.engine == "deepspeed" else inputs
    if run.consumer == "deepspeed":
        return _chosen(_in_engine(inputs, {f"{half}.enabled": one}), {f"{half}.enabled": one})
    flags = {**run.flags, "mixed_precision": Setting(half, Origin("computed", one.reason))}
    inputs = replace(inputs, run=replace(run, flags=flags))
    return _in_engine(inputs, {f"{half}.enabled": one}) if run.deepspeed is not None else inputs


# -- after the search --------------------------------------------------------------------------------------------------


def gather_weights(effective: Effective, stage: Any, consumer: str | None) -> dict[str, Decision]:
    """With ZeRO-3, whole weights in the checkpoint unless the author refused them."""
    setting = effective.get(GATHER)
    if stage != 3 or setting is None or setting.value is not False or is_set(setting):
        return {}
    who = {"deepspeed": "DeepSpeed", "accelerate": "accelerate"}.get(str(consumer), "the Trainer")
    left = f'{who} would read "auto" as false' if setting.overridden else "nobody sets it, and its default is false"
    reason = f"zerocfg's choice: {left}, and the saved model would hold no weights"
    return {GATHER: Decision(True, reason, "chosen", inputs={STAGE: stage})}


def leaf_modules(effective: Effective, stage: Any, facts: ModelFacts) -> dict[str, Decision]:
    """With ZeRO-3, blocks of experts are gathered as a whole: ranks that visit different experts would wait for ever.

    DeepSpeed knows some of them (deepspeed/runtime/zero/leaf_module_config.py).
    """
    known = {name.rpartition(".")[2] for name in effective.value(LEAVES) or MOE_BLOCKS}
    missing = [name for name in facts.leaf_modules if name not in known]
    exported = effective.environment.get(MOE_NAMES)
    if stage != 3 or not missing or is_named(effective, LEAVES) or (exported is not None and exported.value):
        return {}
    reason = f"zerocfg's choice: the experts of {facts.model_type}, which a rank must not gather one by one"
    inputs = {"model_type": facts.model_type}
    return {LEAVES: Decision([*facts.leaf_modules], reason, "chosen", inputs=inputs)}


def pinned_memory(
    effective: Effective, run: Run, profile: HardwareProfile | None, notes: list[str]
) -> dict[str, Decision]:
    """Whether offload buffers are page-locked; stated, because the default changed with DeepSpeed 0.19.5."""
    found: dict[str, Decision] = {}
    release = run.versions.get("deepspeed", VERSIONS["deepspeed"])
    for part in ("offload_optimizer", "offload_param"):
        device = effective.value(f"zero_optimization.{part}.device", "none")
        name = f"zero_optimization.{part}.pin_memory"
        if device not in ("cpu", "nvme"):
            continue
        memory, room = run.memory, profile.host.planning_gib if profile and profile.host else None
        needed, lost = (memory.host_states_gib, memory.pinned_rounding_gib) if memory else (None, 0.0)
        if not is_set(effective.get(name)) and room and needed and needed > room >= needed - lost:
            reason = (
                f"zerocfg's choice: page-locked blocks are rounded up to powers of two, {needed:.0f} GiB of a node's "
            )
            found[name] = Decision(
                False, f"{reason}{room:.0f} GiB; without it {needed - lost:.0f} GiB", "chosen", inputs={"ram_gib": room}
            )
            pinned = False
        elif not is_set(effective.get(name)):
            default = parser_of(run).newest(name)
            reason = f"{origin_label(default.origin)}, stated because it changed in 0.19.5"
            found[name] = Decision(default.value, reason, "default", inputs={"deepspeed": release})
            pinned = default.value
        else:
            pinned = bool(effective.value(name))
        limit = profile.host.memlock if profile and profile.host else None
        if pinned and isinstance(limit, int):
            notes.append(
                f"{part} is page-locked in host memory, and this machine lets a process lock "
                f" {limit / 2**30:.2f} GiB (ulimit -l); CUDA's own pinned memory is not counted there"
            )
    return found
