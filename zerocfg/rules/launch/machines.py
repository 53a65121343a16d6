"""ZC7xx: how many processes and devices, on how many machines, and how these find each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import accelerate_data, accelerate_section, effective_value, under_deepspeed_launcher
from zerocfg.rules.failures import failures, primary_location, reported
from zerocfg.rules.fixes import edited
from zerocfg.rules.line import all_options_seen, at_option, line_fix, number_of, option_named, says, started_by, written
from zerocfg.run.model import UNKNOWN, Origin, Run
from zerocfg.source.edit import Edit, insert_entry, replace_value

_RANKS = frozenset(("MULTI_GPU", "DEEPSPEED", "FSDP", "MEGATRON_LM"))
"""Kinds of job (``distributed_type``) that torchrun starts."""


@rule("ZC704", "processes-not-divisible", Severity.ERROR)
def processes_not_divisible(run: Run) -> Iterator[Finding]:
    processes, machines = option(run, "num_processes"), option(run, "num_machines")
    if not is_count(processes, 1) or not is_count(machines, 2) or processes % machines == 0:
        return
    if accelerate_data(run).get("distributed_type") in ("NO", "MULTI_CPU"):
        return  # one process on each machine, or as many as mpirun starts
    location, related = place_of(run, "num_processes")
    started = processes // machines * machines
    enough = (started + machines) if started else processes * machines
    yield Finding(
        location,
        f"num_processes {processes} on {machines} machines: each starts {processes // machines}, {started} in all",
        "num_processes counts the processes of all machines: write a multiple of num_machines",
        related,
        number_fix(run, "num_processes", enough),
    )


def number_fix(run: Run, name: str, value: int) -> Fix | None:
    """Another number under a key of the accelerate config, or under its option of the launch line."""
    why = f"write {name} {value}"
    given = option_named(run, name)
    if given is not None:
        edits = [Edit(given.span, f"{given.name} {value}")] if written(run, given) else None
        return line_fix(run, why, edits, gives=says(name, str(value)))
    if run.accelerate is None or name not in accelerate_data(run):
        return None
    return edited(replace_value, run.accelerate, (name,), str(value), why=why, safe=False)


def option(run: Run, name: str) -> Any:
    """What the launcher takes for an option: its flag, a key of a section, the top level. None when nothing says."""
    for given in (run.flags.get(name), run.flags.get(name.replace("_", "-"))):
        if given is not None:
            value = given.value
            return int(value) if isinstance(value, str) and value.isdigit() else value
    if run.launch is not None and run.launch.launcher != "accelerate":
        return None
    value = accelerate_section(run).get(name)
    return accelerate_data(run).get(name) if value is None else value


def is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def by_torchrun(run: Run) -> bool:
    """Whether accelerate starts the ranks with torchrun: known too where the Trainer's arguments, which decide about
    the engine, are not."""
    engine = effective_value(run, "engine")
    if engine is UNKNOWN:
        named = accelerate_data(run).get("distributed_type")
        return isinstance(named, str) and named in _RANKS
    return engine in ("deepspeed", "fsdp", "ddp", "megatron")


def place_of(run: Run, name: str) -> tuple[Location, list[Location]]:
    """Where the launcher takes an option from: its flag, or the key of the accelerate config."""
    if name in run.flags:
        return primary_location(run, [run.flags[name].origin])
    path = ("deepspeed_config", name) if name in accelerate_section(run) else (name,)
    return primary_location(run, [Origin("file", file=run.accelerate, path=path)])


def under_runner(run: Run) -> bool:
    """Several machines under the `deepspeed` program (pdsh by default) instead of torchrun on each."""
    starter = option(run, "deepspeed_multinode_launcher")
    return under_deepspeed_launcher(run) and starter != "standard"


@rule("ZC705", "address-missing", Severity.ERROR)
def address_missing(run: Run) -> Iterator[Finding]:
    failed = list(failures(run, "ZC705"))
    machines = option(run, "num_machines")
    seen = run.accelerate or (started_by(run, "accelerate") and all_options_seen(run))
    alone = not is_count(machines, 2) or not seen or under_runner(run)
    if not failed and (alone or option(run, "main_process_ip") is not None):
        return
    location, related = place_of(run, "num_machines")
    certain = run.launch is not None and (run.accelerate is not None or bool(failed))
    elsewhere = "the command line" if run.launch is None else "accelerate's default config on each machine"
    yield Finding(
        location,
        f"{machines} machines but no `main_process_ip`"
        + (": they never meet" if certain else f", unless {elsewhere} gives it: they never meet"),
        "write the address of the machine with rank 0, and a port",
        related,
        severity=None if certain else Severity.WARNING,
    )


@rule("ZC709", "hostfile-missing", Severity.ERROR)
def hostfile_missing(run: Run) -> Iterator[Finding]:
    machines = option(run, "num_machines")
    if not is_count(machines, 2) or run.accelerate is None or not under_runner(run):
        return
    if option(run, "deepspeed_hostfile") is not None:
        return
    if run.launch is not None and run.launch.launcher != "accelerate":
        return
    location, related = place_of(run, "num_machines")
    yield Finding(
        location,
        f"{machines} machines under the {option(run, 'deepspeed_multinode_launcher') or 'pdsh'} launcher without a "
        "`deepspeed_hostfile`: accelerate runs `deepspeed --hostfile None`",
        "write `deepspeed_multinode_launcher: standard` and start on every machine, or name a hostfile",
        related,
        _standard(run),
        severity=None if run.launch else Severity.WARNING,
    )


def _standard(run: Run) -> Fix | None:
    """torchrun on every machine."""
    why = "start torchrun on every machine"
    section = accelerate_section(run)
    path = ("deepspeed_config", "deepspeed_multinode_launcher")
    if path[1] in section:
        return edited(replace_value, run.accelerate, path, "standard", why=why, safe=False)
    if not section:
        return None
    return edited(insert_entry, run.accelerate, path[:1], path[1], "standard", why=why, safe=False)


@rule("ZC710", "fewer-devices-than-processes", Severity.ERROR)
def fewer_devices_than_processes(run: Run) -> Iterator[Finding]:
    for failure in failures(run, "ZC710"):
        yield reported(run, failure)
        return
    ids, processes = option(run, "gpu_ids"), option(run, "num_processes")
    machines = option(run, "num_machines")
    machines = 1 if machines is None else machines
    if not isinstance(ids, str) or ids == "all" or not is_count(processes, 2) or not is_count(machines, 1):
        return
    listed = [part for part in ids.split(",") if part.strip()]
    share = processes // machines
    if len(listed) < share and run.accelerate is not None:
        location, related = place_of(run, "gpu_ids")
        where = " on each machine" if machines > 1 else ""
        yield Finding(
            location,
            f"{len(listed)} device{'s' * (len(listed) != 1)} in gpu_ids {show(ids)} for {share} processes{where}, "
            "which then share devices",
            f"name {share} devices, or lower num_processes",
            [*related, place_of(run, "num_processes")[0]],
            number_fix(run, "num_processes", len(listed) * machines) if listed else None,
        )


@rule("ZC715", "machine-rank-out-of-range", Severity.ERROR)
def machine_rank_out_of_range(run: Run) -> Iterator[Finding]:
    if started_by(run, "torchrun"):
        rank, machines, named = number_of(run, "node_rank"), number_of(run, "nnodes"), option_named(run, "node_rank")
        if rank is not None and machines is not None and machines > 1 and rank >= machines and named is not None:
            what = f"--node_rank {rank} with {machines} machines: ranks count from 0; the machines never meet"
            yield Finding(at_option(run, named), what, f"write a rank from 0 to {machines - 1}")
        return
    rank, machines = option(run, "machine_rank"), option(run, "num_machines")
    machines = 1 if machines is None else machines
    if run.accelerate is None or not is_count(rank, 1) or not is_count(machines, 1) or rank < machines:
        return
    location, related = place_of(run, "machine_rank")
    yield Finding(
        location,
        f"machine_rank {rank} with {machines} machine{'s' if machines > 1 else ''}: ranks count from 0; "
        + ("the machines never meet" if machines > 1 else "it has no effect"),
        f"write a rank from 0 to {machines - 1}",
        related,
        severity=None if machines > 1 else Severity.NOTE,
    )


@rule("ZC716", "sagemaker-cannot-launch", Severity.ERROR)
def sagemaker_cannot_launch(run: Run) -> Iterator[Finding]:
    for failure in failures(run, "ZC716"):
        data = run.accelerate.data() if run.accelerate is not None else None
        environment = show(data.get("compute_environment") if isinstance(data, dict) else None)
        yield Finding(
            primary_location(run, failure.places)[0],
            f"compute_environment is {environment}: accelerate reads the file as a SageMakerConfig object, and its "
            "launcher 1.15.0 stops at every such file",
            "write LOCAL_MACHINE, which is right under Slurm and in every cloud but SageMaker"
            if environment != '"AMAZON_SAGEMAKER"'
            else "write LOCAL_MACHINE, or launch with an older accelerate or the SageMaker SDK",
        )
