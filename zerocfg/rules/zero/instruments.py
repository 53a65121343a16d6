"""ZC4xx: timers, profilers and loggers of the DeepSpeed config that stay switched on."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.arguments import number
from zerocfg.rules.effects import TRAINERS, changed_before, deepspeed_data, edited, present, put, section
from zerocfg.rules.proof import at_least, crashes, logged, printed, shows, unprinted
from zerocfg.run.engine import truth
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, replace_value
from zerocfg.source.node import Path

_DS = '{"train_micro_batch_size_per_gpu": 1, %s"zero_optimization": {"stage": 2}}\n'
_AUTO_DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", %s'
    '"zero_optimization": {"stage": 2}}\n'
)
_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\ndeepspeed: ds.json\n"


@rule(
    "ZC447",
    "timers-left-on",
    Severity.NOTE,
    bad=(
        Example({"ds.json": _DS % '"wall_clock_breakdown": true, '}, consumer="deepspeed").finds(
            "note", 'ds.json: "wall_clock_breakdown": true'
        ),
        Example({"ds.json": _DS % '"flops_profiler": {"enabled": true}, '}, consumer="deepspeed").finds(
            "note", 'ds.json: "enabled": true'
        ),
    ),
    good=Example({"ds.json": _DS % '"flops_profiler": {"enabled": false}, '}, consumer="deepspeed"),
    proof=shows(
        "step",
        {
            "engine.wall_clock_breakdown": (True, False),
            "log": logged(r"time \(ms\) \| fwd_microstep"),
        },
    ),
    fixable=True,
)
def timers_left_on(run: Run) -> Iterator[Finding]:
    """`wall_clock_breakdown` or the flops profiler is on for a whole run.

    After every micro batch the host waits until the accelerator has finished, to read the timers, and prints a line.
    The profiler reports one step, yet turns the timers on from the first step to the last.

    What happens: `time (ms) | fwd_microstep: ... | bwd_microstep: ...` after each micro batch.

    Fix: the switch is set to false.

    When to ignore: the run is there to be measured.
    """
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


@rule(
    "ZC448",
    "memory-report-left-on",
    Severity.WARNING,
    bad=Example({"ds.json": _DS % '"memory_breakdown": true, '}, consumer="deepspeed").finds(
        "warning", 'ds.json: "memory_breakdown": true'
    ),
    good=Example({"ds.json": _DS % '"memory_breakdown": false, '}, consumer="deepspeed"),
    proof=shows(
        "step",
        {"log": logged(r"Engine before forward\s+MA [\d.]+ GB")},
    ),
    fixable=True,
)
def memory_report_left_on(run: Run) -> Iterator[Finding]:
    """`memory_breakdown` is on for a whole run.

    Each of the reports runs Python's garbage collector over all objects on the first rank while the others wait, and
    sets the peak counters back to zero, so that other tools report too low a peak.

    What happens: `Engine before forward`, `Engine after forward` and four more reports in every micro batch.

    Fix: the switch is set to false.

    When to ignore: you are looking for a leak.
    """
    path: Path = ("memory_breakdown",)
    if run.deepspeed is not None and deepspeed_data(run).get("memory_breakdown") is True:
        yield Finding(
            Location(run.deepspeed, path),
            "`memory_breakdown` collects garbage and prints six reports in every micro batch, for the whole run",
            "write false; the step time drops",
            fix=edited(replace_value, run.deepspeed, path, "false", why="switch it off", safe=False),
        )


@rule(
    "ZC449",
    "communication-logger-left-on",
    Severity.NOTE,
    bad=Example({"ds.json": _DS % '"comms_logger": {"enabled": true}, '}, consumer="deepspeed").finds(
        "note", 'ds.json: "enabled": true'
    ),
    good=Example({"ds.json": _DS % ""}, consumer="deepspeed"),
    proof=shows("step", {"engine.waits": (at_least(1), 0)}),
    fixable=True,
)
def communication_logger_left_on(run: Run) -> Iterator[Finding]:
    """`comms_logger` is on for a whole run.

    To time a collective, DeepSpeed waits for the device after it. Nothing overlaps with communication any more: what
    `overlap_comm` and the prefetching of stage 3 gain is lost, and the times that it logs are those of a slower run.

    What happens: the host waits for the device after every collective, also for those that are not logged.

    Fix: the section is removed; `"enabled": false` would not switch the logger off.

    When to ignore: the run is there to be measured.
    """
    logger, path = section(run, "comms_logger"), ("comms_logger", "enabled")
    if run.deepspeed is not None and truth(logger.get("enabled")):
        yield Finding(
            Location(run.deepspeed, path),
            "`comms_logger` makes every collective wait for the device: no communication overlaps with computation",
            "remove the section once you have measured",
            fix=edited(delete_entry, run.deepspeed, path[:1], why="remove the section", safe=False),
        )


@rule(
    "ZC452",
    "communication-logger-not-off",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % '"comms_logger": {"enabled": false}, '}, consumer="deepspeed").finds(
        "error", 'ds.json: "comms_logger"'
    ),
    good=Example({"ds.json": _DS % ""}, consumer="deepspeed"),
    proof=shows("step", {"engine.waits": (at_least(1), 0)}),
    references=("deepspeed/comm/config.py@0.19.8", "deepspeed/utils/comms_logging.py@0.19.8"),
    fixable=True,
)
def communication_logger_not_off(run: Run) -> Iterator[Finding]:
    """A `comms_logger` section with `"enabled": false`, which does not switch the logger off.

    The logger waits for the device after every collective, so that no communication overlaps with computation. A job
    that was measured once stays slow after the logger was "switched off".

    What happens: DeepSpeed asks only whether the section is there. It parses `enabled` and never looks at it.

    Fix: the section is removed.

    When to ignore: the script switches the logger off itself (`deepspeed.comm.configure(enabled=False)`).
    """
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


_LOUD = '"log_level": "info", '


@rule(
    "ZC450",
    "communication-logger-logs-nothing",
    Severity.WARNING,
    bad=Example(
        {"ds.json": _DS % (_LOUD + '"comms_logger": {"enabled": true, "verbose": true, "prof_all": false}, ')},
        consumer="deepspeed",
    ).finds("warning", 'ds.json: "prof_all": false'),
    good=Example(
        {"ds.json": _DS % (_LOUD + '"comms_logger": {"enabled": true, "verbose": true, "prof_ops": ["all_reduce"]}, ')},
        consumer="deepspeed",
    ),
    proof=shows(
        "step",
        {
            "engine.waits": (at_least(1), at_least(1)),
            "log": (unprinted("comm op: all_reduce"), printed("comm op: all_reduce")),
        },
    ),
    fixable=True,
)
def communication_logger_logs_nothing(run: Run) -> Iterator[Finding]:
    """`comms_logger` is on, but nothing is chosen to be logged.

    The run pays for the logger, which waits for the device after each collective, and gets no line.

    What happens: with `prof_all: false` only the operations in `prof_ops` are logged; by default there are none.

    Fix: `"prof_all": true`.

    When to ignore: the script calls `deepspeed.comm.configure` itself.
    """
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


@rule(
    "ZC451",
    "profile-step-never-reached",
    Severity.WARNING,
    bad=Example(
        {"ds.json": _AUTO_DS % '"flops_profiler": {"enabled": true, "profile_step": 5}, ', "recipe.yaml": _RECIPE},
        consumer="transformers",
    ).finds("warning", 'ds.json: "profile_step": 5', 5, 2, 0, 2),
    good=Example(
        {"ds.json": _AUTO_DS % '"flops_profiler": {"enabled": true, "profile_step": 1}, ', "recipe.yaml": _RECIPE},
        consumer="transformers",
    ),
    proof=shows("step", {"log": (unprinted("Profile Summary at step 2"), printed("Profile Summary at step 2"))}),
    consumers=TRAINERS,
    fixable=True,
)
def profile_step_never_reached(run: Run) -> Iterator[Finding]:
    """The flops profiler is to report a step that the run does not have.

    The run pays for the timers from the first step on and ends without the report that it was started for.

    What happens: steps count from 0, so of a run with `max_steps: 5` the last is 4; no `Flops Profiler` report appears.

    Fix: `profile_step` 1, the default: the second step. In a run of one step 0, the first.

    When to ignore: the same config is also used for longer runs.
    """
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


@rule(
    "ZC453",
    "autotuning-left-on",
    Severity.ERROR,
    bad=Example(
        {"ds.json": _DS % '"autotuning": {"enabled": true, "start_profile_step": 1, "end_profile_step": 1}, '},
        consumer="deepspeed",
    ).finds("error", 'ds.json: "enabled": true', 1),
    good=Example(
        {"ds.json": _DS % '"autotuning": {"enabled": false, "start_profile_step": 1, "end_profile_step": 1}, '},
        consumer="deepspeed",
    ),
    proof=crashes("step", "SystemExit", within="_autotuning_exit"),
    fixable=True,
)
def autotuning_left_on(run: Run) -> Iterator[Finding]:
    """`"autotuning": {"enabled": true}` in a config that is trained with.

    The engine takes the run for an experiment of the autotuner. It ends the process after a few steps with exit code
    0: the job counts as successful, and there are no weights.

    What happens: `exit()` after step `end_profile_step` (5), without an error.

    Fix: it is switched off.

    When to ignore: the file is the one that `deepspeed --autotuning` is started with.
    """
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


RULES = (
    timers_left_on,
    memory_report_left_on,
    communication_logger_left_on,
    communication_logger_not_off,
    communication_logger_logs_nothing,
    profile_step_never_reached,
    autotuning_left_on,
)
