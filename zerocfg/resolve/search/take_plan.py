"""Applies the best plan to the run: its values as decisions, each with its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocfg.memory.options import Options
from zerocfg.memory.overhead import GIB
from zerocfg.memory.verdict import percent
from zerocfg.resolve.collect_inputs import on_part
from zerocfg.resolve.engine.open_engines import TRAINERS
from zerocfg.resolve.model.fused_loss import where_stated
from zerocfg.resolve.model.room import device_room, host_room
from zerocfg.resolve.plan import Decision
from zerocfg.resolve.search import buffer_sizes
from zerocfg.resolve.search.apply_choice import apply_to_recipe, argument_of, in_engine, with_chosen
from zerocfg.resolve.search.candidates import Candidate, is_named
from zerocfg.resolve.search.choice import ENGINE, LIGER, MICRO, STAGE, STEPS, ZERO, Choice, Lever, describe_plan
from zerocfg.resolve.search.ranking import Ranked
from zerocfg.resolve.search.search_space import stages_named
from zerocfg.run.model import Effective

if TYPE_CHECKING:
    from zerocfg.resolve.inputs import Inputs

_RECIPE_ONLY = ("gradient_checkpointing", LIGER)
"""Training arguments that can be chosen and that no engine config contains."""


def with_stage(inputs: Inputs, best: Candidate) -> Inputs:
    """The inputs with the ZeRO stage of the best plan, and nothing else of it. For specs without goals."""
    assert inputs.profile is not None
    device, prediction = inputs.profile.accelerator, best.prediction
    memory = device.planning_gib or 0.0
    if best.word == "fits":
        about = f"the smallest stage that takes up to {prediction.device.high / GIB:.1f} GiB"
    elif prediction.complete:
        about = f"the stage most likely to fit ({percent(best.judged.chance or 0.0)}): {device_range(best)}"
    else:
        about = f"the smallest stage whose states ({prediction.allocated.expected / GIB:.1f} GiB a rank) leave room"
    reason = f"zerocfg's choice: {about} of {device.name}'s {memory:.0f} GiB"
    stage = {STAGE: Decision(best.choice.stage, reason, "chosen", inputs=_given(inputs))}
    return with_chosen(in_engine(inputs, stage), stage)


def with_plan(inputs: Inputs, rows: list[Ranked]) -> Inputs:
    """The inputs with the values of the best plan applied to the run."""
    (best, _), before = rows[0], inputs.before
    choice, profile = best.choice, inputs.profile
    assert profile is not None and before is not None
    why, given = _reason(inputs, best), _given(inputs)
    found = {name: Decision(value, why, "chosen", inputs=given) for name, value in choice.plain.settings().items()}
    if stages_named(before):
        found.pop(STAGE, None)
    if choice.engine == "ddp" and choice.processes == 1:
        found[ENGINE] = replace(found[ENGINE], value="single")
    unchanged = {name for name in found if name.startswith(f"{ZERO}offload") and found[name].value == "none"}
    if choice.processes == profile.world_size:
        unchanged.add("num_processes")
    else:
        inputs = on_part(inputs, choice.nodes, choice.per_node, why)
    found = {name: decision for name, decision in found.items() if name not in unchanged}
    # The runner-up is named once, in the reason of the decision that says most about the plan.
    by_weight = (ENGINE, STAGE, *(name for name in found if name != "num_processes"), "num_processes")
    main = next((name for name in by_weight if name in found), None)
    if main is not None:
        found[main] = replace(found[main], reason=why + runner_up(rows))
    notes = list(inputs.notes)
    if best.verdict != "fits":
        left_out = "".join(f"; not modelled: {gap}" for gap in best.gaps)
        notes.append(f"the plan may not fit: {_predicted(best)}{left_out}; zerocfg plan shows what helps")
    if choice.offloads and host_room(profile) is None:
        host = (
            f"the plan takes {best.host / GIB:,.0f} GiB of a node's memory, and {profile.name} does not state how much"
        )
        notes.append(f"{host} there is; a profile that `zerocfg probe` wrote does")
    if choice.fused_loss:
        notes.append(f"use_liger_kernel needs the package liger-kernel where the job runs ({where_stated(inputs.run)})")
    inputs = replace(inputs, notes=tuple(notes))
    if inputs.engine == "deepspeed":
        found |= _sizes(inputs, before, choice)
    for lever, without in best.without:
        for name, value in choice.settings_of(lever).items():
            reason = _gain(lever, value, best, without, found.get(name))
            found[name] = Decision(value, reason, "chosen", inputs=given)
    if inputs.engine == "deepspeed":
        inputs = in_engine(
            inputs, {name: decision for name, decision in found.items() if name.startswith((ZERO, "aio."))}
        )
    return _with_batch(inputs, found)


def _with_batch(inputs: Inputs, found: dict[str, Decision]) -> Inputs:
    """The inputs with batch size and recomputation in the recipe of a Trainer, else in the DeepSpeed config."""
    sizes = {name: decision for name, decision in found.items() if name in (MICRO, STEPS)}
    if inputs.run.consumer not in TRAINERS:
        return with_chosen(in_engine(inputs, sizes), found)
    for name in (MICRO, STEPS, *_RECIPE_ONLY):
        if name in found:
            inputs = apply_to_recipe(inputs, argument_of(name), found[name])
    if inputs.run.deepspeed is not None:
        # Left out, they would be DeepSpeed's defaults, and the Trainer stops where the two differ.
        inputs = in_engine(inputs, sizes)
    return with_chosen(inputs, {name: decision for name, decision in found.items() if name not in _RECIPE_ONLY})


def _sizes(inputs: Inputs, before: Effective, choice: Choice) -> dict[str, Decision]:
    """Decisions on buffer sizes and NVMe settings that no source sets."""
    profile = inputs.profile
    assert profile is not None
    found = dict(buffer_sizes.buffer_sizes(choice, inputs.facts, profile))
    for part, device in (("offload_optimizer", choice.offload_optimizer), ("offload_param", choice.offload_param)):
        if device == "nvme" and profile.host is not None and profile.host.nvme:
            mount = max(profile.host.nvme, key=lambda mount: mount.free_gib)
            why = f"zerocfg's choice: the drive with most room, {mount.free_gib:.0f} GiB"
            found[f"{ZERO}{part}.nvme_path"] = Decision(mount.path, why, "chosen")
            found |= buffer_sizes.aio(profile)
    return {name: decision for name, decision in found.items() if not is_named(before, name)}


def _reason(inputs: Inputs, best: Candidate) -> str:
    goals, device = inputs.spec.goals, inputs.profile.accelerator if inputs.profile else None
    prefer = goals.prefer if goals else "throughput"
    band, memory = best.prediction.device, device_room(inputs.profile)
    needs = f"up to {band.high / GIB:.1f} GiB" if best.verdict == "fits" else device_range(best)
    takes = needs + (f" of {device.name}'s {memory / GIB:.0f} GiB" if device and memory else "")
    if not best.prediction.complete:
        takes = f"states of {best.prediction.allocated.expected / GIB:.1f} GiB a rank"
    speed = f", about {float(f'{best.time.tokens_per_second:.2g}'):,.0f} tokens/s" if best.time else ""
    word = {"throughput": "fastest", "memory": "smallest", "cost": "cheapest"}[prefer]
    fits = "fits" if best.verdict == "fits" else "may fit"
    if best.verdict == "likely":
        fits = f"likely fits ({percent(best.certain.chance or 0.0)})"
    return f"zerocfg's choice, the {word} plan that {fits}: {takes}{speed}"


def _gain(lever: Lever, value: Any, best: Candidate, without: Candidate, sized: Decision | None) -> str:
    """The reason of a lever: the value that it replaces, and what is gained.

    ``sized``: the decision on its value without the lever; None if that is the library's default."""
    options = without.setup.options
    if lever == "fused_loss":
        instead = "the loss in pieces instead of all logits at once"
    elif isinstance(options, Options) and sized is None:
        default = {"live": options.max_live_parameters, "persistence": options.param_persistence_threshold}
        instead = f"{value} elements instead of DeepSpeed's {default.get(lever, options.reduce_bucket_size)}"
    else:
        instead = f"{value} elements instead of {sized.value if sized else '?'}"
    new, old = best.prediction.device, without.prediction.device
    gains = [f"up to {new.high / GIB:.1f} GiB instead of {old.high / GIB:.1f}"]
    chances = [percent(candidate.judged.chance) for candidate in (without, best) if candidate.judged.chance is not None]
    if len(set(chances)) == 2 and {candidate.word for candidate in (without, best)} != {"fits"}:
        gains.append(f"chance to fit {chances[0]} -> {chances[1]}")
    now, before = best.seconds_per_token, without.seconds_per_token
    if now and before and abs(change := before / now - 1) >= 0.005:
        gains.append(f"{change:.0%} more tokens a second" if change > 0 else f"{-change:.0%} fewer tokens a second")
    return f"zerocfg's choice: {instead}: {', '.join(gains)}"


def runner_up(rows: list[Ranked]) -> str:
    """The best plan of another kind and why it lost, as the end of a reason ("; next: ..."); empty if none may fit."""
    best = rows[0][0].choice.way
    for row, why in rows[1:]:
        if row.choice.way != best and row.word != "does not fit":
            return f"; next: {describe_plan(row.choice.settings())} ({why})"
    return ""


def _given(inputs: Inputs) -> dict[str, Any]:
    """The inputs of a choice, for its provenance; without those that are unknown."""
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
        return f"{device_range(best)} are predicted"
    return f"states take {best.prediction.allocated.expected / GIB:.1f} GiB a rank, and activations are not known"


def device_range(best: Candidate) -> str:
    """The predicted memory of a plan on a device, as "LOW to HIGH GiB"."""
    band = best.prediction.device
    return f"{band.low / GIB:.1f} to {band.high / GIB:.1f} GiB"
