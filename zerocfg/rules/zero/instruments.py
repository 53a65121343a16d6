"""ZC4xx: timers, profilers and loggers of the DeepSpeed config that stay switched on."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.arguments import number
from zerocfg.rules.effects import TRAINERS, changed_before, under_trainer
from zerocfg.rules.key import Key
from zerocfg.rules.subjects import DEEPSPEED_CONFIG, in_deepspeed
from zerocfg.run.stages.engine import truth
from zerocfg.source.node import dotted


@rule("ZC447", "timers-left-on", Severity.NOTE, DEEPSPEED_CONFIG)
def timers_left_on(config: Key) -> Iterator[Finding]:
    timers = (config["wall_clock_breakdown"], config["flops_profiler"]["enabled"])
    on = [key for key in timers if key.value is True]
    if on:
        yield on[0].finding(
            f"`{dotted(on[0].path)}` has the host wait for the accelerator after every micro batch, for the whole run",
            "write false once you have measured",
            [key.at(label="the same") for key in on[1:]],
            on[0].replace("false", "switch it off", safe=False),
        )


@rule("ZC448", "memory-report-left-on", Severity.WARNING, DEEPSPEED_CONFIG)
def memory_report_left_on(config: Key) -> Iterator[Finding]:
    key = config["memory_breakdown"]
    if key.value is True:
        yield key.finding(
            "`memory_breakdown` collects garbage and prints six reports in every micro batch, for the whole run",
            "write false; the step time drops",
            fix=key.replace("false", "switch it off", safe=False),
        )


@rule("ZC449", "communication-logger-left-on", Severity.NOTE, DEEPSPEED_CONFIG)
def communication_logger_left_on(config: Key) -> Iterator[Finding]:
    logger = config["comms_logger"]
    if logger["enabled"].on:
        yield logger["enabled"].finding(
            "`comms_logger` makes every collective wait for the device: no communication overlaps with computation",
            "remove the section once you have measured",
            fix=logger.delete("remove the section", safe=False),
        )


@rule("ZC452", "communication-logger-not-off", Severity.ERROR, in_deepspeed("comms_logger"))
def communication_logger_not_off(logger: Key) -> Iterator[Finding]:
    if not isinstance(logger.value, dict) or logger["enabled"].on or logger.get("enabled") == "auto":
        return
    if not changed_before(logger.run):
        yield logger.finding(
            "`comms_logger` is on although `enabled` is not true: DeepSpeed asks only whether the section is there, "
            "and then waits for the device after every collective",
            "remove the section",
            fix=logger.delete("remove the section"),
            where="key",
        )


@rule("ZC450", "communication-logger-logs-nothing", Severity.WARNING, DEEPSPEED_CONFIG)
def communication_logger_logs_nothing(config: Key) -> Iterator[Finding]:
    logger = config["comms_logger"]
    everything = logger.get("prof_all", True)
    if not logger["enabled"].on or everything is None or everything == "auto":
        return
    if not truth(everything) and logger.get("prof_ops") in (None, []):
        yield logger["prof_all"].finding(
            "`comms_logger` is on with `prof_all: false` and no `prof_ops`: it slows every collective and logs none",
            'write "prof_all": true, or name operations in `prof_ops`',
            fix=logger["prof_all"].set("true", "log every operation", safe=False),
        )


@rule("ZC451", "profile-step-never-reached", Severity.WARNING, in_deepspeed("flops_profiler"), consumers=TRAINERS)
def profile_step_never_reached(profiler: Key) -> Iterator[Finding]:
    steps = number(profiler.run, "max_steps")
    if not under_trainer(profiler.run) or profiler.get("enabled") is not True:
        return
    key, step = profiler["profile_step"], profiler.get("profile_step", 1)
    if isinstance(step, bool) or not isinstance(step, int) or isinstance(steps, bool) or not isinstance(steps, int):
        return
    if 0 < steps <= step:
        yield key.finding(
            f"`profile_step` {step}{'' if key else ' (the default)'} is never reached: the run ends after {steps} "
            f"step{'s' * (steps > 1)}, counted from 0",
            f"write a number below {steps}",
            fix=key.set("1" if steps > 1 else "0", "profile a step that the run has", safe=False),
        )


@rule("ZC453", "autotuning-left-on", Severity.ERROR, in_deepspeed("autotuning"))
def autotuning_left_on(tuning: Key) -> Iterator[Finding]:
    key = tuning["enabled"]
    if key.value is not True or "autotuning" in tuning.run.flags:
        return
    if tuning.run.consumer is None and tuning.run.launch is None:
        return  # it may be what `deepspeed --autotuning` is started with
    yield key.finding(
        "autotuning is on: outside of `deepspeed --autotuning` the training silently ends soon after step "
        f"{tuning.get('end_profile_step', 5)}",
        "write false in the config that you train with",
        fix=key.replace("false", "switch it off", safe=False),
    )
