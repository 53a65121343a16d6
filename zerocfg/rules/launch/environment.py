"""ZC7xx: environment variables that a launch line or its file sets, and what the launchers make of them."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.schema import load_schema
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.effects import TRAINERS, recipe_data, under_deepspeed_launcher
from zerocfg.rules.key import accelerate, finding_at, from_origin
from zerocfg.rules.launch.options import launcher_option, listed, machines_of
from zerocfg.rules.line import (
    all_options_seen,
    at_line,
    before_script,
    exported,
    line_fix,
    line_option,
    mentions,
    says,
    started_by,
)
from zerocfg.rules.subjects import LineOfRun, line_of
from zerocfg.run.model import UNKNOWN, Run, Setting

_TRUE = ("y", "yes", "t", "true", "on", "1")


@rule("ZC743", "visible-devices-too-few", Severity.ERROR, WHOLE_RUN)
def visible_devices_too_few(run: Run) -> Iterator[Finding]:
    devices = exported(run, "CUDA_VISIBLE_DEVICES")
    if devices is None or not devices.replace(",", "").isdecimal():
        return
    if started_by(run, "accelerate"):
        if launcher_option(run, "gpu_ids").value not in (None, "all") or machines_of(run) != 1:
            return
        processes = launcher_option(run, "num_processes")
        if run.effective.value("engine") not in ("deepspeed", "fsdp", "ddp", "megatron"):
            return
    elif started_by(run, "torchrun"):
        processes = line_option(run, "nproc_per_node")
    else:
        return
    shown = len(listed(devices))
    if processes.count is None or processes.count <= shown:
        return
    if shown == 1 and started_by(run, "accelerate") and _counts_devices(run):
        yield Finding(
            at_line(run),
            f"accelerate launch starts one process, not {processes.count}: CUDA_VISIBLE_DEVICES={devices} shows one "
            "device, and without a config it starts several only where it sees several",
            f"name {processes.count} devices, or give --num_processes 1",
            [processes.at()],
        )
    else:
        yield Finding(
            at_line(run),
            f"CUDA_VISIBLE_DEVICES={devices} shows {shown} device{'s' * (shown > 1)} to {processes.count} processes",
            "name as many devices as there are processes, or start fewer",
            [processes.at()],
        )


def _counts_devices(run: Run) -> bool:
    """Whether accelerate's launcher decides by the devices that it sees whether it starts several processes: nothing
    on its line chooses an engine, and no config does."""
    chosen = ("multi_gpu", "use_deepspeed", "use_fsdp", "use_megatron_lm", "tpu", "config_file")
    return run.accelerate is None and all_options_seen(run) and not any(name in run.flags for name in chosen)


@rule("ZC744", "port-variable-not-read", Severity.WARNING, WHOLE_RUN)
def port_variable_not_read(run: Run) -> Iterator[Finding]:
    port = exported(run, "MASTER_PORT")
    launcher = run.launch.launcher if run.launch is not None else None
    name = {"accelerate": "main_process_port", "deepspeed": "master_port", "torchrun": "master_port"}.get(str(launcher))
    if port is None or not port.isdecimal() or name is None or port == "29500" or mentions(run, "MASTER_PORT"):
        return
    if launcher == "torchrun" and (line_option(run, "rdzv_backend", "standalone") or not line_option(run, "nnodes")):
        return  # torchrun on one machine looks for a free port by itself
    if line_option(run, name, "rdzv_endpoint") or not all_options_seen(run):
        return
    alone = run.effective.value("engine") == "single"
    if launcher == "accelerate" and (alone or launcher_option(run, name).value is not None):
        return
    yield Finding(
        at_line(run),
        f"{'accelerate launch' if launcher == 'accelerate' else launcher} does not read MASTER_PORT={port}: "
        "the port stays 29500",
        f"give --{name} {port}",
        fix=line_fix(run, f"give --{name}", before_script(run, f"--{name} {port}"), gives=says(name, port)),
    )


@rule("ZC745", "variable-replaced-by-launcher", Severity.ERROR, line_of("accelerate"))
def variable_replaced_by_launcher(started: LineOfRun) -> Iterator[Finding]:
    for name, given in started.run.environment.items():
        used = started.run.effective.environment.get(name)
        ours = name == "CUDA_VISIBLE_DEVICES" or name.startswith(("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_"))
        if used is None or not ours or used.value is UNKNOWN or not isinstance(given.value, str):
            continue
        words = {str(used.value).lower(), given.value.lower()}
        if len(words) == 1 or words <= set(_TRUE):
            continue
        yield finding_at(
            started.run,
            [from_origin(started.run, given.origin), from_origin(started.run, used.origin)],
            f"`accelerate launch` replaces {name}={given.value} by {used.value} {_said(used)}",
            "say it in the accelerate config or by an option of the launcher",
        )


def _said(used: Setting) -> str:
    if used.origin.kind == "file" and used.origin.path:
        return f"(`{used.origin.path[-1]}` of the config)"
    return f"(`{used.origin.note}`)" if used.origin.kind == "flag" else "(its default)"


@rule("ZC746", "engine-variables-without-switch", Severity.ERROR, line_of("torchrun", "python", "deepspeed"))
def engine_variables_without_switch(started: LineOfRun) -> Iterator[Finding]:
    if started.run.consumer is None or started.run.deepspeed is not None:
        return
    options = load_schema("accelerate-launcher").root.keys
    for prefix, engine in (("ACCELERATE_DEEPSPEED_", "deepspeed"), ("FSDP_", "fsdp")):
        (switch,) = options[f"use_{engine}"].variables
        names = [name for name in started.run.environment if name.startswith(prefix)]
        on = started.run.environment.get(switch)
        if not names or (on is not None and (on.value is UNKNOWN or str(on.value).lower() in _TRUE)):
            continue
        if prefix == "FSDP_" and ("fsdp" in started.run.arguments or "fsdp" in recipe_data(started.run)):
            continue
        yield Finding(
            at_line(started.run),
            f"{names[0]} has no effect without {switch}=true: the job runs without the engine",
            f"export {switch}=true, or start with accelerate launch",
        )


@rule("ZC747", "cpu-variable-beside-deepspeed", Severity.ERROR, WHOLE_RUN, consumers=TRAINERS)
def cpu_variable_beside_deepspeed(run: Run) -> Iterator[Finding]:
    if (exported(run, "ACCELERATE_USE_CPU") or "").lower() not in _TRUE:
        return
    if not started_by(run, "accelerate") or not under_deepspeed_launcher(run) or run.accelerate is None:
        return
    yield Finding(
        at_line(run),
        "ACCELERATE_USE_CPU is set: the job trains on the CPU under DDP, without DeepSpeed",
        "remove the variable, or choose another distributed_type",
        [accelerate(run, "distributed_type").at()],
    )
