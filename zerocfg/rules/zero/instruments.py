"""ZC4xx: timers, profilers and loggers of the DeepSpeed config that stay switched on."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.arguments import number
from zerocfg.rules.effects import TRAINERS, changed_before, deepspeed_data, section
from zerocfg.rules.fixes import edited, present, put
from zerocfg.run.model import Run
from zerocfg.run.stages.engine import truth
from zerocfg.source.edit import delete_entry, replace_value
from zerocfg.source.node import Path


@rule("ZC447", "timers-left-on", Severity.NOTE)
def timers_left_on(run: Run) -> Iterator[Finding]:
    data = deepspeed_data(run)
    paths: list[Path] = [("wall_clock_breakdown",)] if data.get("wall_clock_breakdown") is True else []
    if section(run, "flops_profiler").get("enabled") is True:
        paths.append(("flops_profiler", "enabled"))
    if run.deepspeed is None or not paths:
        return
    name = ".".join(str(part) for part in paths[0])
    fix = edited(replace_value, run.deepspeed, paths[0], "false", why="switch it off", safe=False)
    yield Finding(
        Location(run.deepspeed, paths[0]),
        f"`{name}` has the host wait for the accelerator after every micro batch, for the whole run",
        "write false once you have measured",
        [Location(run.deepspeed, path, label="the same") for path in paths[1:]],
        fix,
    )


@rule("ZC448", "memory-report-left-on", Severity.WARNING)
def memory_report_left_on(run: Run) -> Iterator[Finding]:
    path: Path = ("memory_breakdown",)
    if run.deepspeed is not None and deepspeed_data(run).get("memory_breakdown") is True:
        yield Finding(
            Location(run.deepspeed, path),
            "`memory_breakdown` collects garbage and prints six reports in every micro batch, for the whole run",
            "write false; the step time drops",
            fix=edited(replace_value, run.deepspeed, path, "false", why="switch it off", safe=False),
        )


@rule("ZC449", "communication-logger-left-on", Severity.NOTE)
def communication_logger_left_on(run: Run) -> Iterator[Finding]:
    logger, path = section(run, "comms_logger"), ("comms_logger", "enabled")
    if run.deepspeed is not None and truth(logger.get("enabled")):
        yield Finding(
            Location(run.deepspeed, path),
            "`comms_logger` makes every collective wait for the device: no communication overlaps with computation",
            "remove the section once you have measured",
            fix=edited(delete_entry, run.deepspeed, path[:1], why="remove the section", safe=False),
        )


@rule("ZC452", "communication-logger-not-off", Severity.ERROR)
def communication_logger_not_off(run: Run) -> Iterator[Finding]:
    logger, path = section(run, "comms_logger"), ("comms_logger",)
    if run.deepspeed is None or "comms_logger" not in deepspeed_data(run) or logger.get("enabled") == "auto":
        return
    if changed_before(run):
        return
    if isinstance(deepspeed_data(run)["comms_logger"], dict) and not truth(logger.get("enabled")):
        yield Finding(
            Location(run.deepspeed, path, "key"),
            "`comms_logger` is on although `enabled` is not true: DeepSpeed asks only whether the section is there, "
            "and then waits for the device after every collective",
            "remove the section",
            fix=edited(delete_entry, run.deepspeed, path, why="remove the section"),
        )


@rule("ZC450", "communication-logger-logs-nothing", Severity.WARNING)
def communication_logger_logs_nothing(run: Run) -> Iterator[Finding]:
    logger = section(run, "comms_logger")
    everything = logger.get("prof_all", True)
    if run.deepspeed is None or not truth(logger.get("enabled")) or everything is None or everything == "auto":
        return
    if not truth(everything) and logger.get("prof_ops") in (None, []):
        path = ("comms_logger", "prof_all")
        yield Finding(
            Location(run.deepspeed, path),
            "`comms_logger` is on with `prof_all: false` and no `prof_ops`: it slows every collective and logs none",
            'write "prof_all": true, or name operations in `prof_ops`',
            fix=put(run.deepspeed, path, "true", why="log every operation"),
        )


@rule("ZC451", "profile-step-never-reached", Severity.WARNING, consumers=TRAINERS)
def profile_step_never_reached(run: Run) -> Iterator[Finding]:
    profiler, steps = section(run, "flops_profiler"), number(run, "max_steps")
    if run.consumer not in TRAINERS or run.deepspeed is None or profiler.get("enabled") is not True:
        return
    step = profiler.get("profile_step", 1)
    if isinstance(step, bool) or not isinstance(step, int) or isinstance(steps, bool) or not isinstance(steps, int):
        return
    path = ("flops_profiler", "profile_step")
    if 0 < steps <= step:
        default = "" if present(run.deepspeed, path) else " (the default)"
        yield Finding(
            Location(run.deepspeed, path),
            f"`profile_step` {step}{default} is never reached: the run ends after {steps} step{'s' * (steps > 1)}, "
            "counted from 0",
            f"write a number below {steps}",
            fix=put(run.deepspeed, path, "1" if steps > 1 else "0", why="profile a step that the run has"),
        )


@rule("ZC453", "autotuning-left-on", Severity.ERROR)
def autotuning_left_on(run: Run) -> Iterator[Finding]:
    tuning, path = section(run, "autotuning"), ("autotuning", "enabled")
    if run.deepspeed is None or tuning.get("enabled") is not True or "autotuning" in run.flags:
        return
    if run.consumer is None and run.launch is None:
        return  # it may be what `deepspeed --autotuning` is started with
    end = tuning.get("end_profile_step", 5)
    yield Finding(
        Location(run.deepspeed, path),
        f"autotuning is on: outside of `deepspeed --autotuning` the training silently ends soon after step {end}",
        "write false in the config that you train with",
        fix=edited(replace_value, run.deepspeed, path, "false", why="switch it off", safe=False),
    )
