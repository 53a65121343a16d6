"""What ``zerocfg build`` prints."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from zerocfg.cli.screens.plan_table import compared
from zerocfg.emit.values import one_line
from zerocfg.run.discover import display_name
from zerocfg.terminal.streams import colour, columns
from zerocfg.terminal.table import Column, folded, table

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.emit.files import Emitted
    from zerocfg.linter.engine import Result
    from zerocfg.resolve.build import BuildResult
    from zerocfg.resolve.plan import Problem

# Keys of the table; the lock holds all of them.
_SHOWN = (
    "engine",
    "num_processes",
    "num_machines",
    "mixed_precision",
    "zero_optimization.stage",
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
)

_COLUMNS = (Column(hangs=32), Column(least=12), Column(least=24))


def finished(emitted: list[Emitted], written: list[Path], output_format: str) -> str:
    """The values of each run with their reasons, and the files written."""
    names = [display_name(path) for path in written]
    if output_format == "json":
        runs = [
            {
                "run": item.plan.name,
                "settings": {
                    name: {"value": plain, "reason": decision.reason, "kind": decision.kind}
                    for name, decision in sorted(item.plan.settings.items())
                    for plain in [_json(decision.value)]
                },
                "notes": item.plan.notes,
            }
            for item in emitted
        ]
        return json.dumps({"version": 1, "runs": runs, "files": names}, indent=2) + "\n"
    text = ""
    width = columns(sys.stdout)
    for item in emitted:
        text += f"{item.plan.name}: {item.plan.consumer} on {item.plan.hardware}\n{_table(item, width)}"
        text += compared(item.plan.considered, width=width)
        text += folded("".join(f"  note: {note}\n" for note in item.plan.notes), width) + "\n"
    return text + "".join(f"wrote {name}\n" for name in names)


def _table(item: Emitted, width: int | None) -> str:
    settings = item.plan.settings
    fsdp = [name for name in item.plan.accelerate if name.startswith("fsdp_config.")]
    names = [name for name in dict.fromkeys((*_SHOWN, *item.plan.deepspeed, *fsdp)) if name in settings]
    rows = [(name, json.dumps(_json(settings[name].value)), one_line(settings[name].reason)) for name in names]
    return "".join(f"{line}\n" for line in table(_COLUMNS, rows, width))


def _json(value: object) -> object:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def problems(built: list[BuildResult], spec: str, output_format: str) -> str:
    """Why runs do not resolve."""
    if output_format == "json":
        rows = [
            {
                "run": build_result.name,
                "key": problem.key,
                "message": problem.message,
                "help": problem.help,
                "place": str(problem.place or ""),
            }
            for build_result in built
            for problem in build_result.problems
        ]
        return json.dumps({"version": 1, "problems": rows}, indent=2) + "\n"
    runs: dict[Problem, list[str]] = {}
    for build_result in built:
        for problem in dict.fromkeys(build_result.problems):
            runs.setdefault(problem, []).append(build_result.name)
    text = ""
    for problem, names in runs.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        text += f"{problem.place or spec}: run {names[0]}{more}: {problem.key}: {problem.message}\n"
        text += f"  {problem.help}\n" if problem.help else ""
    return text


def stopped(result: Result, output_format: str) -> str:
    """Findings that end a build, shown like lint shows them."""
    if output_format == "json":
        from zerocfg.report.json_format import render_json

        return render_json(result)
    from zerocfg.report.full import render_full

    return render_full(result, colour("auto", sys.stdout), columns(sys.stdout))
