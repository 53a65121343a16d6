"""``zerocfg info``: this installation, to be pasted into an issue."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import click

from zerocfg.errors import UsageError
from zerocfg.terminal.progress import Working
from zerocfg.terminal.streams import columns
from zerocfg.workspace.settings import find_settings

if TYPE_CHECKING:
    from zerocfg.environment import Environment, Library
    from zerocfg.models.hardware import HardwareProfile


@click.command("info")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(output_format: str) -> None:
    """Show this installation: Python, the training libraries installed and the releases known, compilers, compiled
    operators and stale locks, accelerators.

    Paste it into an issue. Nothing is compiled or sent anywhere; your home folder is shown as ~.
    """
    from zerocfg.environment import environment

    with Working("reading this machine"):
        found = environment()
    settings = _settings()
    text = _data(found, settings) if output_format == "json" else _text(found, settings, columns(sys.stdout))
    click.echo(text, nl=False)


def _settings() -> str | None:
    """The file of the settings that count here, or why they cannot be read."""
    try:
        source = find_settings(Path()).source
    except UsageError as error:
        return str(error)
    return _home(source) or None


def _home(path: Path | str | None) -> str:
    """A path as it is shown to others."""
    if path is None:
        return ""
    home = Path.home()
    shown = Path(path)
    return str(Path("~", shown.relative_to(home))) if shown.is_relative_to(home) else str(shown)


def _text(found: Environment, settings: str | None, width: int | None) -> str:
    operators = found.operators
    compilers = [(program.name, program.version or _home(program.path) or "not found") for program in found.programs]
    sections: dict[str, list[tuple[str, str]]] = {
        "": [
            ("zerocfg", f"{found.zerocfg} in {_home(found.folder)}"),
            ("Python", f"{found.python}, {_home(found.executable)}"),
            ("system", found.system),
            ("settings", settings or "none: no zerocfg.toml or [tool.zerocfg] here or above"),
        ],
        "libraries installed in this Python": [(library.name, _library(library)) for library in found.libraries],
        "compilers": compilers,
        "DeepSpeed's compiled operators": [
            ("folder", _home(operators.folder)),
            ("compiled", ", ".join(operators.compiled) or "none"),
            ("locks", "none" if not operators.locks else ""),
            *(("", f"{_home(lock.path)}: {_lock(lock.abandoned)}") for lock in operators.locks),
        ],
        "accelerators": _devices(found.hardware),
    }
    rows = [row for part in sections.values() for row in part]
    key = max(len(name) for name, _ in rows)
    blocks = []
    for title, part in sections.items():
        indent = "  " if title else ""
        lines = [title] if title else []
        for name, value in part:
            if name or value:
                lines += [_line(f"{indent}{name:<{key}}  ", value, width)]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _line(start: str, value: str, width: int | None) -> str:
    if width is None or len(start) + len(value) <= width:
        return (start + value).rstrip()
    return fill(
        value,
        max(width, len(start) + 20),
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _library(library: Library) -> str:
    installed = library.installed or "not installed"
    if library.newest is None:
        return installed
    known = f"{library.releases} releases known, {library.oldest} to {library.newest}"
    if library.unknown is not None:
        read_as = library.newest if library.unknown == "newer" else library.oldest
        known += f"; {library.unknown} than those, so it is read as {read_as}"
    return f"{installed} ({known})"


def _lock(abandoned: bool) -> str:
    if abandoned:
        return "stale: the process that compiled here was killed, and torch waits for this lock for ever; remove it"
    return "held by a process that compiles now"


def _devices(profile: HardwareProfile) -> list[tuple[str, str]]:
    host, device = profile.host, profile.accelerator
    rows = []
    if device.vendor == "cpu":
        rows.append(("devices", "none found: ranks compute on the CPU"))
    else:
        memory = f", {device.usable_gib:.1f} GiB each" if device.usable_gib else ""
        rows.append(("devices", f"{profile.accelerators_per_node} x {device.name}{memory}"))
    if host is not None:
        driver = [host.driver, f"CUDA {host.driver_cuda}" if host.driver_cuda else None]
        if any(driver):
            rows.append(("driver", ", ".join(part for part in driver if part)))
        memory = f", {host.planning_gib:.1f} GiB of memory" if host.planning_gib else ""
        rows.append(("CPUs", f"{host.cpus or 'unknown'}{f' ({host.cpu_model})' if host.cpu_model else ''}{memory}"))
    return rows + [("note", note) for note in profile.notes]


def _data(found: Environment, settings: str | None) -> str:
    operators = found.operators
    content = {
        "version": 1,
        "zerocfg": found.zerocfg,
        "folder": _home(found.folder),
        "python": found.python,
        "executable": _home(found.executable),
        "system": found.system,
        "settings": settings,
        "libraries": {
            library.name: {
                "installed": library.installed,
                "oldest": library.oldest,
                "newest": library.newest,
                "known": library.releases,
            }
            for library in found.libraries
        },
        "compilers": {
            program.name: {"path": _home(program.path) or None, "version": program.version}
            for program in found.programs
        },
        "operators": {
            "folder": _home(operators.folder),
            "compiled": operators.compiled,
            "locks": [{"path": _home(lock.path), "stale": lock.abandoned} for lock in operators.locks],
        },
        "hardware": found.hardware.model_dump(exclude_none=True),
    }
    return json.dumps(content, indent=2) + "\n"
