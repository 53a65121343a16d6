"""ZC7xx: launch lines of DeepSpeed's runner (the `deepspeed` program). torchrun's are in :mod:`torchrun`."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.counterparts import called
from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.line import all_options_seen, exported, from_option, is_page, line_fix
from zerocfg.rules.subjects import LineOfRun, line_of


@rule("ZC732", "launcher-knows-no-such-option", Severity.ERROR, line_of("torchrun", "deepspeed"))
def launcher_knows_no_such_option(started: LineOfRun) -> Iterator[Finding]:
    launcher = started.line.launcher
    for option in started.line.options:
        if _knows(launcher, option.name) or not option.name.startswith("--") or "$" in option.name:
            continue
        name = "torchrun" if launcher == "torchrun" else "the deepspeed runner"
        meant = _meant(launcher, option.plain)
        yield from_option(started.run, option).finding(
            f"{name} has no option {option.name} and stops at it", f"{name} calls it --{meant}" if meant else ""
        )


def _knows(launcher: str, option: str) -> bool:
    from zerocfg.source.launch.launchers import GRAMMARS  # most configs have no launch line of these

    return GRAMMARS[launcher].takes_value(option) is not None or GRAMMARS[launcher].is_module(option)


def _meant(launcher: str, name: str) -> str:
    """What this launcher calls an option of another one; empty where it has none."""
    names = called(name)
    own = next((item for item in names if _knows(launcher, f"--{item}")), None)
    return f"{own} (for each machine)" if own and names[own] and not names[name] else own or ""


@rule("ZC733", "device-options-exclude-each-other", Severity.ERROR, line_of("deepspeed"))
def device_options_exclude_each_other(started: LineOfRun) -> Iterator[Finding]:
    include, exclude = started.option("include", "i"), started.option("exclude", "e")
    counted, nodes = started.option("num_gpus", "num_accelerators"), started.option("num_nodes")
    chosen = include or exclude
    numbers = [option for option in (counted, nodes) if option]
    others = numbers or ([exclude] if include and exclude else [])
    if not chosen or not others:
        return
    fix = line_fix(started.run, "keep --include alone", *(option.removed() for option in others)) if include else None
    names = ", ".join(option.name for option in others)
    yield chosen.finding(
        f"{chosen.name} may not stand beside {names}: the deepspeed runner stops", f"remove {names}", others, fix
    )


@rule("ZC734", "include-without-host", Severity.ERROR, line_of("deepspeed"))
def include_without_host(started: LineOfRun) -> Iterator[Finding]:
    if started.option("hostfile", "H"):
        return
    for option in (started.option("include", "i"), started.option("exclude", "e")):
        devices = option.text
        if devices is not None and _numbers(devices):
            written = option.with_value(f"localhost:{devices}") if option.raw == devices else None
            yield option.finding(
                f'{option.name} {devices} is read as a host called "{devices}", which no hostfile knows',
                f"write {option.name} localhost:{devices}",
                fix=line_fix(started.run, "name the host", written),
            )


def _numbers(devices: str) -> bool:
    """Whether a text is a list of device numbers."""
    return devices.replace(",", "").isdecimal()


_DEFAULT_LIST = "/job/hostfile"


@rule("ZC735", "machines-without-hostfile", Severity.WARNING, line_of("deepspeed"))
def machines_without_hostfile(started: LineOfRun) -> Iterator[Finding]:
    option, file = started.option("num_nodes"), started.run.launch_file
    machines = option.count or 0
    if file is None or machines < 2:
        return
    if started.option("hostfile", "H") or not all_options_seen(started.run) or _DEFAULT_LIST in file.source.text:
        return
    yield option.finding(
        f"{machines} machines without --hostfile: the runner stops unless /job/hostfile lists them",
        "name a hostfile with a line `HOST slots=N` for each machine",
        severity=Severity.NOTE if is_page(file) else None,
    )


@rule("ZC736", "node-rank-without-ssh-missing", Severity.ERROR, line_of("deepspeed"))
def node_rank_without_ssh_missing(started: LineOfRun) -> Iterator[Finding]:
    option = started.option("no_ssh")
    if option and all_options_seen(started.run) and not started.option("node_rank"):
        yield option.finding(
            "--no_ssh needs --node_rank: the runner stops without it",
            "give --node_rank on each machine, counting from 0",
        )


@rule("ZC742", "visible-devices-dropped-by-runner", Severity.ERROR, line_of("deepspeed"))
def visible_devices_dropped_by_runner(started: LineOfRun) -> Iterator[Finding]:
    devices = exported(started.run, "CUDA_VISIBLE_DEVICES")
    if started.option("hostfile", "H") or devices is None or not _numbers(devices):
        return
    listed = devices.split(",")
    include, exclude = started.option("include", "i"), started.option("exclude", "e")
    count = started.option("num_gpus", "num_accelerators").count or None  # 0 chooses nothing
    option = started.option("include", "i", "num_gpus", "num_accelerators", "exclude", "e")
    if include.text is not None:
        same = include.text.partition(":")[2] == devices
    else:
        same = not exclude and (count is None or listed == [str(device) for device in range(count)])
    if not option or same:
        return
    fix = None
    if include.text is None and not exclude and count == len(listed) and not started.option("num_nodes"):
        fix = option.delete(f"take the devices {devices}")
    yield option.finding(
        f"the runner ignores CUDA_VISIBLE_DEVICES={devices} because {option.name} is given"
        + (f": it takes the devices {', '.join(map(str, range(count)))}" if count and include.text is None else ""),
        f"write --include localhost:{devices}, or leave {option.name} out",
        fix=fix,
    )
