"""What a job gets that its launch line starts, against what it gets from the emitted files.

Both sides are read as any other run: the launch line of the repository with its files, and the emitted ``launch.sh``
with the files that it names. The one thing that is set is the hardware, on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from zerocfg.run.model import UNKNOWN, Origin, Run, Setting
from zerocfg.run.resolve_settings import with_consumer, with_settings
from zerocfg.run.stages.engine import current_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from zerocfg.resolve.plan import Decision, Plan

COUNTS = {
    "accelerate": ("num_machines", "num_processes"),
    "torchrun": ("nnodes", "nproc_per_node"),
    "deepspeed": ("num_nodes", "num_gpus"),
}
"""Options of each launcher for nodes, and for processes: accelerate's of all nodes, the others' of each."""
OF_THE_MACHINE = frozenset(
    "multi_gpu include exclude hostfile nproc_per_node nnodes num_gpus num_nodes num_processes num_machines "
    "machine_rank main_process_ip main_process_port node_rank master_addr master_port deepspeed_multinode_launcher "
    "deepspeed_hostfile num_cpu_threads_per_process standalone rdzv_endpoint rdzv_backend rdzv_id".split()
)
CONFIGS = frozenset(("deepspeed", "deepspeed_config", "config", "local_rank"))
"""Options of scripts that name a config, which has another path in the emitted job."""
INTO_SETTINGS = (
    "ACCELERATE_DEEPSPEED_",
    "ACCELERATE_CONFIG_DS_FIELDS",
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    "ACCELERATE_GRADIENT_CLIPPING",
    "FSDP_",
)
"""Variables of which accelerate makes settings of the engine, which are compared."""
UNSET = {
    "ACCELERATE_DYNAMO_BACKEND": "no",
    "ACCELERATE_DYNAMO_MODE": "default",
    "ACCELERATE_DYNAMO_USE_FULLGRAPH": "false",
    "ACCELERATE_DYNAMO_USE_DYNAMIC": "false",
    "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION": "false",
}
"""What accelerate takes where the variable is not set, in small letters (of the shapes: where nothing is compiled): to
export it is to leave it out. Its launcher exports these for plain jobs alone."""
REASONED = ("chosen", "hardware", "computed")
"""Kinds of decisions that say in the lock why a value is another one than the sources'."""


@dataclass(frozen=True)
class Difference:
    """``why``: the reason that the lock gives; empty where it gives none."""

    name: str
    source: str
    emitted: str
    why: str = ""


def differences(plan: Plan, moved: Mapping[str, Decision], source: Run, emitted: Run) -> list[Difference]:
    """``source`` and ``emitted`` as they are found; both are computed for the plan's ranks and releases.
    ``moved``: what the build writes where a library reads it."""
    before, after = at_hardware(source, plan), at_hardware(emitted, plan)
    found = [
        replace(one, why=moved[one.name].reason) if one.name in moved else one for one in _settings(plan, before, after)
    ]
    found += _arguments(plan, before, after)
    if source.launch is not None and source.launch.launcher == "accelerate" == plan.launcher:
        found += _environment(plan, before, after)
    found += [
        Difference(f"refused: {one.kind}", "", one.message)
        for one in after.effective.failures
        if one.kind not in {other.kind for other in before.effective.failures}
    ]
    return found


def at_hardware(run: Run, plan: Plan) -> Run:
    """The run with the plan's ranks, reader and releases."""
    launcher = run.launch.launcher if run.launch is not None else plan.launcher
    nodes, each = plan.num_machines, plan.num_processes // plan.num_machines
    flags = {name: flag for name, flag in run.flags.items() if name not in OF_THE_MACHINE}
    origin = Origin("computed", "the hardware of both sides")
    if launcher in COUNTS:
        count = plan.num_processes if launcher == "accelerate" else each
        flags |= {name: Setting(str(one), origin) for name, one in zip(COUNTS[launcher], (nodes, count), strict=True)}
        if launcher == "accelerate" and plan.num_processes > 1 and run.accelerate is None:
            flags["multi_gpu"] = Setting(True, origin)
    if launcher == "accelerate" and nodes > 1:
        flags |= {"machine_rank": Setting("0", origin), "deepspeed_multinode_launcher": Setting("standard", origin)}
        flags |= {name: Setting(UNKNOWN, origin) for name in ("main_process_ip", "main_process_port")}
    run = replace(run, flags=flags, versions=dict(plan.versions), version_places={})
    return with_settings(run) if run.consumer == plan.consumer else with_consumer(run, plan.consumer)


def _settings(plan: Plan, source: Run, emitted: Run) -> Iterator[Difference]:
    for name, setting in source.effective.settings.items():
        if not setting.known or current_name(name) != name:
            continue  # nobody knows what the job gets; or it is compared by its name of today
        read = emitted.effective.value(name, UNKNOWN)
        if not _same(setting.value, read) and not (setting.value is None and read is UNKNOWN):
            yield Difference(name, repr(setting.value), repr(read), _why(plan, name))
    for name, setting in emitted.effective.settings.items():
        if setting.known and name not in source.effective.settings and setting.origin.kind == "file":
            yield Difference(name, "nothing", repr(setting.value), _why(plan, name) or _stated(plan, name))


def _arguments(plan: Plan, source: Run, emitted: Run) -> Iterator[Difference]:
    """Options that the script gets by the line, on either side."""
    for name in sorted({*_by_line(source), *_by_line(emitted)} - CONFIGS):
        before, after = _by_line(source).get(name), _by_line(emitted).get(name)
        if before is UNKNOWN or (name in plan.changes) or _same(before, after):
            continue
        yield Difference(f"--{name}", repr(before), repr(after))


def _by_line(run: Run) -> dict[str, Any]:
    options = run.launch.script_options if run.launch is not None else ()
    words = {one.plain: one.value for one in options}
    return {name: True if one is None else UNKNOWN if one.value is None else one.value for name, one in words.items()}


def _environment(plan: Plan, source: Run, emitted: Run) -> Iterator[Difference]:
    for name, setting in source.effective.environment.items():
        read = emitted.effective.environment.get(name)
        if not setting.known or name == "OMP_NUM_THREADS" or name.startswith(INTO_SETTINGS):
            continue
        if name == "ACCELERATE_MIXED_PRECISION" and _has_precision(plan, source, str(setting.value)):
            continue
        if read is None and UNSET.get(name) == str(setting.value).lower():
            continue
        if read is None or (read.known and str(read.value).lower() != str(setting.value).lower()):
            gives = "nothing" if read is None else repr(read.value)
            yield Difference(f"${name}", repr(setting.value), gives, "")


def _has_precision(plan: Plan, source: Run, handed: str) -> bool:
    """Whether the variable decides nothing that is not compared as a setting: under DeepSpeed the sections of its
    config decide, whatever the launcher exports, and the plan writes the one of this precision."""
    if source.effective.value("mixed_precision", UNKNOWN) is not UNKNOWN:
        return True
    written = plan.settings.get(f"{handed}.enabled")
    return plan.engine == "deepspeed" and written is not None and written.value is True


def _why(plan: Plan, name: str) -> str:
    decision = plan.changes.get(name) or plan.settings.get(name)
    if name in plan.dropped:
        return "without effect"
    return decision.reason if decision is not None and decision.kind in REASONED else ""


def _stated(plan: Plan, name: str) -> str:
    """A default that the plan writes out, where nothing was written."""
    decision = plan.settings.get(name)
    return f"stated: {decision.reason}" if decision is not None and decision.kind == "default" else ""


def _same(first: object, second: object) -> bool:
    """Pages with the line ends of Windows leave one in their last word."""
    if isinstance(first, str) and isinstance(second, str):
        return first.rstrip("\r\n") == second.rstrip("\r\n")
    return bool(first == second)
