"""Chooses what the author left open and the libraries would choose silently, or badly."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocfg.memory.overhead import GIB
from zerocfg.memory.verdict import percent
from zerocfg.models.deepspeed.zero import MOE_BLOCKS
from zerocfg.resolve.collect_inputs import on_part
from zerocfg.resolve.model.activations import Activations, base_of, with_adapters
from zerocfg.resolve.model.room import device_room, host_room
from zerocfg.resolve.plan import Decision, Problem
from zerocfg.resolve.search import buffer_sizes
from zerocfg.resolve.search.apply_choice import apply_to_engine, apply_to_recipe, argument_of
from zerocfg.resolve.search.candidates import Candidate, Candidates, is_named, is_set
from zerocfg.resolve.search.choice import GATHER, MICRO, STAGE, STEPS, ZERO, Choice, Prefer
from zerocfg.resolve.search.ranking import Ranked, considered, evaluate, ranked
from zerocfg.resolve.search.search_space import (
    TRAINERS,
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
TRACED_PLANS = 6  # the best by the closed formula; each different micro batch among them is traced


def with_open_values(inputs: Inputs) -> Inputs:
    """The inputs with open values (precision, stage, offload, batch, recomputation) chosen and applied to the run."""
    goals = inputs.spec.goals
    if goals is not None:
        inputs = _with_precision(inputs)
    before = resolve_settings(inputs.run)
    what = search_space(inputs, before)
    if what is None:
        return inputs
    inputs = replace(inputs, before=before)
    try:
        rows, notes = _search(inputs, before, what)
    except ContradictionError as error:
        return _without_plan(inputs, Problem("goals", str(error), error.help))
    except ValueError as error:
        if goals is None:
            message = f"no source sets the ZeRO stage, and {error}"
            return _without_plan(inputs, Problem(STAGE, message, "Write `stage` into the source."))
        message = f"zerocfg cannot choose: {error}"
        return _without_plan(inputs, Problem("goals", message, "Name the values in the sources instead."))
    inputs, (best, short) = replace(inputs, notes=(*inputs.notes, *notes)), rows[0]
    if short or goals is not None:
        inputs = replace(inputs, considered=tuple(considered(*row) for row in rows))
    if short:
        return _without_plan(inputs, _none_fits(best, short, chooses_stage=goals is None))
    return _with_stage(inputs, best) if goals is None else _with_plan(inputs, before, best)


def _none_fits(least: Candidate, short: str, *, chooses_stage: bool) -> Problem:
    message = f"no plan fits: the one that needs least ({_words(least.choice.settings())}) {short}"
    if not chooses_stage:
        return Problem("goals", message, "Use more devices, more memory or shorter sequences.")
    way_out = "Use more devices or shorter sequences, or offload the optimizer"
    return Problem(STAGE, f"no source sets the ZeRO stage, and {message}. {way_out}", "Write `stage` into the source.")


def _without_plan(inputs: Inputs, problem: Problem) -> Inputs:
    return replace(inputs, problems=(*inputs.problems, problem))


def _search(inputs: Inputs, before: Effective, what: SearchSpace) -> tuple[list[Ranked], list[str]]:
    """All candidates, the best first, and notes. Raises ValueError with the reason why nothing can be searched."""
    profile, goals = inputs.profile, inputs.spec.goals
    if profile is None:
        raise ValueError("without `hardware:` zerocfg cannot choose one")
    on_cpu = profile.accelerator.vendor == "cpu"
    if profile.accelerator.planning_gib is None and not (goals and on_cpu):
        raise ValueError(f"the memory of {profile.name} is not known, so zerocfg cannot choose one")
    prefer = goals.prefer if goals else None
    rows = ranked(evaluate(candidates_of(inputs, before, resize=goals is not None), choices(what)), prefer)
    if goals is not None and goals.trace and not rows[0][1]:
        return _traced(inputs, before, rows, goals.prefer)
    return rows, []


def _traced(inputs: Inputs, before: Effective, rows: list[Ranked], prefer: Prefer) -> tuple[list[Ranked], list[str]]:
    """The best plans once more, with the activations of the real model class, and notes."""
    likely = [one for one, _ in rows[:TRACED_PLANS]]
    candidates = candidates_of(inputs, before, resize=True, tracing=True)
    workloads = dict.fromkeys(one.setup.workload for one in likely if one.setup.workload)
    candidates.activations.prepare(likely[0].setup, list(workloads))
    again = ranked(evaluate(candidates, [one.choice for one in likely]), prefer)
    return again if again[0][1] else [*again, *rows[TRACED_PLANS:]], candidates.activations.notes


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
    if prediction.complete:
        about = f"the smallest stage that takes up to {prediction.device.high / GIB:.1f} GiB"
    else:
        about = f"the smallest stage whose states ({prediction.allocated.expected / GIB:.1f} GiB a rank) leave room"
    reason = f"zerocfg's choice: {about} of {device.name}'s {memory:.0f} GiB"
    stage = {STAGE: Decision(best.choice.stage, reason, "chosen", inputs=_given(inputs))}
    return _chosen(_in_engine(inputs, stage), stage)


def _with_plan(inputs: Inputs, before: Effective, best: Candidate) -> Inputs:
    """The inputs with the values of the best plan applied to the run."""
    choice, profile = best.choice, inputs.profile
    assert profile is not None
    why, given = _reason(inputs, best), _given(inputs)
    found = {name: Decision(value, why, "chosen", inputs=given) for name, value in choice.settings().items()}
    if stages_named(before):
        found.pop(STAGE, None)
    if choice.processes == profile.world_size:
        found.pop("num_processes")
    else:
        inputs = on_part(inputs, choice.nodes, choice.per_node, why)
    offload = {name for name in found if name.startswith(f"{ZERO}offload") and found[name].value == "none"}
    found = {name: one for name, one in found.items() if name not in offload}
    notes = list(inputs.notes)
    if best.verdict != "fits":
        left_out = "".join(f"; not modelled: {gap}" for gap in best.gaps)
        notes.append(f"the plan may not fit: {_tight(best)}{left_out}; zerocfg plan shows what helps")
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
    takes = f"up to {band.high / GIB:.1f} GiB" + (
        f" of {device.name}'s {memory / GIB:.0f} GiB" if device and memory else ""
    )
    if not best.prediction.complete:
        takes = f"states of {best.prediction.allocated.expected / GIB:.1f} GiB a rank"
    speed = f", about {float(f'{best.time.tokens_per_second:.2g}'):,.0f} tokens/s" if best.time else ""
    word = {"throughput": "fastest", "memory": "smallest", "cost": "cheapest"}[prefer]
    fits = "fits" if best.verdict == "fits" else "may fit"
    if best.verdict == "likely":
        fits = f"likely fits ({percent(best.certain.chance or 0.0)})"
    return f"zerocfg's choice, the {word} plan that {fits}: {takes}{speed}"


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


def _tight(best: Candidate) -> str:
    band = best.prediction.device
    return f"{band.low / GIB:.1f} to {band.high / GIB:.1f} GiB are predicted"


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
