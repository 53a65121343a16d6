"""ZC7xx: which hosts and devices take part in a job, and who starts it on them."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.arguments import value
from zerocfg.rules.effects import accelerate_data, under_deepspeed_launcher
from zerocfg.rules.key import Key, accelerate
from zerocfg.rules.launch.options import by_torchrun, launcher_option, listed, machines_of, number_fix, under_runner
from zerocfg.rules.line import line_option, started_by
from zerocfg.rules.subjects import in_accelerate
from zerocfg.run.model import Run

_RUNNERS = ("pdsh", "openmpi", "mvapich", "mpich", "impi", "slurm")


@rule("ZC728", "unknown-multinode-launcher", Severity.ERROR, WHOLE_RUN)
def unknown_multinode_launcher(run: Run) -> Iterator[Finding]:
    if started_by(run, "deepspeed"):
        yield from _runner_without_launcher(run)
        return
    name = "deepspeed_multinode_launcher"
    key = launcher_option(run, name)
    if not isinstance(key.value, str) or key.value.lower() in _RUNNERS or key.value in ("standard", "nossh"):
        return  # the runner does not mind capitals, accelerate does
    if not under_deepspeed_launcher(run) or machines_of(run) < 2:
        return
    torchrun = key.value.lower() in ("torchrun", "torch", "static", "standard", "default", "c10d")
    written = accelerate(run, "deepspeed_config", name)
    yield key.finding(
        f"DeepSpeed has no launcher {show(key.value)}: the job stops before it starts",
        f"write one of {', '.join(_RUNNERS)}, or standard (torchrun on each machine) or nossh",
        fix=written.replace("standard", "write standard", safe=False) if torchrun else None,
    )


def _runner_without_launcher(run: Run) -> Iterator[Finding]:
    option = line_option(run, "launcher")
    if option.text is None or option.text.lower() in _RUNNERS or line_option(run, "no_ssh"):
        return
    if line_option(run, "hostfile", "H"):
        yield option.finding(
            f"the deepspeed runner has no launcher {option.text}: it stops as soon as there are several machines",
            f"write one of {', '.join(_RUNNERS)}",
            fix=option.delete("start over pdsh, the default", safe=False),
        )


@rule("ZC729", "inclusion-filter-dropped", Severity.ERROR, in_accelerate("deepspeed_config"))
def inclusion_filter_dropped(section: Key) -> Iterator[Finding]:
    include, exclude = section["deepspeed_inclusion_filter"], section["deepspeed_exclusion_filter"]
    if include.value is None or exclude.value is None or not under_deepspeed_launcher(section.run):
        return
    if machines_of(section.run) > 1 and under_runner(section.run):
        yield include.finding(
            f"the inclusion filter {show(include.value)} is dropped because there is an exclusion filter",
            "write one of the two",
            [exclude],
            include.delete("remove the filter that is not used", safe=False),
        )


@rule("ZC730", "host-list-on-one-machine", Severity.WARNING, in_accelerate("deepspeed_config"))
def host_list_on_one_machine(section: Key) -> Iterator[Finding]:
    if not under_deepspeed_launcher(section.run) or machines_of(section.run) != 1:
        return
    for name in ("deepspeed_hostfile", "deepspeed_inclusion_filter", "deepspeed_exclusion_filter"):
        key = section[name]
        if key.value is not None and key.value != "":
            yield key.finding(
                f"`{name}: {show(key.value)}` is not read with one machine",
                "choose devices with `gpu_ids`" if "filter" in name else "write `num_machines`, or remove it",
                fix=key.delete("remove the key", safe=False),
            )


@rule("ZC731", "more-devices-than-processes", Severity.WARNING, WHOLE_RUN)
def more_devices_than_processes(run: Run) -> Iterator[Finding]:
    ids, machines = launcher_option(run, "gpu_ids"), machines_of(run)
    processes = launcher_option(run, "num_processes")
    if not isinstance(ids.value, str) or ids.value == "all" or not machines or not by_torchrun(run):
        return
    if "gpu_ids" not in accelerate_data(run) and "gpu_ids" not in run.flags:
        return
    devices, share = len(listed(ids.value)), (processes.count or 0) // machines
    if 1 <= share < devices:
        spare = devices - share == 1
        if spare and value(run, "use_vllm"):
            return  # vLLM generates on the device behind those of the processes
        yield ids.finding(
            f"{devices} devices in gpu_ids {show(ids.value)} for {share} process{'es' * (share > 1)} on each machine: "
            "the rest idles",
            f"name {share} devices, or raise num_processes",
            [processes],
            number_fix(run, "num_processes", devices * machines),
            severity=Severity.NOTE if spare and run.consumer is None and run.launch is None else None,
        )
