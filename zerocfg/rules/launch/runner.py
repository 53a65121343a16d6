"""ZC7xx: launch lines of DeepSpeed's runner (the `deepspeed` program). torchrun's are in :mod:`torchrun`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zerocfg.catalog.counterparts import called
from zerocfg.rules.api import Finding, Fix, Severity, rule
from zerocfg.rules.line import (
    all_options_seen,
    at_option,
    flag,
    is_page,
    line_fix,
    number_of,
    option_named,
    started_by,
    text_of,
    without,
    written,
)
from zerocfg.run.model import Run
from zerocfg.source.edit import Edit
from zerocfg.source.text import Span

if TYPE_CHECKING:
    from zerocfg.source.launch.launchers import Launcher


@rule("ZC732", "launcher-knows-no-such-option", Severity.ERROR)
def launcher_knows_no_such_option(run: Run) -> Iterator[Finding]:
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
    from zerocfg.source.launch.launchers import GRAMMARS  # most configs have no launch line of these

    return GRAMMARS[launcher].takes_value(option) is not None or GRAMMARS[launcher].is_module(option)


def _meant(launcher: Launcher, name: str) -> str:
    """What this launcher calls an option of another one; empty where it has none."""
    names = called(name)
    own = next((one for one in names if _knows(launcher, f"--{one}")), None)
    return f"{own} (for each machine)" if own and names[own] and not names[name] else own or ""


@rule("ZC733", "device-options-exclude-each-other", Severity.ERROR)
def device_options_exclude_each_other(run: Run) -> Iterator[Finding]:
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


@rule("ZC734", "include-without-host", Severity.ERROR)
def include_without_host(run: Run) -> Iterator[Finding]:
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


_DEFAULT_LIST = "/job/hostfile"


@rule("ZC735", "machines-without-hostfile", Severity.WARNING)
def machines_without_hostfile(run: Run) -> Iterator[Finding]:
    machines = number_of(run, "num_nodes")
    option = option_named(run, "num_nodes")
    if not started_by(run, "deepspeed") or machines is None or machines < 2 or option is None:
        return
    if flag(run, "hostfile", "H") is not None or not all_options_seen(run):
        return
    if run.launch_file is not None and _DEFAULT_LIST in run.launch_file.source.text:
        return
    yield Finding(
        at_option(run, option),
        f"{machines} machines without --hostfile: the runner stops unless /job/hostfile lists them",
        "name a hostfile with a line `HOST slots=N` for each machine",
        severity=Severity.NOTE if run.launch_file is not None and is_page(run.launch_file) else None,
    )


@rule("ZC736", "node-rank-without-ssh-missing", Severity.ERROR)
def node_rank_without_ssh_missing(run: Run) -> Iterator[Finding]:
    option = option_named(run, "no_ssh")
    if not started_by(run, "deepspeed") or option is None or not all_options_seen(run):
        return
    if flag(run, "node_rank") is None:
        yield Finding(
            at_option(run, option),
            "--no_ssh needs --node_rank: the runner stops without it",
            "give --node_rank on each machine, counting from 0",
        )


@rule("ZC742", "visible-devices-dropped-by-runner", Severity.ERROR)
def visible_devices_dropped_by_runner(run: Run) -> Iterator[Finding]:
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
