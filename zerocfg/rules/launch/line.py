"""ZC7xx: options of an `accelerate launch` line that reach nobody, or somebody else."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.counterparts import settings
from zerocfg.catalog.values import show
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.effects import TRAINERS, accelerate_data, effective_value
from zerocfg.rules.failures import ignored
from zerocfg.rules.key import accelerate, deepspeed, from_origin
from zerocfg.rules.launch.options import launcher_option
from zerocfg.rules.line import (
    all_options_seen,
    before_script,
    from_option,
    line_fix,
    line_option,
    option_at,
    options_without_value,
    says,
    started_by,
)
from zerocfg.rules.subjects import LAUNCH_LINE, LineOfRun, line_of
from zerocfg.run.model import Run
from zerocfg.run.stages.options import OPTIONS
from zerocfg.run.stages.sections import BY_ITSELF_SINCE

_OWN = {
    launcher: frozenset(names.split())
    for launcher, names in {
        "accelerate": "num_processes num_machines machine_rank main_process_ip main_process_port config_file gpu_ids "
        "use_deepspeed use_fsdp multi_gpu zero_stage deepspeed_config_file zero3_init_flag zero3_save_16bit_model "
        "deepspeed_multinode_launcher deepspeed_hostfile offload_optimizer_device offload_param_device rdzv_backend",
        "torchrun": "nproc_per_node nnodes node_rank rdzv_endpoint rdzv_backend master_port",
        "deepspeed": "num_gpus num_nodes hostfile master_port master_addr node_rank",
    }.items()
}
"""Options of each launcher that no training argument is called like."""


@rule("ZC717", "launcher-option-behind-script", Severity.ERROR, LAUNCH_LINE, consumers=TRAINERS)
def launcher_option_behind_script(started: LineOfRun) -> Iterator[Finding]:
    run, line = started.run, started.line
    if line.launcher not in _OWN:
        return
    for word in line.script_options:
        name = word.plain
        if name not in _OWN[line.launcher] or not word.name.startswith("--") or line_option(run, name):
            continue
        option = from_option(run, word)
        moved = before_script(run, option.words) if option.words is not None else None
        yield option.finding(
            f"{option.name} stands behind the script and goes to it, not to the launcher",
            "write it before the script",
            fix=line_fix(run, "move it before the script", moved, option.removed(), gives=says(name, option.text)),
        )


@rule("ZC718", "option-given-twice", Severity.WARNING, LAUNCH_LINE)
def option_given_twice(started: LineOfRun) -> Iterator[Finding]:
    run, line = started.run, started.line
    if line.launcher == "python":
        return
    for word in line.options:
        if line.last_options[word.plain][1] is word:
            continue
        option, last = from_option(run, word), line_option(run, word.plain)
        if option.text is None or last.text is None or option.text == last.text:
            continue
        yield option.finding(
            f"{option.name} {option.text} is replaced by {last.text} further on",
            "keep one of the two",
            [last.at(label="the one that counts")],
            option.delete("remove the one that does not count"),
        )


_DEEPSPEED = (
    "zero_stage deepspeed_config_file offload_optimizer_device offload_param_device zero3_init_flag "
    "zero3_save_16bit_model deepspeed_multinode_launcher deepspeed_hostfile"
)
_ENGINES = {
    "use_deepspeed": tuple(_DEEPSPEED.split()),
    "use_fsdp": tuple(name for name in OPTIONS if name.startswith("fsdp_")),
    "use_megatron_lm": tuple(name for name in OPTIONS if name.startswith("megatron_lm_")),
}
"""Switches of the launcher, and options that have an effect beside them only."""
_OF_ENGINES = frozenset(name for names in _ENGINES.values() for name in names)


@rule("ZC719", "engine-options-without-engine", Severity.ERROR, line_of("accelerate"))
def engine_options_without_engine(started: LineOfRun) -> Iterator[Finding]:
    if _OF_ENGINES.isdisjoint(started.line.last_options):
        return
    if not all_options_seen(started.run) or options_without_value(started.run):
        return
    if started.run.accelerate is None and started.option("config_file"):
        return
    data = accelerate_data(started.run)
    if started.run.accelerate is not None and "distributed_type" not in data:
        return
    chosen = [switch for switch in _ENGINES if started.option(switch)]
    by_file = f"use_{data.get('distributed_type')}".lower()
    for switch, names in _ENGINES.items():
        given = next((name for name in names if name in started.line.last_options), None)
        if given is None or switch in chosen or (not chosen and by_file == switch):
            continue
        option = started.option(given)
        if started.option("cpu", "tpu", "tpu_use_cluster"):
            continue
        if by_file in _ENGINES or chosen:
            yield option.finding(
                f"{option.name} has no effect without --{switch}: another engine is chosen",
                "take it out of the line",
                severity=Severity.WARNING,
            )
            continue
        added = None if started.option("multi_gpu") else before_script(started.run, f"--{switch}")
        yield option.finding(
            f"{option.name} has no effect without --{switch}: the job runs without the engine",
            f"add --{switch}",
            fix=line_fix(started.run, f"add --{switch}", added, gives=says(switch)),
            severity=None if started.run.accelerate is not None else Severity.WARNING,
        )


_IN_FILE = "zero_stage offload_optimizer_device offload_param_device gradient_clipping zero3_save_16bit_model".split()
"""Options that a DeepSpeed file beats."""


@rule("ZC720", "option-beaten-by-deepspeed-file", Severity.ERROR, WHOLE_RUN)
def option_beaten_by_deepspeed_file(run: Run) -> Iterator[Finding]:
    yield from _beaten_by_accelerate_file(run)
    if not started_by(run, "accelerate") or run.deepspeed is None or run.deepspeed_route != "accelerate":
        return
    if run.consumer == "deepspeed":
        return
    for name in _IN_FILE:
        option, key = line_option(run, name), deepspeed(run, *settings("accelerate")[name].split("."))
        if option.text is None or key.value in (None, "auto") or isinstance(key.value, (dict, list)):
            continue
        if not _same(option.text, key.value):
            yield option.finding(
                f"--{name} {option.text} has no effect: {run.deepspeed.name} says {show(key.value)}, and the file wins",
                'say it in one place, or write "auto" in the file',
                [key],
                key.replace('"auto"', "leave it to the launch line", safe=False),
            )


def _beaten_by_accelerate_file(run: Run) -> Iterator[Finding]:
    for item in ignored(run, "ZC720"):
        option, used, file = option_at(run, item.place), item.used, run.accelerate
        if option.text is None or used is None or file is None or _same(option.text, used.value):
            continue
        key = from_origin(run, used.origin, used.value)
        yield option.finding(
            f"{option.name} {option.text} has no effect: {file.name} says {show(used.value)}, and before accelerate "
            f"{BY_ITSELF_SINCE} the file wins",
            "say it in one place",
            [key],
            key.delete("leave it to the launch line", safe=False),
            severity=Severity.WARNING,
            versions=f"accelerate<{BY_ITSELF_SINCE}",
        )


def _same(text: str, value: object) -> bool:
    if str(value).lower() == text.lower():
        return True
    try:
        return isinstance(value, (int, float)) and float(text) == value
    except ValueError:
        return False


@rule("ZC721", "cpu-flag-switches-engine-off", Severity.ERROR, line_of("accelerate"))
def cpu_flag_switches_engine_off(started: LineOfRun) -> Iterator[Finding]:
    option, kind = started.option("cpu"), accelerate(started.run, "distributed_type")
    if not option or not isinstance(kind.value, str):
        return
    if kind.value not in ("NO", "MULTI_CPU"):
        yield option.finding(
            f"--cpu replaces distributed_type {kind.value}: one process on the CPU, without the engine",
            "remove --cpu",
            [kind],
            option.delete("remove --cpu", safe=False),
        )


@rule("ZC722", "processes-not-started", Severity.ERROR, WHOLE_RUN)
def processes_not_started(run: Run) -> Iterator[Finding]:
    kind, processes = accelerate(run, "distributed_type"), launcher_option(run, "num_processes")
    if kind.value not in ("NO", "MULTI_CPU") or (processes.count or 0) < 2:
        return
    if effective_value(run, "engine") not in ("single", "ddp", None):
        return
    if launcher_option(run, "mpirun_hostfile").value is not None or launcher_option(run, "mpirun_config").value:
        return
    if line_option(run, "multi_gpu", "tpu", *_ENGINES):
        return
    better = "MULTI_GPU, FSDP or DEEPSPEED" if kind.value == "NO" else "an `mpirun_hostfile` in `mpirun_config`"
    yield processes.finding(
        f"num_processes {processes.count} with distributed_type {kind.value}: accelerate starts one process",
        f"choose {better} to start {processes.count}",
        [kind],
        severity=None if kind.value == "NO" else Severity.WARNING,
    )
