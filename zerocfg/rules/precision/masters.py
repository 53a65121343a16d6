"""ZC306, ZC320, ZC321, ZC326 to ZC328: the bf16 section, and master weights and optimizer states in 16 bits."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.effects import TRAINERS, effective_value, stage_of, with_accelerate
from zerocfg.rules.fixes import together
from zerocfg.rules.key import Key, deepspeed
from zerocfg.rules.precision.dtypes import accumulation, dtype_of, precision_of
from zerocfg.rules.subjects import FailureOfRun, each_failure, in_deepspeed
from zerocfg.run.model import Run


def _offload(run: Run) -> object:
    return effective_value(run, "zero_optimization.offload_optimizer.device")


def _masters(run: Run) -> Iterator[tuple[str, Key]]:
    """Section and key of the 16-bit master weights that are switched on."""
    for mode in ("bf16", "fp16"):
        key = deepspeed(run, mode, f"{mode}_master_weights_and_grads")
        if key.on:
            yield mode, key


@rule("ZC306", "master-weights-not-possible", Severity.ERROR, each_failure("ZC306"))
def master_weights_not_possible(predicted: FailureOfRun) -> Iterator[Finding]:
    fix = predicted.keys[0].delete("keep the states in fp32", safe=False)
    yield predicted.finding(fix=fix)


@rule("ZC321", "bfloat16-section-ignored", Severity.ERROR, WHOLE_RUN)
def bfloat16_section_ignored(run: Run) -> Iterator[Finding]:
    old, new = deepspeed(run, "bfloat16"), deepspeed(run, "bf16")
    both = isinstance(new.value, dict)
    if old.get("enabled") is not True or (not both and not with_accelerate(run)):
        return
    fix = None
    if both:
        lost = run.consumer == "deepspeed" and not new["enabled"].on
        message = "the section `bfloat16` is not read beside `bf16`"
        fix = old.delete("remove the section that is not read")
        if lost:
            on = new["enabled"].replace("true", "switch bf16 on")
            fix = together("switch bf16 on and remove `bfloat16`", on, fix, safe=False)
    else:
        lost = effective_value(run, "mixed_precision") not in ("bf16", "fp16")
        message = "transformers and accelerate do not read `bfloat16`, and add a `bf16` section of their own"
        if run.consumer == "accelerate":
            fix = old.rename("bf16", "give the section its name of today")
    yield old.finding(
        message + (": the job trains in fp32" if lost else ""),
        "use `bf16`",
        fix=fix,
        severity=None if lost else Severity.NOTE,
    )


@rule("ZC326", "master-weights-without-offload", Severity.ERROR, WHOLE_RUN, versions="deepspeed>=0.18.3")
def master_weights_without_offload(run: Run) -> Iterator[Finding]:
    device, optimizer = _offload(run), deepspeed(run, "optimizer")
    kind = optimizer.get("type")
    other = isinstance(kind, str) and kind.lower() not in ("adam", "adamw", "auto")
    other = other or optimizer["params"].get("torch_adam") is True
    if stage_of(run) not in (1, 2, 3) or not (device == "none" or (device == "cpu" and other)):
        return
    for mode, key in _masters(run):
        if mode == "bf16" and deepspeed(run, "bf16", "bf16_optimizer_states").on:
            continue
        cause = "the optimizer is not offloaded to the processor" if device == "none" else "the optimizer is another"
        yield key.finding(
            f"`{key.name}` needs DeepSpeedCPUAdam, DeepSpeed's Adam on the processor, but {cause}; DeepSpeed stops "
            "at it",
            'offload the optimizer to "cpu" with AdamW, or leave the key out'
            + (", or add `bf16_optimizer_states`" if mode == "bf16" and device == "none" else ""),
            fix=key.delete("keep master weights in fp32", safe=False),
        )


@rule(
    "ZC327",
    "bf16-states-of-the-trainer-offloaded",
    Severity.ERROR,
    in_deepspeed("bf16"),
    consumers=TRAINERS,
    versions="deepspeed>=0.19.1",
)
def bf16_states_of_the_trainer_offloaded(bf16: Key) -> Iterator[Finding]:
    key = bf16["bf16_optimizer_states"]
    if not key.on or not bf16["bf16_master_weights_and_grads"].on or "optimizer" in deepspeed(bf16.run):
        return
    if stage_of(bf16.run) in (1, 2, 3) and _offload(bf16.run) == "cpu":
        yield key.finding(
            "bf16 optimizer states with offload, but the optimizer is the Trainer's, which gets fp32 states; DeepSpeed "
            "stops at the difference",
            "describe the optimizer in the DeepSpeed config, or leave this key out",
            fix=key.delete("keep the optimizer states in fp32", safe=False),
        )


@rule("ZC328", "master-weights-of-another-mode", Severity.ERROR, WHOLE_RUN, versions="deepspeed>=0.18.3")
def master_weights_of_another_mode(run: Run) -> Iterator[Finding]:
    mode = precision_of(run)
    for kind, key in _masters(run):
        states = kind == "bf16" and deepspeed(run, kind, "bf16_optimizer_states").on
        if mode is None or mode == kind or stage_of(run) not in (1, 2, 3) or not (_offload(run) == "cpu" or states):
            continue
        yield key.finding(
            f"the model trains in {mode}, not {kind}, but `{key.name}` counts all the same: the optimizer keeps its "
            f"weights in {kind}",
            "leave the key out",
            fix=key.delete("keep master weights in fp32", safe=False),
        )


@rule("ZC320", "immediate-update-unused", Severity.NOTE, in_deepspeed("bf16", "immediate_grad_update"))
def immediate_update_unused(key: Key) -> Iterator[Finding]:
    mode, stage = precision_of(key.run), stage_of(key.run)
    if not key.on or mode is None or deepspeed(key.run, "pipeline").section:
        return
    if stage in (2, 3) or (stage == 1 and mode == "bf16" and dtype_of(accumulation(key.run)) != "fp32"):
        yield key.finding(
            f"`{key.name}` has no effect at stage {stage}" + ("" if stage != 1 else " without fp32 accumulation"),
            "leave it out",
            fix=key.delete("remove the key without effect"),
        )
