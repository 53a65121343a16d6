"""A page for each command, written from its own help."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from website.keys import escaped
from zerocfg.cli.bounded import bounded
from zerocfg.cli.main import COMMANDS, EXAMPLES

ROOT = Path(__file__).resolve().parent.parent
MORE = {
    "init": ("first-commit.md", "spec.md"),
    "lint": ("first-steps.md", "settings.md", "ignoring.md", "ci.md"),
    "plan": ("memory.md", "choosing-a-stage.md"),
    "build": ("spec.md", "targets.md", "lock.md"),
    "smoke": ("smoke.md",),
    "report": ("report.md",),
    "gate": ("gate.md", "ci.md"),
    "check-resume": ("resume.md",),
    "explain": ("concepts.md",),
    "diff": ("upgrading.md",),
    "migrate": ("upgrading.md",),
    "convert": ("converting.md",),
    "rules": ("rules/index.md", "life-cycle.md"),
    "probe": ("hardware.md",),
    "preflight": ("preflight.md", "hardware.md"),
    "info": (),
    "schema": ("editors.md",),
    "lsp": ("lsp.md", "editors.md"),
    "completion": (),
}
"""The pages that say more."""


def command_pages() -> dict[str, str]:
    """Path below ``commands/`` -> page."""
    return {f"{name}.md": _page(name) for name in COMMANDS}


def listed() -> str:
    """Links to the pages, for the page of all commands."""
    rows = [f"| [`zerocfg {name}`](commands/{name}.md) | {said} |" for name, said in COMMANDS.items()]
    return "\n".join(["", "| command | what it does |", "|---|---|", *rows, ""])


def _page(name: str) -> str:
    module: Any = import_module(f"zerocfg.cli.commands.{name.replace('-', '_')}")
    command = bounded(module.command)
    context = click.Context(command, info_name=name, help_option_names=["-h", "--help"])
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    lines = [f"# zerocfg {name}", "", *(line for text in paragraphs for line in (escaped(" ".join(text.split())), ""))]
    usage = " ".join(["zerocfg", name, *command.collect_usage_pieces(context)])
    lines += ["```", usage, "```", "", "For example:", "", "```bash", EXAMPLES[name], "```", ""]
    lines += ["## Options", "", "| option | meaning |", "|---|---|"]
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            option, meaning = (" ".join(part.split()) for part in record)
            meaning = escaped(meaning).replace("|", "\\|")
            lines.append(f"| `{option}` | {meaning} |")  # a pipe in code separates no cells
    more = ", ".join(f"[{_title(page)}](../{page})" for page in MORE[name])
    lines += ["", f"More: {more}, [all commands](../commands.md)." if more else "[All commands](../commands.md).", ""]
    return "\n".join(lines)


def _title(page: str) -> str:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return next(line for line in text.splitlines() if line.startswith("# ")).removeprefix("# ")
