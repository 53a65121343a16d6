"""ZC5xx: offloading as accelerate and the launch line see it: the old key, and the threads that the step gets."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.effects import WITH_ACCELERATE, effective_value, stage_of, under_deepspeed_launcher
from zerocfg.rules.fixes import rewritten
from zerocfg.rules.key import Key
from zerocfg.rules.line import all_options_seen, at_line, line_fix, line_option, mentions, started_by
from zerocfg.rules.offload.devices import device_key, number_of, on_host
from zerocfg.rules.subjects import DEEPSPEED_CONFIG, LineOfRun, line_of
from zerocfg.run.model import Run
from zerocfg.source.edit import Edit
from zerocfg.source.text import Span


@rule("ZC523", "old-offload-key-with-accelerate", Severity.ERROR, DEEPSPEED_CONFIG, consumers=WITH_ACCELERATE)
def old_offload_key_with_accelerate(config: Key) -> Iterator[Finding]:
    zero = config["zero_optimization"]
    key = zero["cpu_offload"]
    if key.value is not True or zero.get("offload_optimizer") is not None:
        return
    if (
        "optimizer" in config
        or config.get("zero_force_ds_cpu_optimizer") is False
        or stage_of(config.run) not in (1, 2, 3)
    ):
        return
    if effective_value(config.run, "engine") != "deepspeed":
        return
    yield key.finding(
        "accelerate does not know `cpu_offload`, so DeepSpeed gets torch's AdamW for an offloaded optimizer and "
        "refuses it",
        'write "offload_optimizer": {"device": "cpu"}',
        fix=rewritten(key.file, key.path, "offload_optimizer", '{"device": "cpu"}', why="the name of today"),
    )


def _steps_on_host(run: Run) -> bool:
    """Whether an optimizer steps on the processors of the host."""
    return (
        stage_of(run) in (1, 2, 3)
        and on_host(run, "offload_optimizer")
        and effective_value(run, "engine") == "deepspeed"
    )


def _set_threads(run: Run, count: str) -> list[Edit] | None:
    """An edit that puts the variable before the command."""
    if run.launch is None or run.launch_file is None:
        return None
    start = run.launch.span.start
    word = run.launch_file.source.text[start : run.launch.span.end].split(maxsplit=1)
    if not word or word[0].rpartition("/")[2] not in ("accelerate", "torchrun"):
        return None
    return [Edit(Span(start, start), f"OMP_NUM_THREADS={count} ")]


@rule("ZC524", "threads-option-not-passed-on", Severity.WARNING, line_of("accelerate"), needs={"launch"})
def threads_option_not_passed_on(started: LineOfRun) -> Iterator[Finding]:
    option = started.option("num_cpu_threads_per_process")
    if not option.raw:
        return
    if not under_deepspeed_launcher(started.run) or "OMP_NUM_THREADS" in started.run.environment:
        return
    count = option.text
    fix = None
    if count is not None and count.isdecimal():
        fix = line_fix(started.run, "pass the number on", option.removed(), _set_threads(started.run, count), safe=True)
    yield option.finding(
        f"accelerate does not pass `{option.name}` on to DeepSpeed's processes",
        f"write OMP_NUM_THREADS={count or 8} before the command",
        fix=fix,
    )


@rule("ZC525", "host-step-on-one-thread", Severity.NOTE, WHOLE_RUN, needs={"launch"})
def host_step_on_one_thread(run: Run) -> Iterator[Finding]:
    if run.launch_file is None or not started_by(run, "accelerate", "torchrun") or not _steps_on_host(run):
        return
    if "OMP_NUM_THREADS" in run.environment or mentions(run, "OMP_NUM_THREADS") or not all_options_seen(run):
        return
    processes, machines = (
        number_of(effective_value(run, "num_processes")),
        number_of(effective_value(run, "num_machines")) or 1,
    )
    if not processes or processes // max(machines, 1) < 2 or line_option(run, "num_cpu_threads_per_process"):
        return
    if machines > 1 and started_by(run, "accelerate"):
        return  # another runner may start the processes
    yield Finding(
        at_line(run),
        "the optimizer steps on the host, and torchrun gives each process one thread: OMP_NUM_THREADS is not set",
        "set OMP_NUM_THREADS to the processors of the host divided by its processes",
        [device_key(run, "offload_optimizer").at()],
        fix=line_fix(run, "8 threads a process", _set_threads(run, "8")),
    )
