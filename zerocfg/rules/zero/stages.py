"""ZC4xx: ZeRO stages. See also :mod:`autos`, :mod:`saving` and :mod:`communication`."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import WHOLE_RUN, Finding, Location, Severity, rule
from zerocfg.rules.effects import (
    changed_before,
    effective_value,
    fits_at,
    gathers,
    stage_of,
    training_memory,
    tuned,
    under_deepspeed_launcher,
)
from zerocfg.rules.failures import failures, primary_location
from zerocfg.rules.key import Key, deepspeed, setting
from zerocfg.rules.release_scope import uses_plugin
from zerocfg.rules.subjects import FailureOfRun, each_failure, in_accelerate, in_zero
from zerocfg.run.model import Run


@rule("ZC403", "stage-auto", Severity.ERROR, in_zero("stage"))
def stage_auto(key: Key) -> Iterator[Finding]:
    if key.value != "auto":
        return
    severity: Severity | None = Severity.WARNING
    if key.run.consumer == "deepspeed":
        severity, becomes = None, "deepspeed.initialize silently takes 0: no ZeRO at all"
    elif "ACCELERATE_DEEPSPEED_ZERO_STAGE" in key.run.effective.environment:
        return
    elif key.run.consumer is not None:
        becomes = "nobody names a stage, so accelerate takes its default, 2"
    else:
        becomes = "accelerate and the Trainer take 2, deepspeed.initialize takes 0"
    yield key.finding(
        f'the stage is "auto": {becomes}',
        "write the stage as a number",
        fix=key.replace("2", "write stage 2", safe=False),
        where="value",
        severity=severity,
    )


@rule("ZC404", "init-flag-without-stage-3", Severity.NOTE, in_accelerate("deepspeed_config", "zero3_init_flag"))
def init_flag_without_stage_3(key: Key) -> Iterator[Finding]:
    stage = stage_of(key.run)
    if key.value is True and stage is not None and stage != 3 and under_deepspeed_launcher(key.run):
        yield key.finding(
            f"`zero3_init_flag: true` has no effect at stage {stage}; accelerate warns and resets it",
            "remove it",
            fix=key.delete("remove the key"),
        )


@rule("ZC405", "more-sharding-than-needed", Severity.NOTE, WHOLE_RUN, needs={"model", "hardware"})
def more_sharding_than_needed(run: Run) -> Iterator[Finding]:
    hardware, memory = run.hardware, run.memory
    if hardware is None or memory is None or run.model is None or stage_of(run) != 3 or not fits_at(run, 2):
        return
    if effective_value(run, "zero_optimization.offload_param.device") in ("cpu", "nvme"):
        return
    states, more = memory.states_gib[2], memory.states_gib.get(3, 0.0)
    no_less = run.model.largest_block is not None and more >= states
    key = setting(run, "zero_optimization.stage")
    yield key.finding(
        f"ZeRO stage 3, but at stage 2 the states of {run.model.name} take {states:.1f} of "
        f"{training_memory(run)}" + (f", and at stage 3 {more:.1f}" if no_less else ""),
        _gain(run),
        fix=key.replace("2", "use stage 2", safe=False),
    )


def _gain(run: Run) -> str:
    """What stage 2 saves on the wire. It sends the parameters once after the step and the gradients in every micro
    batch; stage 3 sends the gradients and gathers the parameters, once or twice, in every micro batch."""
    said = effective_value(run, "gradient_accumulation_steps")
    steps = said if isinstance(said, int) and said > 0 else 1
    fewer = 1 - (steps + 1) / (steps * (gathers(run) + 1))
    if fewer == 0:
        return "stage 2 sends as many bytes in far fewer messages"
    with_steps = f" with {steps} accumulation steps" if steps > 1 else ""
    return f"stage 2 sends {fewer:.0%} fewer bytes{with_steps}"


@rule("ZC410", "legacy-stage-1", Severity.ERROR, in_zero("legacy_stage1"))
def legacy_stage_1(key: Key) -> Iterator[Finding]:
    if key.on and stage_of(key.run) in (1, 2):
        yield key.finding(
            "`legacy_stage1` was removed in DeepSpeed 0.5.9; the engine refuses it",
            "remove it",
            fix=key.delete("remove the key"),
        )


@rule("ZC411", "zero-section-missing", Severity.ERROR, WHOLE_RUN)
def zero_section_missing(run: Run) -> Iterator[Finding]:
    for failure in () if tuned(run) or changed_before(run) or not uses_plugin(run) else failures(run, "ZC411"):
        location, related = primary_location(run, failure.places)
        yield Finding(
            Location(run.deepspeed) if run.deepspeed is not None else location,
            "no `zero_optimization` section; accelerate, also under the Trainer, refuses such a DeepSpeed config",
            'add "zero_optimization": {"stage": 0}, or the stage that you want',
            related,
            deepspeed(run, "zero_optimization").set('{"stage": 0}', "write the section", safe=False),
        )


@rule("ZC412", "refused-with-deepspeed", Severity.ERROR, each_failure("ZC412"))
def refused_with_deepspeed(predicted: FailureOfRun) -> Iterator[Finding]:
    fix = predicted.keys[0].replace("false", "switch it off", safe=False)
    yield predicted.finding("write false", fix)
