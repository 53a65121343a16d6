"""ZC7xx: options of an `accelerate launch` line that reach nobody, or somebody else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zerocfg.catalog.counterparts import settings
from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.effects import TRAINERS, accelerate_data, effective_value
from zerocfg.rules.failures import ignored, primary_location
from zerocfg.rules.fixes import edited
from zerocfg.rules.launch.machines import option, place_of
from zerocfg.rules.line import (
    all_options_seen,
    as_count,
    at_option,
    before_script,
    line_fix,
    option_at,
    option_named,
    plain,
    says,
    started_by,
    without,
    written,
)
from zerocfg.run.model import Run, SourceFile
from zerocfg.run.stages.options import OPTIONS
from zerocfg.run.stages.sections import BY_ITSELF_SINCE
from zerocfg.source.edit import delete_entry, replace_value

if TYPE_CHECKING:
    from zerocfg.source.launch.line import Option


_LAUNCHER_WORDS = frozenset(
    "num_processes num_machines machine_rank main_process_ip main_process_port config_file use_deepspeed use_fsdp "
    "multi_gpu zero_stage deepspeed_config_file zero3_init_flag zero3_save_16bit_model deepspeed_multinode_launcher "
    "deepspeed_hostfile offload_optimizer_device offload_param_device gpu_ids nproc_per_node nnodes node_rank "
    "rdzv_endpoint rdzv_backend num_gpus num_nodes hostfile master_port master_addr".split()
)
"""Options of the launchers that no training argument is called like."""

_OWN = {
    "accelerate": frozenset(OPTIONS),
    "torchrun": frozenset(("nproc_per_node", "nnodes", "node_rank", "rdzv_endpoint", "rdzv_backend", "master_port")),
    "deepspeed": frozenset(("num_gpus", "num_nodes", "hostfile", "master_port", "master_addr", "node_rank")),
}


@rule("ZC717", "launcher-option-behind-script", Severity.ERROR, consumers=TRAINERS)
def launcher_option_behind_script(run: Run) -> Iterator[Finding]:
    line = run.launch
    if line is None or line.launcher not in _OWN:
        return
    for given in line.script_options:
        name = plain(given.name)
        if name not in _LAUNCHER_WORDS or name not in _OWN[line.launcher] or not given.name.startswith("--"):
            continue
        if option_named(run, name) is not None:
            continue
        text = written(run, given)
        moved = before_script(run, text) if text is not None else None
        gives = says(name, given.value.value if given.value is not None else None)
        yield Finding(
            at_option(run, given),
            f"{given.name} stands behind the script and goes to it, not to the launcher",
            "write it before the script",
            fix=line_fix(run, "move it before the script", moved, without(run, given), gives=gives),
        )


@rule("ZC718", "option-given-twice", Severity.WARNING)
def option_given_twice(run: Run) -> Iterator[Finding]:
    line = run.launch
    if line is None or line.launcher == "python":
        return
    last: dict[str, Option] = {plain(given.name): given for given in line.options}
    for given in line.options:
        counts = last[plain(given.name)]
        if given is counts or given.value is None or counts.value is None:
            continue
        if given.value.value is None or counts.value.value is None or given.value.value == counts.value.value:
            continue
        yield Finding(
            at_option(run, given),
            f"{given.name} {given.value.value} is replaced by {counts.value.value} further on",
            "keep one of the two",
            [at_option(run, counts, "the one that counts")],
            line_fix(run, "remove the one that does not count", without(run, given), safe=True),
        )


_ENGINES = {
    "use_deepspeed": (
        "zero_stage",
        "deepspeed_config_file",
        "offload_optimizer_device",
        "offload_param_device",
        "zero3_init_flag",
        "zero3_save_16bit_model",
        "deepspeed_multinode_launcher",
        "deepspeed_hostfile",
    ),
    "use_fsdp": tuple(name for name in OPTIONS if name.startswith("fsdp_")),
    "use_megatron_lm": tuple(name for name in OPTIONS if name.startswith("megatron_lm_")),
}


@rule("ZC719", "engine-options-without-engine", Severity.ERROR)
def engine_options_without_engine(run: Run) -> Iterator[Finding]:
    if not started_by(run, "accelerate") or not all_options_seen(run):
        return
    if run.accelerate is None and option_named(run, "config_file") is not None:
        return
    data = accelerate_data(run)
    if run.accelerate is not None and "distributed_type" not in data:
        return
    kind = {"use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP", "use_megatron_lm": "MEGATRON_LM"}
    chosen = [switch for switch in kind if option_named(run, switch) is not None]
    for switch, names in _ENGINES.items():
        given = next((found for name in names if (found := option_named(run, name)) is not None), None)
        if given is None or switch in chosen or (not chosen and data.get("distributed_type") == kind[switch]):
            continue
        if any(option_named(run, name) for name in ("cpu", "tpu", "tpu_use_cluster")):
            continue
        others = chosen or option_named(run, "multi_gpu")
        added = None if others else before_script(run, f"--{switch}")
        yield Finding(
            at_option(run, given),
            f"{given.name} has no effect without --{switch}: the job runs without the engine",
            f"add --{switch}",
            fix=line_fix(run, f"add --{switch}", added, gives=says(switch)),
            severity=None if run.accelerate is not None else Severity.WARNING,
        )


_IN_FILE = (
    "zero_stage",
    "offload_optimizer_device",
    "offload_param_device",
    "gradient_clipping",
    "zero3_save_16bit_model",
)
"""Options that a DeepSpeed file beats."""


@rule("ZC720", "option-beaten-by-deepspeed-file", Severity.ERROR)
def option_beaten_by_deepspeed_file(run: Run) -> Iterator[Finding]:
    yield from _beaten_by_accelerate_file(run)
    if not started_by(run, "accelerate") or run.deepspeed is None or run.deepspeed_route != "accelerate":
        return
    if run.consumer == "deepspeed":
        return
    for name in _IN_FILE:
        path = tuple(settings("accelerate")[name].split("."))
        given = run.flags.get(name)
        text = given.value if given is not None else None
        in_file = _value_at(run.deepspeed, path)
        if given is None or not isinstance(text, str) or in_file is None or in_file == "auto":
            continue
        if isinstance(in_file, (dict, list)) or _same(text, in_file):
            continue
        location, related = primary_location(run, [given.origin])
        yield Finding(
            location,
            f"--{name} {text} has no effect: {run.deepspeed.name} says {show(in_file)}, and the file wins",
            'say it in one place, or write "auto" in the file',
            [*related, Location(run.deepspeed, path)],
            edited(replace_value, run.deepspeed, path, '"auto"', why="leave it to the launch line", safe=False),
        )


def _beaten_by_accelerate_file(run: Run) -> Iterator[Finding]:
    for item in ignored(run, "ZC720"):
        given, used, file = option_at(run, item.place), item.used, run.accelerate
        text = given.value.value if given is not None and given.value is not None else None
        if given is None or text is None or used is None or file is None or _same(text, used.value):
            continue
        location, related = primary_location(run, [item.place, used.origin])
        yield Finding(
            location,
            f"{given.name} {text} has no effect: {file.name} says {show(used.value)}, and before accelerate "
            f"{BY_ITSELF_SINCE} the file wins",
            "say it in one place",
            related,
            edited(delete_entry, file, used.origin.path, why="leave it to the launch line", safe=False),
            severity=Severity.WARNING,
            versions=f"accelerate<{BY_ITSELF_SINCE}",
        )


def _value_at(file: SourceFile, path: tuple[str, ...]) -> object:
    value: object = file.data()
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _same(text: str, value: object) -> bool:
    if str(value).lower() == text.lower():
        return True
    try:
        return isinstance(value, (int, float)) and float(text) == value
    except ValueError:
        return False


@rule("ZC721", "cpu-flag-switches-engine-off", Severity.ERROR)
def cpu_flag_switches_engine_off(run: Run) -> Iterator[Finding]:
    given = option_named(run, "cpu")
    kind = accelerate_data(run).get("distributed_type")
    if not started_by(run, "accelerate") or given is None or run.accelerate is None or not isinstance(kind, str):
        return
    if kind in ("NO", "MULTI_CPU"):
        return
    yield Finding(
        at_option(run, given),
        f"--cpu replaces distributed_type {kind}: one process on the CPU, without the engine",
        "remove --cpu",
        [Location(run.accelerate, ("distributed_type",))],
        line_fix(run, "remove --cpu", without(run, given)),
    )


@rule("ZC722", "processes-not-started", Severity.ERROR)
def processes_not_started(run: Run) -> Iterator[Finding]:
    kind, processes = accelerate_data(run).get("distributed_type"), as_count(option(run, "num_processes"))
    if run.accelerate is None or kind not in ("NO", "MULTI_CPU") or processes is None or processes < 2:
        return
    if effective_value(run, "engine") not in ("single", "ddp", None) or option(run, "mpirun_hostfile") is not None:
        return
    if option(run, "mpirun_config") or any(option_named(run, name) for name in ("multi_gpu", *_ENGINES, "tpu")):
        return
    location, related = place_of(run, "num_processes")
    better = "MULTI_GPU, FSDP or DEEPSPEED" if kind == "NO" else "an `mpirun_hostfile` in `mpirun_config`"
    yield Finding(
        location,
        f"num_processes {processes} with distributed_type {kind}: accelerate starts one process",
        f"choose {better} to start {processes}",
        [*related, Location(run.accelerate, ("distributed_type",))],
        severity=None if kind == "NO" else Severity.WARNING,
    )
