"""ZC7xx: which hosts and devices take part in a job, and who starts it on them."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import accelerate_data, accelerate_section, under_deepspeed_launcher
from zerocfg.rules.fixes import edited
from zerocfg.rules.launch.machines import by_torchrun, is_count, number_fix, option, place_of, under_runner
from zerocfg.rules.line import (
    as_count,
    at_option,
    line_fix,
    option_named,
    started_by,
    text_of,
    without,
)
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.source.edit import delete_entry, replace_value

_RUNNERS = ("pdsh", "openmpi", "mvapich", "mpich", "impi", "slurm")


@rule("ZC728", "unknown-multinode-launcher", Severity.ERROR)
def unknown_multinode_launcher(run: Run) -> Iterator[Finding]:
    if started_by(run, "deepspeed"):
        word, named = text_of(run, "launcher"), option_named(run, "launcher")
        if word is None or named is None or word.lower() in _RUNNERS or option_named(run, "no_ssh") is not None:
            return
        if option_named(run, "hostfile", "H") is None:
            return
        yield Finding(
            at_option(run, named),
            f"the deepspeed runner has no launcher {word}: it stops as soon as there are several machines",
            f"write one of {', '.join(_RUNNERS)}",
            fix=line_fix(run, "start over pdsh, the default", without(run, named)),
        )
        return
    word = option(run, "deepspeed_multinode_launcher")
    if not isinstance(word, str) or word.lower() in _RUNNERS or word in ("standard", "nossh"):
        return  # the runner does not mind capitals, accelerate does
    if not under_deepspeed_launcher(run) or not is_count(option(run, "num_machines"), 2):
        return
    location, related = place_of(run, "deepspeed_multinode_launcher")
    fix = None
    if word.lower() in ("torchrun", "torch", "static", "standard", "default", "c10d"):
        fix = _section_fix(run, "deepspeed_multinode_launcher", "standard")
    yield Finding(
        location,
        f"DeepSpeed has no launcher {show(word)}: the job stops before it starts",
        f"write one of {', '.join(_RUNNERS)}, or standard (torchrun on each machine) or nossh",
        related,
        fix,
    )


def _section_fix(run: Run, name: str, text: str) -> Fix | None:
    if name not in accelerate_section(run):
        return None
    path = ("deepspeed_config", name)
    return edited(replace_value, run.accelerate, path, text, why=f"write {text}", safe=False)


@rule("ZC729", "inclusion-filter-dropped", Severity.ERROR)
def inclusion_filter_dropped(run: Run) -> Iterator[Finding]:
    section = accelerate_section(run)
    include, exclude = section.get("deepspeed_inclusion_filter"), section.get("deepspeed_exclusion_filter")
    if run.accelerate is None or include is None or exclude is None or not under_deepspeed_launcher(run):
        return
    if not is_count(option(run, "num_machines"), 2) or not under_runner(run):
        return
    path = ("deepspeed_config", "deepspeed_inclusion_filter")
    yield Finding(
        Location(run.accelerate, path),
        f"the inclusion filter {show(include)} is dropped because there is an exclusion filter",
        "write one of the two",
        [Location(run.accelerate, ("deepspeed_config", "deepspeed_exclusion_filter"))],
        edited(delete_entry, run.accelerate, path, why="remove the filter that is not used", safe=False),
    )


@rule("ZC730", "host-list-on-one-machine", Severity.WARNING)
def host_list_on_one_machine(run: Run) -> Iterator[Finding]:
    if run.accelerate is None or not under_deepspeed_launcher(run):
        return
    machines = option(run, "num_machines")
    if machines is UNKNOWN or (machines is not None and as_count(machines) != 1):
        return
    for name in ("deepspeed_hostfile", "deepspeed_inclusion_filter", "deepspeed_exclusion_filter"):
        value = accelerate_section(run).get(name)
        if value is None or value == "":
            continue
        path = ("deepspeed_config", name)
        yield Finding(
            Location(run.accelerate, path),
            f"`{name}: {show(value)}` is not read with one machine",
            "choose devices with `gpu_ids`" if "filter" in name else "write `num_machines`, or remove it",
            fix=edited(delete_entry, run.accelerate, path, why="remove the key", safe=False),
        )


@rule("ZC731", "more-devices-than-processes", Severity.WARNING)
def more_devices_than_processes(run: Run) -> Iterator[Finding]:
    ids, processes = option(run, "gpu_ids"), as_count(option(run, "num_processes"))
    machines = option(run, "num_machines")
    machines = 1 if machines is None else as_count(machines)
    if not isinstance(ids, str) or ids == "all" or processes is None or processes < 1 or machines is None:
        return
    if not by_torchrun(run) or machines < 1:
        return
    if "gpu_ids" not in accelerate_data(run) and "gpu_ids" not in run.flags:
        return
    listed = [part for part in ids.split(",") if part.strip()]
    share = processes // machines
    if 1 <= share < len(listed):
        location, related = place_of(run, "gpu_ids")
        yield Finding(
            location,
            f"{len(listed)} devices in gpu_ids {show(ids)} for {share} process{'es' * (share > 1)} on each machine: "
            "the rest idles",
            f"name {share} devices, or raise num_processes",
            [*related, place_of(run, "num_processes")[0]],
            number_fix(run, "num_processes", len(listed) * machines),
        )
