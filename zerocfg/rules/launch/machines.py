"""ZC7xx: how many processes and devices, on how many machines, and how these find each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import WHOLE_RUN, Finding, Location, Severity, rule
from zerocfg.rules.effects import accelerate_data
from zerocfg.rules.failures import failures, primary_location, reported
from zerocfg.rules.key import accelerate
from zerocfg.rules.launch.options import launcher_option, listed, machines_of, number_fix, under_runner
from zerocfg.rules.line import all_options_seen, at_line, is_page, line_option, started_by
from zerocfg.rules.subjects import WRITTEN_LINE, FailureOfRun, WrittenLine, each_failure
from zerocfg.run.model import Run
from zerocfg.source.text import Span


@rule("ZC704", "processes-not-divisible", Severity.ERROR, WHOLE_RUN)
def processes_not_divisible(run: Run) -> Iterator[Finding]:
    key, machines = launcher_option(run, "num_processes"), machines_of(run)
    processes = key.count or 0
    if processes < 1 or machines < 2 or processes % machines == 0:
        return
    if accelerate_data(run).get("distributed_type") in ("NO", "MULTI_CPU"):
        return  # one process on each machine, or as many as mpirun starts
    started = processes // machines * machines
    enough = (started + machines) if started else processes * machines
    yield key.finding(
        f"num_processes {processes} on {machines} machines: each starts {processes // machines}, {started} in all",
        "num_processes counts the processes of all machines: write a multiple of num_machines",
        fix=number_fix(run, "num_processes", enough),
    )


@rule("ZC705", "address-missing", Severity.ERROR, WHOLE_RUN)
def address_missing(run: Run) -> Iterator[Finding]:
    failed = any(failures(run, "ZC705"))
    machines = launcher_option(run, "num_machines")
    seen = run.accelerate or (started_by(run, "accelerate") and all_options_seen(run))
    alone = machines_of(run) < 2 or not seen or under_runner(run)
    address = launcher_option(run, "main_process_ip")
    if not failed and (alone or address.value not in (None, "")):
        return
    certain = run.launch is not None and (run.accelerate is not None or failed)
    elsewhere = "the command line" if run.launch is None else "accelerate's default config on each machine"
    possible = Severity.NOTE if run.launch is None else Severity.WARNING  # the scheduler's nodes are not known before
    if address.value == "":
        yield address.finding(
            f"{machines.value} machines and an empty `main_process_ip`"
            + (": torchrun stops at it" if certain else f", unless {elsewhere} gives it: torchrun stops at it"),
            "write the address of the machine with rank 0",
            severity=None if certain else possible,
        )
        return
    yield machines.finding(
        f"{machines.value} machines but no `main_process_ip`"
        + (": they never meet" if certain else f", unless {elsewhere} gives it: they never meet"),
        "write the address of the machine with rank 0, and a port",
        severity=None if certain else possible,
    )


@rule("ZC709", "hostfile-missing", Severity.ERROR, WHOLE_RUN)
def hostfile_missing(run: Run) -> Iterator[Finding]:
    machines, name = machines_of(run), "deepspeed_multinode_launcher"
    if machines < 2 or run.accelerate is None or not under_runner(run):
        return
    if launcher_option(run, "deepspeed_hostfile").value is not None:
        return
    if run.launch is not None and run.launch.launcher != "accelerate":
        return
    yield launcher_option(run, "num_machines").finding(
        f"{machines} machines under the {launcher_option(run, name).value or 'pdsh'} launcher without a "
        "`deepspeed_hostfile`: accelerate runs `deepspeed --hostfile None`",
        "write `deepspeed_multinode_launcher: standard` and start on every machine, or name a hostfile",
        fix=accelerate(run, "deepspeed_config", name).set("standard", "start torchrun on every machine", safe=False),
        severity=None if run.launch else Severity.WARNING,
    )


@rule("ZC710", "fewer-devices-than-processes", Severity.ERROR, WHOLE_RUN)
def fewer_devices_than_processes(run: Run) -> Iterator[Finding]:
    for failure in failures(run, "ZC710"):
        yield reported(run, failure)
        return
    ids, machines = launcher_option(run, "gpu_ids"), machines_of(run)
    key = launcher_option(run, "num_processes")
    processes = key.count or 0
    if not isinstance(ids.value, str) or ids.value == "all" or processes < 2 or not machines or run.accelerate is None:
        return
    count, share = len(listed(ids.value)), processes // machines
    if count < share:
        where = " on each machine" if machines > 1 else ""
        yield ids.finding(
            f"{count} device{'s' * (count != 1)} in gpu_ids {show(ids.value)} for {share} processes{where}, "
            "which then share devices",
            f"name {share} devices, or lower num_processes",
            [key],
            number_fix(run, "num_processes", count * machines) if count else None,
        )


@rule("ZC715", "machine-rank-out-of-range", Severity.ERROR, WHOLE_RUN)
def machine_rank_out_of_range(run: Run) -> Iterator[Finding]:
    if started_by(run, "torchrun"):
        option, nodes = line_option(run, "node_rank"), line_option(run, "nnodes").count or 0
        if option.count is not None and 1 < nodes <= option.count:
            yield option.finding(
                f"--node_rank {option.count} with {nodes} machines: ranks count from 0; the machines never meet",
                f"write a rank from 0 to {nodes - 1}",
            )
        return
    key, machines = launcher_option(run, "machine_rank"), machines_of(run)
    rank = key.count or 0
    if run.accelerate is None or rank < 1 or not machines or rank < machines:
        return
    yield key.finding(
        f"machine_rank {rank} with {machines} machine{'s' if machines > 1 else ''}: ranks count from 0; "
        + ("the machines never meet" if machines > 1 else "it has no effect"),
        f"write a rank from 0 to {machines - 1}",
        severity=None if machines > 1 else Severity.NOTE,
    )


@rule("ZC716", "sagemaker-cannot-launch", Severity.ERROR, each_failure("ZC716"))
def sagemaker_cannot_launch(predicted: FailureOfRun) -> Iterator[Finding]:
    config = predicted.run.accelerate
    data = config.data() if config is not None else None
    environment = show(data.get("compute_environment") if isinstance(data, dict) else None)
    yield Finding(
        primary_location(predicted.run, predicted.failure.places)[0],
        f"compute_environment is {environment}: accelerate reads the file as a SageMakerConfig object, and its "
        "launcher 1.15.0 stops at every such file",
        "write LOCAL_MACHINE, which is right under Slurm and in every cloud but SageMaker"
        if environment != '"AMAZON_SAGEMAKER"'
        else "write LOCAL_MACHINE, or launch with an older accelerate or the SageMaker SDK",
    )


_NODES = re.compile(r"^#SBATCH[ \t]+(?:--nodes[ \t=]|-N)[ \t]*(\S+)", re.MULTILINE)
_SINGLE_TASK = re.compile(r"^#SBATCH[ \t]+(?:--ntasks[ \t=]|-n)[ \t]*1[ \t]*$", re.MULTILINE)
_STEP = re.compile(r"(?:^|[ \t])srun\b(.*)", re.DOTALL)
_LIMITED = re.compile(r"(?:^|\s)(?:-[NnwrO]|--(?:nodes|ntasks|nodelist|relative|overlap)\b)")


@rule("ZC751", "slurm-nodes-not-joined", Severity.ERROR, WRITTEN_LINE)
def slurm_nodes_not_joined(started: WrittenLine) -> Iterator[Finding]:
    line, file = started.line, started.file
    if is_page(file):
        return
    text = file.source.text
    asked = list(_NODES.finditer(text, 0, line.span.start))
    script = line.script.span.start if line.script is not None else line.span.end
    step = _STEP.search(text[line.span.start : max(script, line.span.start)])
    if not asked or step is None or _LIMITED.search(step[1]):
        return
    nodes = asked[-1][1]
    if not nodes.isdecimal() or len(nodes) > 5 or int(nodes) < 2 or _SINGLE_TASK.search(text):
        return
    joined = _single_machine(started.run)
    if joined is None:
        return
    yield Finding(
        joined,
        f"srun starts this on {nodes} nodes, and each trains by itself: the launcher is asked for one machine",
        f"write num_machines {nodes}, with machine_rank and main_process_ip"
        if line.launcher == "accelerate"
        else f"give --nnodes {nodes}, with --rdzv_backend c10d and --rdzv_endpoint",
        [Location(file, span=Span(asked[-1].start(), asked[-1].end(1)))],
    )


def _single_machine(run: Run) -> Location | None:
    """The place that asks the launcher for one machine, or the line that leaves it at one; None where that is open."""
    if not all_options_seen(run):
        return None
    if started_by(run, "accelerate"):
        machines = launcher_option(run, "num_machines")
        return machines.at() if machines.count == 1 and machines_of(run) == 1 else None
    if started_by(run, "torchrun") and not any(name.startswith("PET_") for name in run.environment):
        nodes = line_option(run, "nnodes")
        if not nodes and not line_option(run, "rdzv_endpoint", "master_addr", "node_rank"):
            return at_line(run)
        return nodes.at() if nodes.count == 1 else None
    return None
