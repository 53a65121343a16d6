"""ZC7xx: environment variables that a launch line or its file sets, and what the launchers make of them."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.schema import load_schema
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.effects import TRAINERS, under_deepspeed_launcher
from zerocfg.rules.failures import primary_location
from zerocfg.rules.launch.machines import option, place_of
from zerocfg.rules.line import (
    all_options_seen,
    as_count,
    at_line,
    before_script,
    exported,
    flag,
    line_fix,
    mentions,
    number_of,
    says,
    started_by,
)
from zerocfg.run.model import UNKNOWN, Run, Setting

_TRUE = ("y", "yes", "t", "true", "on", "1")


@rule("ZC743", "visible-devices-too-few", Severity.ERROR)
def visible_devices_too_few(run: Run) -> Iterator[Finding]:
    devices = exported(run, "CUDA_VISIBLE_DEVICES")
    if devices is None or not devices.replace(",", "").isdecimal():
        return
    listed = [part for part in devices.split(",") if part]
    if started_by(run, "accelerate"):
        if option(run, "gpu_ids") not in (None, "all") or option(run, "num_machines") not in (None, 1):
            return
        processes, place = as_count(option(run, "num_processes")), "num_processes"
        if run.effective.value("engine") not in ("deepspeed", "fsdp", "ddp", "megatron"):
            return
    elif started_by(run, "torchrun"):
        processes, place = number_of(run, "nproc_per_node"), "nproc_per_node"
    else:
        return
    if processes is None or processes <= len(listed):
        return
    where = [place_of(run, place)[0]]
    yield Finding(
        at_line(run),
        f"CUDA_VISIBLE_DEVICES={devices} shows {len(listed)} device{'s' * (len(listed) > 1)} to {processes} processes",
        "name as many devices as there are processes, or start fewer",
        where,
    )


@rule("ZC744", "port-variable-not-read", Severity.WARNING)
def port_variable_not_read(run: Run) -> Iterator[Finding]:
    port = exported(run, "MASTER_PORT")
    launcher = run.launch.launcher if run.launch is not None else None
    name = {"accelerate": "main_process_port", "deepspeed": "master_port", "torchrun": "master_port"}.get(str(launcher))
    if port is None or not port.isdecimal() or name is None or port == "29500" or mentions(run, "MASTER_PORT"):
        return
    if launcher == "torchrun" and (flag(run, "rdzv_backend", "standalone") or not flag(run, "nnodes")):
        return  # torchrun on one machine looks for a free port by itself
    if flag(run, name, "rdzv_endpoint") is not None or not all_options_seen(run):
        return
    if launcher == "accelerate" and (option(run, name) is not None or run.effective.value("engine") == "single"):
        return
    yield Finding(
        at_line(run),
        f"{'accelerate launch' if launcher == 'accelerate' else launcher} does not read MASTER_PORT={port}: "
        "the port stays 29500",
        f"give --{name} {port}",
        fix=line_fix(run, f"give --{name}", before_script(run, f"--{name} {port}"), gives=says(name, port)),
    )


@rule("ZC745", "variable-replaced-by-launcher", Severity.ERROR)
def variable_replaced_by_launcher(run: Run) -> Iterator[Finding]:
    if not started_by(run, "accelerate"):
        return
    for name, given in run.environment.items():
        used = run.effective.environment.get(name)
        ours = name == "CUDA_VISIBLE_DEVICES" or name.startswith(("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_"))
        if used is None or not ours or used.value is UNKNOWN or not isinstance(given.value, str):
            continue
        words = {str(used.value).lower(), given.value.lower()}
        if len(words) == 1 or words <= set(_TRUE):
            continue
        location, related = primary_location(run, [given.origin, used.origin])
        by = f"{used.value} {_said(used)}"
        yield Finding(
            location,
            f"`accelerate launch` replaces {name}={given.value} by {by}",
            "say it in the accelerate config or by an option of the launcher",
            related,
        )


def _said(used: Setting) -> str:
    if used.origin.kind == "file" and used.origin.path:
        return f"(`{used.origin.path[-1]}` of the config)"
    return f"(`{used.origin.note}`)" if used.origin.kind == "flag" else "(its default)"


@rule("ZC746", "engine-variables-without-switch", Severity.ERROR)
def engine_variables_without_switch(run: Run) -> Iterator[Finding]:
    if not started_by(run, "torchrun", "python", "deepspeed") or run.consumer is None or run.deepspeed is not None:
        return
    options = load_schema("accelerate-launcher").root.keys
    for prefix, engine in (("ACCELERATE_DEEPSPEED_", "deepspeed"), ("FSDP_", "fsdp")):
        (switch,) = options[f"use_{engine}"].variables
        names = [name for name in run.environment if name.startswith(prefix)]
        on = run.environment.get(switch)
        if not names or (on is not None and (on.value is UNKNOWN or str(on.value).lower() in _TRUE)):
            continue
        if prefix == "FSDP_" and ("fsdp" in run.arguments or "fsdp" in _recipe(run)):
            continue
        yield Finding(
            at_line(run),
            f"{names[0]} has no effect without {switch}=true: the job runs without the engine",
            f"export {switch}=true, or start with accelerate launch",
        )


def _recipe(run: Run) -> dict[str, object]:
    data = run.recipe.data() if run.recipe is not None else None
    return data if isinstance(data, dict) else {}


@rule("ZC747", "cpu-variable-beside-deepspeed", Severity.ERROR, consumers=TRAINERS)
def cpu_variable_beside_deepspeed(run: Run) -> Iterator[Finding]:
    found = run.environment.get("ACCELERATE_USE_CPU")
    if found is None or not isinstance(found.value, str) or found.value.lower() not in _TRUE:
        return
    if not started_by(run, "accelerate") or not under_deepspeed_launcher(run) or run.accelerate is None:
        return
    yield Finding(
        at_line(run),
        "ACCELERATE_USE_CPU is set: the job trains on the CPU under DDP, without DeepSpeed",
        "remove the variable, or choose another distributed_type",
        [Location(run.accelerate, ("distributed_type",))],
    )
