"""How many processes torchrun, the `deepspeed` runner and plain python start."""

from __future__ import annotations

from typing import Any

from zerocfg.frontends.registry import front_end
from zerocfg.run.config import product
from zerocfg.run.model import UNKNOWN, Origin, Run, Setting
from zerocfg.run.stages.launcher import accelerate_launch
from zerocfg.run.stages.namespace import Launch

UNKNOWN_LAUNCH = Setting(UNKNOWN, Origin("computed", "nothing tells how the job is launched"))
ONE_MACHINE = Setting(1, Origin("default", "one machine"))


def launch_of(run: Run) -> Launch:
    """The launch of a run: by its launch line, else by its accelerate config, else unknown."""
    name = run.launch.launcher if run.launch else None
    if name == "accelerate" or (name is None and run.accelerate is not None):
        return accelerate_launch(run)
    flags = {key.lstrip("-").replace("-", "_"): setting for key, setting in run.flags.items()}
    if name == "torchrun":
        return _torchrun(flags)
    if name == "deepspeed":
        return _deepspeed_runner(flags)
    if name == "python":
        framework = front_end(run.consumer)
        if framework is not None and framework.package:  # it may start processes by itself
            return Launch("python", run.processes or UNKNOWN_LAUNCH, UNKNOWN_LAUNCH)
        one = Setting(1, Origin("default", "plain python starts one process"))
        return Launch("python", one, ONE_MACHINE)
    return Launch("none", run.processes or UNKNOWN_LAUNCH, UNKNOWN_LAUNCH)


def _count(setting: Setting | None, default: int) -> Any:
    """The int of a flag, or UNKNOWN (`auto`, `gpu`, a range `1:4`, a variable)."""
    if setting is None:
        return default
    try:
        return int(setting.value)
    except (TypeError, ValueError, OverflowError):
        return UNKNOWN


def _torchrun(flags: dict[str, Setting]) -> Launch:
    local, nodes = flags.get("nproc_per_node"), flags.get("nnodes")
    machines = _count(nodes, 1)
    total = product(_count(local, 1), machines)
    origin = local.origin if local and machines == 1 else Origin("computed", "nproc_per_node * nnodes")
    if local is None and nodes is None:
        origin = Origin("default", "torchrun starts one process")
    where = nodes.origin if nodes else ONE_MACHINE.origin
    return Launch("torchrun", Setting(total, origin), Setting(machines, where))


def _deepspeed_runner(flags: dict[str, Setting]) -> Launch:
    """--num_gpus is per node; --include names the devices; without either, all devices of all hosts are used."""
    include, nodes, gpus = flags.get("include"), flags.get("num_nodes"), flags.get("num_gpus")
    if include is not None and isinstance(include.value, str):
        hosts = [part.partition(":") for part in include.value.split("@") if part]
        if hosts and all(slots for _, _, slots in hosts):
            total = sum(len(slots.split(",")) for _, _, slots in hosts)
            return Launch("deepspeed-runner", Setting(total, include.origin), Setting(len(hosts), include.origin))
    several = flags.get("hostfile") is not None
    machines = _count(nodes, 1) if nodes or not several else UNKNOWN
    local = _count(gpus, 1) if gpus else UNKNOWN
    total = product(local, machines)
    origin = gpus.origin if gpus and machines == 1 else Origin("computed", "num_gpus * num_nodes")
    where = nodes.origin if nodes else ONE_MACHINE.origin
    return Launch("deepspeed-runner", Setting(total, origin), Setting(machines, where))
