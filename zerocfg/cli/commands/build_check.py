"""What ``zerocfg build --check`` prints: whether the files on disk are what the sources give."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from zerocfg.compare.check_outputs import FILE_STATES, FileState, OutputCheck, check_run, gone_runs
from zerocfg.compare.values import ABSENT
from zerocfg.emit.lock import LockError
from zerocfg.run.discover import display_name

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.compare.lock_diff import Change
    from zerocfg.emit.files import Emitted

_STATES = {
    "not built": "is not there yet",
    "gone": "is a build of a run that the spec no longer has",
    "differs": "is not what the sources give",
}


class LockUnreadableError(click.ClickException):
    """A lock that this zerocfg cannot read."""

    exit_code = 2


def check_outputs(emitted: list[Emitted], spec: Path, out: Path, only: str | None, output_format: str) -> int:
    """Print how the files below ``out`` differ from what would be built. 0: they do not; 1: they do."""
    try:
        found = [check_run(item) for item in emitted]
    except LockError as error:
        raise LockUnreadableError(str(error)) from None
    if only is None:
        names = {item.plan.name for item in emitted}
        found += gone_runs(out, spec.resolve().parent, spec.name, names)
    again = f"zerocfg build {display_name(spec)} -o {display_name(out)}"
    click.echo(_data(found) if output_format == "json" else _text(found, again, out), nl=False)
    return int(any(output_check.state != "up to date" for output_check in found))


def _text(found: list[OutputCheck], again: str, out: Path) -> str:
    differing = [output_check for output_check in found if output_check.state != "up to date"]
    if not differing:
        return f"up to date: {len(found)} run{'s' * (len(found) != 1)} in {display_name(out)}\n"
    text = "\n".join(map(_run, differing))
    advice = []
    if any(state.state == "edited" for output_check in differing for state in output_check.files):
        advice.append("An edit by hand belongs into the sources; --force replaces it.")
    if any(output_check.state != "gone" for output_check in differing):
        advice.append(f"To write them again: {again}")
    if any(output_check.state == "gone" for output_check in differing):
        advice.append("Delete the folders of runs that are gone; zerocfg build leaves them alone.")
    return text + "".join(f"\n{line}" for line in advice) + "\n"


def _run(output_check: OutputCheck) -> str:
    lines = [f"{output_check.name}: {display_name(output_check.folder)} {_STATES[output_check.state]}"]
    said = [change for change in output_check.changes if change.said]
    lines += [f"  {change}" for change in said or output_check.changes]
    if said and len(said) < len(output_check.changes):
        count = len(output_check.changes) - len(said)
        lines.append(f"  and {count} default{'s' * (count > 1)} that nobody sets come or go with that")
    follow = []
    for state in output_check.files:
        if output_check.changes and state.state == "outdated":
            follow.append(state.name)
        else:
            lines += _file(state)
    if follow:
        lines.append(f"  out of date with that: {', '.join(sorted(follow))}")
    if output_check.sources:
        lines.append(f"  changed since it was built: {', '.join(output_check.sources)}")
    return "\n".join(lines) + "\n"


def _file(state: FileState) -> list[str]:
    lines = [f"  {state.name} {FILE_STATES[state.state]}"]
    return lines + [f"    {detail}" for detail in state.details]


def _data(found: list[OutputCheck]) -> str:
    rows = [
        {
            "run": output_check.name,
            "folder": display_name(output_check.folder),
            "state": output_check.state,
            "changes": [_change(change) for change in output_check.changes],
            "files": [{"name": file.name, "state": file.state, "details": file.details} for file in output_check.files],
            "sources": output_check.sources,
        }
        for output_check in found
    ]
    return json.dumps({"version": 1, "runs": rows}, indent=2) + "\n"


def _change(change: Change) -> dict[str, object]:
    row: dict[str, object] = {"key": change.row.name, "of": change.row.group}
    if change.old is not ABSENT:
        row["old"] = change.old
    if change.new is not ABSENT:
        row["new"] = change.new
    row["because"] = change.because
    row["inputs"] = {name: {"old": old, "new": new} for name, (old, new) in change.inputs.items()}
    return row
