"""ZC306, ZC320, ZC321, ZC326 to ZC328: the bf16 section, and master weights and optimizer states in 16 bits."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.effects import TRAINERS, effective_value, section, stage_of
from zerocfg.rules.failures import failures, reported
from zerocfg.rules.fixes import edited, together
from zerocfg.rules.precision.dtypes import about, accumulation, precision_of, without
from zerocfg.run.model import Run
from zerocfg.run.stages.engine import truth
from zerocfg.source.edit import delete_entry, rename_key, replace_value

_MASTERS = {"bf16": "bf16_master_weights_and_grads", "fp16": "fp16_master_weights_and_grads"}


@rule("ZC306", "master-weights-not-possible", Severity.ERROR)
def master_weights_not_possible(run: Run) -> Iterator[Finding]:
    for failure in failures(run, "ZC306"):
        finding = reported(run, failure)
        place = failure.places[0]
        finding.fix = edited(delete_entry, place.file, place.path, why="keep the states in fp32", safe=False)
        yield finding


@rule("ZC321", "bfloat16-section-ignored", Severity.ERROR)
def bfloat16_section_ignored(run: Run) -> Iterator[Finding]:
    old, new = section(run, "bfloat16").get("enabled"), section(run).get("bf16")
    beside = isinstance(new, dict)
    said = new.get("enabled") if isinstance(new, dict) else None
    if old is not True or run.deepspeed is None or (not beside and run.consumer not in (*TRAINERS, "accelerate")):
        return
    path = ("bfloat16",)
    if beside:
        lost = run.consumer == "deepspeed" and not truth(said)
        message = "the section `bfloat16` is not read beside `bf16`"
        fix = edited(delete_entry, run.deepspeed, path, why="remove the section that is not read")
        on = edited(replace_value, run.deepspeed, ("bf16", "enabled"), "true", why="switch bf16 on")
        if lost:
            fix = together("switch bf16 on and remove `bfloat16`", on, fix, safe=False)
    else:
        lost = effective_value(run, "mixed_precision") not in ("bf16", "fp16")
        message = "transformers and accelerate do not read `bfloat16`, and add a `bf16` section of their own"
        fix = edited(rename_key, run.deepspeed, path, "bf16", why="give the section its name of today")
    yield about(
        run,
        path,
        message + (": the job trains in fp32" if lost else ""),
        "use `bf16`",
        fix=fix if beside or run.consumer == "accelerate" else None,
        severity=None if lost else Severity.NOTE,
    )


def _masters(run: Run) -> Iterator[tuple[str, str]]:
    """Section and key of the 16-bit master weights that are switched on."""
    return ((kind, key) for kind, key in _MASTERS.items() if truth(section(run, kind).get(key)))


@rule("ZC326", "master-weights-without-offload", Severity.ERROR, versions="deepspeed>=0.18.3")
def master_weights_without_offload(run: Run) -> Iterator[Finding]:
    device = effective_value(run, "zero_optimization.offload_optimizer.device")
    optimizer = section(run, "optimizer")
    kind = optimizer.get("type")
    other = isinstance(kind, str) and kind.lower() not in ("adam", "adamw", "auto")
    torch_adam = section(run, "optimizer", "params").get("torch_adam") is True
    if stage_of(run) not in (1, 2, 3) or not (device == "none" or (device == "cpu" and (other or torch_adam))):
        return
    for mode, key in _masters(run):
        if mode == "bf16" and truth(section(run, "bf16").get("bf16_optimizer_states")):
            continue
        cause = "the optimizer is not offloaded to the processor" if device == "none" else "the optimizer is another"
        yield about(
            run,
            (mode, key),
            f"`{key}` needs DeepSpeedCPUAdam, DeepSpeed's Adam on the processor, but {cause}; DeepSpeed stops at it",
            'offload the optimizer to "cpu" with AdamW, or leave the key out'
            + (", or add `bf16_optimizer_states`" if mode == "bf16" and device == "none" else ""),
            fix=without(run, (mode, key), "keep master weights in fp32"),
        )


@rule("ZC327", "bf16-states-of-the-trainer-offloaded", Severity.ERROR, consumers=TRAINERS, versions="deepspeed>=0.19.1")
def bf16_states_of_the_trainer_offloaded(run: Run) -> Iterator[Finding]:
    path = ("bf16", "bf16_optimizer_states")
    written = section(run, "bf16")
    if not truth(written.get(path[1])) or not truth(written.get(_MASTERS["bf16"])) or "optimizer" in section(run):
        return
    if stage_of(run) in (1, 2, 3) and effective_value(run, "zero_optimization.offload_optimizer.device") == "cpu":
        yield about(
            run,
            path,
            "bf16 optimizer states with offload, but the optimizer is the Trainer's, which gets fp32 states; DeepSpeed "
            "stops at the difference",
            "describe the optimizer in the DeepSpeed config, or leave this key out",
            fix=without(run, path, "keep the optimizer states in fp32"),
        )


@rule("ZC328", "master-weights-of-another-mode", Severity.ERROR, versions="deepspeed>=0.18.3")
def master_weights_of_another_mode(run: Run) -> Iterator[Finding]:
    mode = precision_of(run)
    device = effective_value(run, "zero_optimization.offload_optimizer.device")
    for kind, key in _masters(run):
        states = kind == "bf16" and truth(section(run, kind).get("bf16_optimizer_states"))
        if mode is None or mode == kind or stage_of(run) not in (1, 2, 3) or not (device == "cpu" or states):
            continue
        yield about(
            run,
            (kind, key),
            f"the model trains in {mode}, not {kind}, but `{key}` counts all the same: the optimizer keeps its "
            f"weights in {kind}",
            "leave the key out",
            fix=without(run, (kind, key), "keep master weights in fp32"),
        )


@rule("ZC320", "immediate-update-unused", Severity.NOTE)
def immediate_update_unused(run: Run) -> Iterator[Finding]:
    path = ("bf16", "immediate_grad_update")
    stage = stage_of(run)
    if not truth(section(run, "bf16").get(path[1])) or precision_of(run) is None or section(run, "pipeline"):
        return
    if stage in (2, 3) or (stage == 1 and precision_of(run) == "bf16" and accumulation(run) != "fp32"):
        yield about(
            run,
            path,
            f"`immediate_grad_update` has no effect at stage {stage}"
            + ("" if stage != 1 else " without fp32 accumulation"),
            "leave it out",
            fix=edited(delete_entry, run.deepspeed, path, why="remove the key without effect"),
        )
