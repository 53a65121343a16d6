"""ZC7xx: how many processes and devices, on how many machines, and how these find each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zerocfg.catalog.values import show
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import accelerate_data, accelerate_section, anchor, failures, told, under_deepspeed_launcher
from zerocfg.rules.proof import crashes, shows
from zerocfg.run.model import Origin, Run

_YAML = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n"
_LINE = "accelerate launch --config_file accelerate.yaml %strain.py\n"


@rule(
    "ZC704",
    "processes-not-divisible",
    Severity.ERROR,
    bad=Example(
        {
            "accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 7\nnum_machines: 2\n"
            "main_process_ip: 10.0.0.1\nmain_process_port: 29500\n"
        }
    ),
    good=Example(
        {
            "accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 2\n"
            "main_process_ip: 10.0.0.1\nmain_process_port: 29500\n"
        }
    ),
    proof=shows("launch", {"launch.nproc_per_node": ("3", "4")}),
)
def processes_not_divisible(run: Run) -> Iterator[Finding]:
    """num_processes is no multiple of num_machines.

    What happens: every machine starts num_processes // num_machines processes and the rest is dropped without a
    word: 7 on 2 machines starts 6. num_processes counts all machines together: 1 on 2 machines starts none.
    """
    processes, machines = option(run, "num_processes"), option(run, "num_machines")
    if not _count(processes, 1) or not _count(machines, 2) or processes % machines == 0:
        return
    location, related = _top(run, "num_processes")
    yield Finding(
        location,
        f"num_processes {processes} on {machines} machines: each starts {processes // machines}, "
        f"{processes // machines * machines} in all",
        "num_processes counts the processes of all machines: write a multiple of num_machines",
        related,
    )


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


def _count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _top(run: Run, name: str) -> tuple[Location, list[Location]]:
    if name in run.flags:
        return anchor(run, [run.flags[name].origin])
    return anchor(run, [Origin("file", file=run.accelerate, path=(name,))])


def _deepspeed_runner(run: Run) -> bool:
    """Several machines under the `deepspeed` program (pdsh by default) instead of torchrun on each."""
    starter = option(run, "deepspeed_multinode_launcher")
    return under_deepspeed_launcher(run) and starter != "standard"


@rule(
    "ZC705",
    "address-missing",
    Severity.ERROR,
    bad=Example(
        {"accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 2\n", "train.sh": _LINE % ""}
    ),
    good=Example(
        {
            "accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 2\n"
            "main_process_ip: 10.0.0.1\nmain_process_port: 29500\n",
            "train.sh": _LINE % "",
        }
    ),
    proof=shows("launch", {"launch.rdzv_endpoint": ("None:29500", "10.0.0.1:29500")}),
)
def address_missing(run: Run) -> Iterator[Finding]:
    """Several machines without the address of the first.

    What happens: the machines meet at the endpoint `None:29500`, that is, they do not: the job hangs or fails to
    resolve the name.
    """
    failed = list(failures(run, "ZC705"))
    machines = option(run, "num_machines")
    if not failed and (not _count(machines, 2) or option(run, "main_process_ip") is not None or not run.accelerate):
        return
    if not failed and (_deepspeed_runner(run) or (option(run, "same_network") is True and "same_network" in run.flags)):
        return
    location, related = _top(run, "num_machines")
    yield Finding(
        location,
        f"{machines} machines but no `main_process_ip`"
        + (": they never meet" if run.launch else ", unless the command line gives it: they never meet"),
        "write the address of the machine with rank 0, and a port",
        related,
        severity=None if run.launch else Severity.WARNING,
    )


@rule(
    "ZC709",
    "hostfile-missing",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": _YAML + "num_machines: 2\nmain_process_ip: 10.0.0.1\n", "train.sh": _LINE % ""}),
    good=Example(
        {
            "accelerate.yaml": _YAML + "  deepspeed_multinode_launcher: standard\nnum_machines: 2\n"
            "main_process_ip: 10.0.0.1\nmain_process_port: 29500\n",
            "train.sh": _LINE % "",
        }
    ),
    proof=shows("launch", {"launch.kind": ("command", "ranks")}),
)
def hostfile_missing(run: Run) -> Iterator[Finding]:
    """Several machines with DeepSpeed's own runner and no hostfile.

    What happens: without `deepspeed_multinode_launcher: standard` accelerate starts `deepspeed --hostfile None`,
    which logs in to the other machines (pdsh) by a list that does not exist and falls back to this machine alone.
    """
    machines = option(run, "num_machines")
    if not _count(machines, 2) or run.accelerate is None or not _deepspeed_runner(run):
        return
    if option(run, "deepspeed_hostfile") is not None:
        return
    if run.launch is not None and run.launch.launcher != "accelerate":
        return
    location, related = _top(run, "num_machines")
    yield Finding(
        location,
        f"{machines} machines under the {option(run, 'deepspeed_multinode_launcher') or 'pdsh'} launcher without a "
        "`deepspeed_hostfile`: accelerate runs `deepspeed --hostfile None`",
        "write `deepspeed_multinode_launcher: standard` and start on every machine, or name a hostfile",
        related,
        severity=None if run.launch else Severity.WARNING,
    )


@rule(
    "ZC710",
    "fewer-devices-than-processes",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 4\ngpu_ids: 0,1\n"}),
    good=Example({"accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 2\ngpu_ids: 0,1\n"}),
    proof=shows("launch", {"env.CUDA_VISIBLE_DEVICES": ("0,1", "0,1"), "launch.nproc_per_node": ("4", "2")}),
)
def fewer_devices_than_processes(run: Run) -> Iterator[Finding]:
    """`gpu_ids` names fewer devices than there are processes.

    What happens: the launcher does not compare them; processes share a device, and NCCL stops with a duplicate GPU
    error or the memory runs out. MULTI_GPU with one id stops at once: `ValueError: Less than two GPU ids were
    configured`.
    """
    for failure in failures(run, "ZC710"):
        yield told(run, failure)
        return
    ids, processes = option(run, "gpu_ids"), option(run, "num_processes")
    if (
        not isinstance(ids, str)
        or ids == "all"
        or not _count(processes, 2)
        or option(run, "num_machines") not in (None, 1)
    ):
        return
    listed = [part for part in ids.split(",") if part.strip()]
    if len(listed) < processes and run.accelerate is not None:
        location, related = _top(run, "gpu_ids")
        yield Finding(
            location,
            f"{len(listed)} devices in gpu_ids {show(ids)} for {processes} processes, which then share devices",
            f"name {processes} devices, or lower num_processes",
            [*related, _top(run, "num_processes")[0]],
        )


@rule(
    "ZC715",
    "machine-rank-out-of-range",
    Severity.ERROR,
    bad=Example(
        {
            "accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 2\nmachine_rank: 2\n"
            "main_process_ip: 10.0.0.1\nmain_process_port: 29500\n"
        }
    ),
    good=Example(
        {
            "accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 2\nmachine_rank: 1\n"
            "main_process_ip: 10.0.0.1\nmain_process_port: 29500\n"
        }
    ),
    proof=shows("launch", {"launch.node_rank": (2, 1)}),
)
def machine_rank_out_of_range(run: Run) -> Iterator[Finding]:
    """`machine_rank` is not below `num_machines`; ranks count from 0.

    What happens: nothing checks it; the machines wait for each other until the timeout.
    """
    rank, machines = option(run, "machine_rank"), option(run, "num_machines")
    machines = 1 if machines is None else machines
    if run.accelerate is None or not _count(rank, 1) or not _count(machines, 1) or rank < machines:
        return
    location, related = _top(run, "machine_rank")
    yield Finding(
        location,
        f"machine_rank {rank} with {machines} machine{'s' if machines > 1 else ''}: ranks count from 0; "
        + ("the machines never meet" if machines > 1 else "it has no effect"),
        f"write a rank from 0 to {machines - 1}",
        related,
        severity=None if machines > 1 else Severity.NOTE,
    )


@rule(
    "ZC716",
    "sagemaker-cannot-launch",
    Severity.ERROR,
    bad=Example(
        {
            "accelerate.yaml": "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: 'NO'\n"
            "ec2_instance_type: ml.p3.2xlarge\niam_role_name: trainer\n"
        }
    ),
    good=Example({"accelerate.yaml": "compute_environment: LOCAL_MACHINE\n" + _YAML}),
    proof=crashes("launch", "unknown keys|parallelism_config"),
)
def sagemaker_cannot_launch(run: Run) -> Iterator[Finding]:
    """A compute environment other than LOCAL_MACHINE.

    What happens: accelerate takes any other word for SageMaker and reads the file as a SageMakerConfig. Its launcher
    1.15.0 cannot start one: it stops with `unknown keys (['num_processes'])`, a key it adds itself, or with
    `AttributeError: 'SageMakerConfig' object has no attribute 'parallelism_config'`.
    """
    for failure in failures(run, "ZC716"):
        environment = show(accelerate_data(run).get("compute_environment"))
        yield Finding(
            anchor(run, failure.places)[0],
            f"compute_environment is {environment}: accelerate reads the file as a SageMakerConfig object, and its "
            "launcher 1.15.0 stops at every such file",
            "write LOCAL_MACHINE, or launch with an older accelerate or the SageMaker SDK",
        )


RULES = (
    processes_not_divisible,
    address_missing,
    hostfile_missing,
    fewer_devices_than_processes,
    machine_rank_out_of_range,
    sagemaker_cannot_launch,
)
