"""ZC4xx: ZeRO stages. See also :mod:`autos`, :mod:`saving` and :mod:`communication`."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.effects import (
    accelerate_section,
    changed_before,
    effective_value,
    fits_at,
    gathers,
    section,
    stage_of,
    tuned,
    under_deepspeed_launcher,
)
from zerocfg.rules.failures import failures, primary_location, reported
from zerocfg.rules.fixes import edited, replace_at
from zerocfg.run.model import Run
from zerocfg.run.stages.engine import truth
from zerocfg.source.edit import delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path

_STAGE: Path = ("zero_optimization", "stage")


@rule("ZC403", "stage-auto", Severity.ERROR)
def stage_auto(run: Run) -> Iterator[Finding]:
    if section(run, "zero_optimization").get("stage") != "auto" or run.deepspeed is None:
        return
    if run.consumer == "deepspeed":
        severity, becomes = None, "deepspeed.initialize silently takes 0: no ZeRO at all"
    elif "ACCELERATE_DEEPSPEED_ZERO_STAGE" in run.effective.environment:
        return
    elif run.consumer is not None:
        severity, becomes = Severity.WARNING, "nobody names a stage, so accelerate takes its default, 2"
    else:
        severity, becomes = (
            Severity.WARNING,
            "accelerate and the Trainer take 2, deepspeed.initialize takes 0",
        )
    yield Finding(
        Location(run.deepspeed, _STAGE, "value"),
        f'the stage is "auto": {becomes}',
        "write the stage as a number",
        fix=edited(replace_value, run.deepspeed, _STAGE, "2", why="write stage 2", safe=False),
        severity=severity,
    )


@rule("ZC404", "init-flag-without-stage-3", Severity.NOTE)
def init_flag_without_stage_3(run: Run) -> Iterator[Finding]:
    if accelerate_section(run).get("zero3_init_flag") is not True or run.accelerate is None:
        return
    stage = stage_of(run)
    if stage is None or stage == 3 or not under_deepspeed_launcher(run):
        return
    path: Path = ("deepspeed_config", "zero3_init_flag")
    yield Finding(
        Location(run.accelerate, path),
        f"`zero3_init_flag: true` has no effect at stage {stage}; accelerate warns and resets it",
        "remove it",
        fix=edited(delete_entry, run.accelerate, path, why="remove the key"),
    )


@rule("ZC405", "more-sharding-than-needed", Severity.NOTE, needs={"model", "hardware"})
def more_sharding_than_needed(run: Run) -> Iterator[Finding]:
    hardware, memory = run.hardware, run.memory
    if hardware is None or memory is None or run.model is None or stage_of(run) != 3 or not fits_at(run, 2):
        return
    if effective_value(run, "zero_optimization.offload_param.device") in ("cpu", "nvme"):
        return
    place = run.effective.get("zero_optimization.stage")
    location, related = primary_location(run, [place.origin] if place else [])
    states, more = memory.states_gib[2], memory.states_gib.get(3, 0.0)
    no_less = run.model.largest_block is not None and more >= states
    yield Finding(
        location,
        f"ZeRO stage 3, but at stage 2 the states of {run.model.name} take {states:.1f} of "
        f"{hardware.memory_gib:.0f} GiB an accelerator on {hardware.name}"
        + (f", and at stage 3 {more:.1f}" if no_less else ""),
        _gain(run),
        related,
        replace_at(place.origin, "2", "use stage 2", safe=False) if place else None,
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


@rule("ZC410", "legacy-stage-1", Severity.ERROR)
def legacy_stage_1(run: Run) -> Iterator[Finding]:
    path: Path = ("zero_optimization", "legacy_stage1")
    stage = stage_of(run)
    if (
        run.deepspeed is None
        or stage not in (1, 2)
        or not truth(section(run, "zero_optimization").get("legacy_stage1"))
    ):
        return
    yield Finding(
        Location(run.deepspeed, path),
        "`legacy_stage1` was removed in DeepSpeed 0.5.9; the engine refuses it",
        "remove it",
        fix=edited(delete_entry, run.deepspeed, path, why="remove the key"),
    )


@rule("ZC411", "zero-section-missing", Severity.ERROR)
def zero_section_missing(run: Run) -> Iterator[Finding]:
    for failure in () if tuned(run) or changed_before(run) else failures(run, "ZC411"):
        location, related = primary_location(run, failure.places)
        if run.deepspeed is not None:
            location = Location(run.deepspeed)
        yield Finding(
            location,
            "no `zero_optimization` section; accelerate, also under the Trainer, refuses such a DeepSpeed config",
            'add "zero_optimization": {"stage": 0}, or the stage that you want',
            related,
            edited(
                insert_entry,
                run.deepspeed,
                (),
                "zero_optimization",
                '{"stage": 0}',
                why="write the section",
                safe=False,
            ),
        )


@rule("ZC412", "refused-with-deepspeed", Severity.ERROR)
def refused_with_deepspeed(run: Run) -> Iterator[Finding]:
    for failure in failures(run, "ZC412"):
        finding = reported(run, failure, "write false")
        if failure.places:
            finding.fix = replace_at(failure.places[0], "false", "switch it off", safe=False)
        yield finding
