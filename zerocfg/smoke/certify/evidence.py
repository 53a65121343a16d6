"""Evidence: what a smoke-run proved, and what it did not, as plain statements.

Every statement follows from what was seen (checks, reports) or from what was changed (reductions, device): nothing is
claimed because the run passed as a whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from zerocfg.hardware.catalogue import find_accelerator
from zerocfg.smoke.model.certificate import ENGINE, STEPS
from zerocfg.smoke.model.reduction import Kind
from zerocfg.smoke.model.size import GIB
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.fit import SEQUENCE, fit_of, sequence_of, spec_of

if TYPE_CHECKING:
    from zerocfg.smoke.judge.verdict import Verdict
    from zerocfg.smoke.launch.process import Outcome
    from zerocfg.smoke.model.certificate import Check
    from zerocfg.smoke.prepare.folder import RunFolder

SHOWN = 4
"""Names that are shown of a longer list."""
PART = " of a rank"
"""Suffix of the checks that compare what each rank keeps with its equal share."""
ENGINES = {"ddp": "DDP", "fsdp": "FSDP", "single": "one process"}


@dataclass(frozen=True, slots=True)
class Evidence:
    """``proven``: what was seen. ``not_proven``: what the planned run does besides, and what was tried instead."""

    proven: tuple[str, ...]
    not_proven: tuple[str, ...]


def evidence(verdict: Verdict) -> Evidence:
    """What a run proved, of one that failed up to where it failed; empty where no engine was set up."""
    if not verdict.outcome.reports:
        return Evidence((), ())
    proven = tuple(_proven(verdict))
    if verdict.outcome.failure is not None:
        stage = failed_stage(verdict.outcome)
        return Evidence(proven, (f"what comes from '{stage}' on: the run ended there",) if stage else ())
    return Evidence(proven, tuple(_not_proven(verdict)))


def failed_stage(outcome: Outcome) -> str:
    """The stage in which a run ended ("init", "step 1", "save"): of the rank where that began, else of the one that
    came least far. Empty where no rank reported."""
    reports = outcome.reports
    if outcome.rank is not None and outcome.rank < len(reports):
        return reports[outcome.rank].get("phase", "launch")
    if not reports:
        return ""
    running = [report for report in reports if not report.get("done")] or reports
    return min(running, key=lambda report: len(report.get("step_seconds", []))).get("phase", "launch")


def _proven(verdict: Verdict) -> list[str]:
    passed = {check.name: check for check in verdict.checks if check.ok is True}
    seen, reduced = verdict.outcome.reports[0].get("seen", {}), verdict.reduced
    engine = f"ZeRO-{seen.get('stage')}" if seen.get("engine") == "deepspeed" else ENGINES.get(str(seen.get("engine")))
    found: list[str] = []
    if engine is None:
        return found
    by = f"{engine} with TRL's {reduced.trainer}" if reduced.trainer is not None else engine
    steps = int(passed[STEPS].planned) if STEPS in passed else _steps(verdict)
    where = f"in {seen.get('dtype')} on {_where(verdict)}"
    if steps:
        falls = ", and the loss falls" if "loss falls" in passed else ""
        found.append(f"{by} trains {steps} optimizer step{'s' if steps != 1 else ''} {where}{falls}")
    elif ENGINE in passed:
        found.append(f"{by} is set up {where}")
    parts = [
        name.removesuffix(PART) for name in passed if name.endswith(PART) and passed[name].planned.startswith("1/")
    ]
    if parts:
        found.append(f"each of {reduced.ranks} ranks holds its shard of the {_and(parts)}")
    if "parameters alike on all ranks" in passed:
        # Shards are gathered from one rank each, so equal parameters alone say nothing of averaged gradients.
        sharded = seen.get("engine") == "fsdp" or (seen.get("stage") or 0) > 0
        averaged = not sharded or "gradients as under ZeRO-0" in passed
        what = "gradients are synchronised: " if averaged else ""
        found.append(f"{what}all ranks hold the same parameters after the steps")
    if "loss as under ZeRO-0" in passed:
        more = " and gradients" if "gradients as under ZeRO-0" in passed else ""
        found.append(f"losses{more} are those of ZeRO-0 ({passed['loss as under ZeRO-0'].seen})")
    found += _offload(passed)
    settings = sum(1 for item in passed.values() if item.further == "acting")
    if settings:
        more = f"{settings} more settings are" if settings > 1 else "one more setting is"
        found.append(f"{more} as planned where the engine uses them")
    if "saved parameters" in passed:
        values = " and equal those of the live model" if "saved values" in passed else ""
        loaded = ", and from_pretrained loads them" if "loaded by from_pretrained" in passed else ""
        found.append(f"saved weights are complete{values} ({passed['saved parameters'].seen}){loaded}")
    if "resumes from a checkpoint" in passed:
        of_copy = " in a narrow copy" if reduced.copy is not None else ""
        found.append(f"a checkpoint resumes with the same next loss{of_copy}")
    return found + _held_memory(verdict)


def _steps(verdict: Verdict) -> int:
    """Optimizer steps that every rank did with finite losses; of a run that failed, those up to there."""
    reports = verdict.outcome.reports
    losses = [loss for report in reports for loss in report.get("losses", [])]
    read = all(report.get("losses") for report in reports) and all(math.isfinite(loss) for loss in losses)
    return min(len(report.get("step_seconds", [])) for report in reports) if read else 0


def _where(verdict: Verdict) -> str:
    ranks, device = verdict.reduced.ranks, verdict.device
    place = "a processor" if device.kind == "cpu" else device.name
    nodes = f" on {verdict.reduced.nodes} nodes" if verdict.reduced.nodes > 1 else ""
    return f"{ranks} rank{'s' if ranks != 1 else ''} of {place}{nodes}"


def _offload(passed: dict[str, Check]) -> list[str]:
    found = []
    for name, what in (("optimizer states on", "the optimizer's states"), ("parameters on", "the parameters' shards")):
        if name in passed and passed[name].planned == "cpu":
            found.append(f"{what} are in host memory")
    return found


def _held_memory(verdict: Verdict) -> list[str]:
    """On a card: the memory of the model that ran."""
    peak = verdict.figures.peak() if verdict.device.kind == "cuda" and verdict.command is None else None
    if not peak or verdict.reduced.narrow:
        return []
    layers = verdict.reduced.layers
    model = f"{layers[1]} of {layers[0]} layers, all widths as planned," if layers else "the whole model"
    return [f"{model} in {peak / GIB:.1f} GiB of tensors of a rank, with samples of {verdict.reduced.sequence} tokens"]


def _not_proven(verdict: Verdict) -> list[str]:
    run, reduced = verdict.run, verdict.reduced
    found = _ranks(verdict) + _device(verdict)
    found += [f"the saved weights: {change.why}" for change in reduced.changes if change.kind is Kind.SAVING]
    if verdict.command is not None:
        return [*found, *_of_command(verdict)]
    config = run.lock.model_config
    if config is None:
        found.append("anything about the model: its config is unknown, a small Llama ran")
    elif reduced.narrow:
        layers = f", with {reduced.layers[1]} of {reduced.layers[0]} layers" if reduced.layers else ""
        found.append(f"that the model runs at full size: a small one of the same architecture did{layers}")
    elif reduced.layers:
        found.append(f"that {reduced.layers[0]} layers run: {reduced.layers[1]} did")
    if reduced.copy is not None:
        found.append("that the model itself resumes and trains as under ZeRO-0: a narrow copy of it did, in less time")
    found += _memory(verdict)
    length, _ = sequence_of(run)
    if length is not None and length != reduced.sequence:
        found.append(f"samples of {length} tokens: {reduced.sequence} ran")
    elif length is None:
        found.append(f"the length of your samples, which is not stated: {reduced.sequence} tokens ran")
    found += [*_precision(run, verdict), *_rate(verdict), *_drives(verdict), *_recipe(verdict), *_unseen(verdict)]
    loop = "the Trainer's own" if run.consumer in ("transformers", "trl") else "its own"
    script = run.lock.script or "your script"
    if reduced.trainer is None:
        found.append(f"{script} and its data: zerocfg trained random weights on one batch in {loop} loop")
    else:
        found.append(f"{script} and its data: {reduced.trainer} trained random weights on words that mean nothing")
    return found


def _of_command(verdict: Verdict) -> list[str]:
    """What a command without a run leaves open beside what holds for every run."""
    if verdict.run.plan:
        return []
    found = []
    if verdict.device.kind == "cpu":
        found.append("kernels, memory and speed of a card: a processor ran")
        if verdict.reduced.ranks > 1:
            found.append("NCCL: the ranks communicated over gloo")
    found.append("what the script does after these steps: evaluation, saving, the end of an epoch")
    return found


def _ranks(verdict: Verdict) -> list[str]:
    """The planned ranks and their communication."""
    run, reduced, device = verdict.run, verdict.reduced, verdict.device
    planned, nodes = run.plan.get("num_processes"), run.plan.get("num_machines")
    over = "gloo" if device.kind == "cpu" else "gloo" if _shares_by_gloo(verdict) else "NCCL"
    several = isinstance(nodes, int) and nodes > reduced.nodes
    if isinstance(planned, int) and (planned > reduced.ranks or several):
        where = f" on {nodes} nodes" if isinstance(nodes, int) and nodes > 1 else ""
        on = "one machine" if reduced.nodes == 1 else f"{reduced.nodes} nodes"
        did = f"{reduced.ranks} on {on} communicated, over {over}" if reduced.ranks > 1 else "only one ran"
        return [f"communication between {planned} ranks{where}: {did}"]
    if isinstance(planned, int) and planned > 1 and over == "gloo" and _vendor(run) == "nvidia":
        return ["NCCL: the ranks communicated over gloo"]
    return []


def _shares_by_gloo(verdict: Verdict) -> bool:
    return verdict.device.shared and any(
        isinstance(change.run, dict) and change.run["collectives"] == "gloo"
        for change in verdict.reduced.changes
        if change.kind is Kind.SHARED_CARD
    )


def _device(verdict: Verdict) -> list[str]:
    """The accelerator that the run is planned for, where another one was used."""
    name = verdict.run.lock.hardware.get("accelerator")
    found = []
    if isinstance(name, str) and name != "cpu":
        here = find_accelerator(verdict.device.name) if verdict.device.kind == "cuda" else None
        if verdict.device.kind == "cpu":
            found.append(f"memory, kernels and speed of {name}: a processor ran")
        elif here is None or here[0].name != name:
            found.append(f"memory and speed of {name}: {verdict.device.name} ran")
    if verdict.device.shared:
        found.append("times, and ranks with one card each: they shared one")
    return found


def _vendor(run: RunFolder) -> str | None:
    return str(run.lock.hardware.get("vendor")) if run.lock.hardware else None


def _memory(verdict: Verdict) -> list[str]:
    """That the planned run fits its hardware: a prediction, if any."""
    run, reduced = verdict.run, verdict.reduced
    hardware = run.lock.hardware
    config = run.lock.model_config
    planned = run.plan.get("num_processes")
    if config is None or not isinstance(planned, int):
        return []
    name, memory = hardware.get("accelerator"), hardware.get("memory_gib")
    if not isinstance(name, str) or name == "cpu" or not isinstance(memory, (int, float)):
        return []
    here = find_accelerator(verdict.device.name) if verdict.device.kind == "cuda" else None
    whole = not reduced.narrow and not reduced.layers and reduced.ranks == planned and not verdict.device.shared
    if whole and here is not None and here[0].name == name:
        return []  # it ran as planned
    length = sequence_of(run)[0] or SEQUENCE
    fit = fit_of(run, run.plan, planned, Device("cuda", name), length)
    fit = replace(fit, spec=spec_of(run).model_copy(update={"sequence_length": length}), recipe=run.lock.recipe)
    found = fit.prediction(config)
    parameters = run.lock.parameters
    what = f"{parameters:,} parameters fit" if isinstance(parameters, int) else "the model fits"
    where = f"into the {memory:.0f} GiB of {name}"
    if found is None:
        return [f"that {what} {where}: there is no prediction either"]
    band = found[2].device
    ends = f"{band.low / GIB:.1f} to {band.high / GIB:.1f}"
    return [f"that {what} {where}: {band.expected / GIB:.1f} GiB per rank are predicted ({ends})"]


def _precision(run: RunFolder, verdict: Verdict) -> list[str]:
    if run.plan.get("fp16.enabled") and not verdict.reduced.plan.get("fp16.enabled"):
        return ["fp16 and its loss scale: bf16 ran"]
    return []


def _rate(verdict: Verdict) -> list[str]:
    """The learning rate of the schedule, where a higher one took its place."""
    report = verdict.outcome.reports[0]
    least = report.get("trial_rate")
    planned = [rate for rate in report.get("rates", []) if rate is not None]
    if least is None or not planned or max(planned) >= least:
        return []
    return [f"steps with the planned learning rate, {max(planned):.3g} at most so early: {least:.3g} was used"]


def _drives(verdict: Verdict) -> list[str]:
    """Offload to NVMe, and of FSDP to the host."""
    found = []
    if verdict.reduced.has(Kind.FSDP_OFFLOAD):
        found.append("FSDP's offload of parameters to the host: it was off")
    for part, drive in (("offload_optimizer", Kind.OPTIMIZER_DRIVE), ("offload_param", Kind.PARAM_DRIVE)):
        key = f"zero_optimization.{part}.device"
        if verdict.run.plan.get(key) != "nvme":
            continue
        if verdict.reduced.plan.get(key) == "nvme":
            found.append(f"{part}: speed and space of the planned drive" if verdict.reduced.has(drive) else "")
        else:
            found.append(f"{part} to NVMe: host memory was used instead")
    return [words for words in found if words]


def _recipe(verdict: Verdict) -> list[str]:
    """What the recipe requests and the ranks' program does not do."""
    recipe, reduced = verdict.run.lock.recipe, verdict.reduced
    found = []
    if recipe.get("use_peft"):
        found.append("LoRA adapters: all parameters were trained")
    if recipe.get("attn_implementation"):
        found.append(f"attention by {recipe['attn_implementation']}: the model's default ran")
    if recipe.get("use_liger_kernel"):
        found.append("Liger kernels: transformers' own ran")
    if reduced.trainer == "GRPOTrainer":
        found.append("the reward functions: the mean token of a completion was the reward")
        if recipe.get("use_vllm"):
            found.append("generation by vLLM, its memory and its weights: transformers generated")
    if verdict.run.consumer == "trl" and reduced.trainer is None:
        why = f" ({reduced.no_trainer})" if reduced.no_trainer else ""
        found.append(f"TRL's trainer, its loss and its data collator: the Trainer of transformers ran{why}")
    return found


def _unseen(verdict: Verdict) -> list[str]:
    names = [check.name for check in verdict.checks if check.further == "unseen"]
    if not names:
        return []
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    count = f"{len(names)} settings" if len(names) > 1 else "a setting"
    return [f"{count} that the engine does not expose: {', '.join(names[:SHOWN])}{more}"]


def _and(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
