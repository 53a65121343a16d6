"""ZC9xx: what a micro batch costs: parameters gathered for it, and logits over a large vocabulary."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.effects import fits_at, gathers, stage_of, under_trainer
from zerocfg.rules.key import from_origin, recipe, setting
from zerocfg.run.model import Run


@rule("ZC906", "parameters-gathered-for-small-batches", Severity.NOTE, WHOLE_RUN, needs={"model", "hardware"})
def parameters_gathered_for_small_batches(run: Run) -> Iterator[Finding]:
    hardware, memory = run.hardware, run.memory
    steps = run.effective.get("gradient_accumulation_steps")
    if hardware is None or hardware.memory_gib is None or memory is None or memory.doubled_peak_gib is None:
        return
    if steps is None or not isinstance(steps.value, int) or steps.value < 4 or steps.value % 2:
        return
    low, high = memory.doubled_peak_gib
    if stage_of(run) != 3 or hardware.accelerators < 2 or high > hardware.memory_gib or fits_at(run, 2):
        return
    micro = memory.micro_batch or 1
    yield from_origin(run, steps.origin).finding(
        f"{steps.value} accumulation steps at stage 3 gather all parameters {gathers(run) * steps.value} times a step, "
        f"and a micro batch of {2 * micro} takes about {low:.0f} to {high:.0f} of {hardware.memory_gib:.0f} GiB",
        f"micro batch {2 * micro} with {steps.value // 2} accumulation steps sends half the bytes",
    )


@rule("ZC907", "all-logits-at-once", Severity.NOTE, WHOLE_RUN, needs={"model"})
def all_logits_at_once(run: Run) -> Iterator[Finding]:
    memory, model = run.memory, run.model
    if memory is None or model is None or not memory.logits_gib or run.consumer == "trl":
        return
    room = run.hardware.memory_gib if run.hardware else None
    if memory.logits_gib < (room / 5 if room else 8.0):
        return
    liger = recipe(run, "use_liger_kernel") if under_trainer(run) else None
    yield setting(run, "train_micro_batch_size_per_gpu").finding(
        f"logits and loss of {memory.micro_batch} x {memory.sequence_length} tokens over a vocabulary of "
        f"{model.vocab_size} words take about {memory.logits_gib:.0f}"
        + (f" of {room:.0f}" if room else "")
        + " GiB of each accelerator",
        "compute the loss in pieces (`use_liger_kernel: true`, cut cross entropy), or take a smaller micro batch",
        fix=liger.set("true", "compute the loss in pieces", safe=False) if liger is not None else None,
    )
