"""ZC7xx: launch lines of DeepSpeed's runner (the `deepspeed` program). torchrun's are in :mod:`torchrun`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zerocfg.catalog.counterparts import called
from zerocfg.rules.api import Example, Finding, Fix, Severity, rule
from zerocfg.rules.line import (
    all_options_seen,
    at_option,
    flag,
    line_fix,
    number_of,
    option_named,
    started_by,
    text_of,
    without,
    written,
)
from zerocfg.rules.proof import crashes, shows
from zerocfg.run.model import Run
from zerocfg.source.edit import Edit
from zerocfg.source.text import Span

if TYPE_CHECKING:
    from zerocfg.source.launchers import Launcher

_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}\n'
_HOSTS = "worker-0 slots=8\nworker-1 slots=8\n"
_SOURCE = "deepspeed/launcher/runner.py@0.19.8"


def _example(options: str, hosts: bool = False, start: str = "deepspeed") -> Example:
    files = {"ds.json": _DS, "train.sh": f"{start} {options} train.py --deepspeed_config ds.json\n"}
    return Example({**files, "hostfile": _HOSTS} if hosts else files, consumer="deepspeed")


@rule(
    "ZC732",
    "launcher-knows-no-such-option",
    Severity.ERROR,
    bad=(
        _example("--num_processes 2").finds("error", "train.sh: --num_processes 2"),
        _example("--num_gpus 2", start="torchrun").finds("error", "train.sh: --num_gpus 2"),
    ),
    good=(_example("--num_gpus 2"), _example("--nproc_per_node 2", start="torchrun")),
    proof=crashes("launch", "unrecognized arguments", source=_SOURCE),
    references=(_SOURCE, "torch/distributed/run.py@2.13.0"),
)
def launcher_knows_no_such_option(run: Run) -> Iterator[Finding]:
    """An option that torchrun or the `deepspeed` runner does not have.

    The three launchers name the same things differently: accelerate says `--num_processes`, torchrun
    `--nproc_per_node`, DeepSpeed's runner `--num_gpus`. A line that was changed from one to another keeps such words,
    and the job ends in the queue's first second.

    What happens: argparse prints the launcher's usage and `error: unrecognized arguments`.

    When to ignore: your torch or DeepSpeed is so much newer or older than torch 2.13 and DeepSpeed 0.19.8 that it has
    the option.
    """
    if run.launch is None or not started_by(run, "torchrun", "deepspeed"):
        return
    launcher = run.launch.launcher
    for option in run.launch.options:
        if _knows(launcher, option.name) or not option.name.startswith("--") or "$" in option.name:
            continue
        name = "torchrun" if launcher == "torchrun" else "the deepspeed runner"
        meant = _meant(launcher, option.name.lstrip("-").replace("-", "_"))
        yield Finding(
            at_option(run, option),
            f"{name} has no option {option.name} and stops at it",
            f"{name} calls it --{meant}" if meant else "",
        )


def _knows(launcher: Launcher, option: str) -> bool:
    from zerocfg.source.launchers import GRAMMARS  # most configs have no launch line of these

    return GRAMMARS[launcher].takes_value(option) is not None or GRAMMARS[launcher].is_module(option)


def _meant(launcher: Launcher, name: str) -> str:
    """What this launcher calls an option of another one; empty where it has none."""
    names = called(name)
    own = next((one for one in names if _knows(launcher, f"--{one}")), None)
    return f"{own} (for each machine)" if own and names[own] and not names[name] else own or ""


@rule(
    "ZC733",
    "device-options-exclude-each-other",
    Severity.ERROR,
    bad=(
        _example("--include localhost:0,1 --num_gpus 2").finds(
            "error", "train.sh: --include localhost:0,1", also=("train.sh: --num_gpus 2",)
        ),
        Example(
            _example("--include localhost:0,1 --exclude localhost:2").files,
            consumer="deepspeed",
            proof=crashes("launch", "include_str and exclude_str are mutually exclusive"),
        ).finds("error", "train.sh: --include localhost:0,1", also=("train.sh: --exclude localhost:2",)),
    ),
    good=_example("--include localhost:0,1"),
    proof=crashes("launch", "Cannot specify num_nodes/gpus with include/exclude"),
    fixable=True,
    references=(_SOURCE,),
)
def device_options_exclude_each_other(run: Run) -> Iterator[Finding]:
    """`--include`, `--exclude` and `--num_gpus`/`--num_nodes` on one line of the `deepspeed` runner.

    Each of them chooses the devices by itself, and the runner refuses to combine them, although a list of devices and
    their number would agree.

    What happens: `ValueError: Cannot specify num_nodes/gpus with include/exclude`, or for the two lists
    `include_str and exclude_str are mutually exclusive.`

    Fix: where `--include` names the devices, the numbers (or `--exclude`) are taken off the line.
    """
    if not started_by(run, "deepspeed"):
        return
    include, exclude = option_named(run, "include", "i"), option_named(run, "exclude", "e")
    counted = option_named(run, "num_gpus", "num_accelerators")
    nodes = option_named(run, "num_nodes")
    numbers = [option for option in (counted, nodes) if option is not None]
    chosen = include or exclude
    if chosen is None or (exclude in (None, chosen) and not numbers):
        return
    others = numbers or ([exclude] if exclude is not None else [])
    fix = line_fix(run, "keep --include alone", without(run, *others)) if include is not None else None
    names = ", ".join(other.name for other in others)
    yield Finding(
        at_option(run, chosen),
        f"{chosen.name} may not stand beside {names}: the deepspeed runner stops",
        f"remove {names}",
        [at_option(run, other) for other in others],
        fix,
    )


@rule(
    "ZC734",
    "include-without-host",
    Severity.ERROR,
    bad=_example("--include 0,1").finds("error", "train.sh: --include 0,1", "0,1", "0,1", "0,1"),
    good=_example("--include localhost:0,1"),
    proof=crashes("launch", "Hostname '0,1' not found in hostfile"),
    fixable=True,
    references=(_SOURCE,),
)
def include_without_host(run: Run) -> Iterator[Finding]:
    """`--include` or `--exclude` of the `deepspeed` runner lists devices without the host they belong to.

    The runner's lists read `HOST:DEVICE,DEVICE`; on one machine the host is called localhost. Bare numbers look like
    CUDA_VISIBLE_DEVICES but are taken for the name of a host.

    What happens: `ValueError: Hostname '0,1' not found in hostfile`.

    Fix: writes `localhost:` before the numbers, which holds for a job on one machine.
    """
    if not started_by(run, "deepspeed") or flag(run, "hostfile", "H") is not None:
        return
    for name in (("include", "i"), ("exclude", "e")):
        option, devices = option_named(run, *name), text_of(run, *name)
        if option is None or devices is None or not devices.replace(",", "").isdecimal():
            continue
        fix = None
        text = written(run, option)
        if text is not None and run.launch_file is not None and option.value is not None:
            start = option.value.span.start
            if run.launch_file.source.text[start : option.value.span.end] == devices:
                edit = Edit(Span(start, start), "localhost:")
                fix = Fix("name the host", ((run.launch_file, edit),), safe=False)
        yield Finding(
            at_option(run, option),
            f'{option.name} {devices} is read as a host called "{devices}", which no hostfile knows',
            f"write {option.name} localhost:{devices}",
            fix=fix,
        )


@rule(
    "ZC735",
    "machines-without-hostfile",
    Severity.ERROR,
    bad=_example("--num_nodes 2 --num_gpus 8").finds("error", "train.sh: --num_nodes 2", 2),
    good=_example("--hostfile hostfile --num_nodes 2 --num_gpus 8", hosts=True),
    proof=crashes("launch", "Num nodes is >1 but no extra nodes available via hostfile"),
    references=(_SOURCE,),
)
def machines_without_hostfile(run: Run) -> Iterator[Finding]:
    """`--num_nodes` above 1 for the `deepspeed` runner without a hostfile.

    The number only takes the first hosts of a list, and without the list there is this machine alone. `--no_ssh`
    does not change that.

    What happens: `ValueError: Num nodes is >1 but no extra nodes available via hostfile`.

    When to ignore: the machines have a list at `/job/hostfile`, where the runner looks by default.
    """
    machines = number_of(run, "num_nodes")
    option = option_named(run, "num_nodes")
    if not started_by(run, "deepspeed") or machines is None or machines < 2 or option is None:
        return
    if flag(run, "hostfile", "H") is not None or not all_options_seen(run):
        return
    yield Finding(
        at_option(run, option),
        f"{machines} machines without --hostfile: the runner stops unless /job/hostfile lists them",
        "name a hostfile with a line `HOST slots=N` for each machine",
    )


@rule(
    "ZC736",
    "node-rank-without-ssh-missing",
    Severity.ERROR,
    bad=_example("--hostfile hostfile --no_ssh", hosts=True).finds("error", "train.sh: --no_ssh", 0),
    good=_example("--hostfile hostfile --no_ssh --node_rank 1 --master_addr 10.0.0.1", hosts=True),
    proof=crashes("launch", "Launching training without ssh, but --node_rank is not set correctly"),
    references=(_SOURCE,),
)
def node_rank_without_ssh_missing(run: Run) -> Iterator[Finding]:
    """`--no_ssh` for the `deepspeed` runner without `--node_rank`.

    Without ssh the line is started on every machine by something else, and the runner cannot know on which of them
    it is.

    What happens: `AssertionError: Launching training without ssh, but --node_rank is not set correctly.`
    """
    option = option_named(run, "no_ssh")
    if not started_by(run, "deepspeed") or option is None or not all_options_seen(run):
        return
    if flag(run, "node_rank") is None:
        yield Finding(
            at_option(run, option),
            "--no_ssh needs --node_rank: the runner stops without it",
            "give --node_rank on each machine, counting from 0",
        )


@rule(
    "ZC742",
    "visible-devices-dropped-by-runner",
    Severity.ERROR,
    bad=_example("--num_gpus 2", start="CUDA_VISIBLE_DEVICES=2,3 deepspeed").finds(
        "error", "train.sh: --num_gpus 2", "2,3", 0, 1, "2,3"
    ),
    good=_example("--include localhost:2,3"),
    proof=shows("launch", {"launch.world": ({"localhost": [0, 1]}, {"localhost": [2, 3]})}),
    fixable=True,
    references=(_SOURCE,),
)
def visible_devices_dropped_by_runner(run: Run) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES before a `deepspeed` line that chooses devices by its own options.

    The job then trains on devices that somebody else may be using, while the ones that were set aside for it idle.

    What happens: the runner removes the variable and prints `Detected VISIBLE_DEVICES=2,3 but ignoring it because one
    or several of --include/--exclude/--num_gpus/--num_nodes cl args were used`; `--num_gpus 2` means devices 0 and 1.

    Fix: takes `--num_gpus` off the line where it repeats how many devices the variable names; the runner then takes
    those devices.

    When to ignore: the runner's own choice of devices is the right one; then unset the variable.
    """
    if not started_by(run, "deepspeed") or flag(run, "hostfile", "H") is not None:
        return
    visible = run.environment.get("CUDA_VISIBLE_DEVICES")
    devices = visible.value if visible is not None else None
    if not isinstance(devices, str) or not devices.replace(",", "").isdecimal():
        return
    listed = devices.split(",")
    include, exclude = text_of(run, "include", "i"), flag(run, "exclude", "e")
    count = number_of(run, "num_gpus", "num_accelerators") or None  # 0 chooses nothing
    option = option_named(run, "include", "i", "num_gpus", "num_accelerators", "exclude", "e")
    if option is None:
        return
    if include is not None:
        same = include.partition(":")[2] == devices
    else:
        same = exclude is None and count is not None and listed == [str(device) for device in range(count)]
    if same or (include is None and exclude is None and count is None):
        return
    fix = None
    if include is None and exclude is None and count == len(listed) and flag(run, "num_nodes") is None:
        fix = line_fix(run, f"take the devices {devices}", without(run, option), safe=True)
    yield Finding(
        at_option(run, option),
        f"the runner ignores CUDA_VISIBLE_DEVICES={devices} because {option.name} is given"
        + (f": it takes the devices {', '.join(map(str, range(count)))}" if count and include is None else ""),
        f"write --include localhost:{devices}, or leave {option.name} out",
        fix=fix,
    )


RULES = (
    launcher_knows_no_such_option,
    device_options_exclude_each_other,
    include_without_host,
    machines_without_hostfile,
    node_rank_without_ssh_missing,
    visible_devices_dropped_by_runner,
)
