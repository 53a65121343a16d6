"""``zerocfg diff``."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from zerocfg.compare.effective_diff import Comparison, Difference, compare
from zerocfg.compare.sides import SideError, open_side
from zerocfg.compare.values import shown
from zerocfg.emit.lock import LockError
from zerocfg.run.config import AUTO
from zerocfg.run.discover import Files
from zerocfg.run.model import UNKNOWN
from zerocfg.terminal.streams import columns
from zerocfg.terminal.table import folded

if TYPE_CHECKING:
    from zerocfg.compare.sides import Side, Value

MOST_FAILURES = 5
_TITLES = {
    "setting": "settings",
    "accelerate": "accelerate.yaml",
    "exported variable": "variables that the launcher exports",
    "argument": "trainer arguments",
    "run": "run",
}


class NotComparableError(click.ClickException):
    """Something that cannot be compared or read."""

    exit_code = 2


@click.command("diff")
@click.argument("sides", nargs=-1, metavar="A B")
@click.option(
    "--releases",
    metavar="[OLD] NEW",
    help="What changes for PATHS from releases to others: deepspeed==0.16.9 deepspeed==0.19.8.",
)
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(sides: tuple[str, ...], releases: str | None, output_format: str) -> None:
    """Compare two builds, two configs or two sets of releases by what they mean to whoever reads them.

    A and B: a build (OUT/RUN, or its zerocfg.lock), an accelerate YAML, a DeepSpeed JSON, a recipe, a run of a spec
    (zerocfg.yaml:RUN) or a launch line (train.sh:3). Only values that differ are shown, each with where it comes from:
    defaults are filled in, "auto" is what it is filled with, and 5e8 is 500000000 where the reader converts it.

    With --releases, PATHS (default: the current folder) stand in the place of A and B. Shown are the findings that come
    and go, the effective settings that differ, and the keys of these files, written or left to their default, that the
    releases read differently. Without OLD these are compared with what the project pins. A library that is not named
    keeps what the project says of it.

    Exit codes: 0 the same meaning, 1 a difference, 2 wrong use or an unreadable file.
    """
    if releases is not None:
        from zerocfg.cli.commands.diff_releases import diff_releases

        raise click.exceptions.Exit(int(diff_releases(releases, sides, output_format)))
    if len(sides) != 2:
        raise click.UsageError("name two builds or configs, A and B" if len(sides) < 2 else "A and B are all there is")
    a, b = sides
    try:
        files = Files()
        found = compare(open_side(a, files), open_side(b, files))
    except (SideError, LockError) as error:
        raise NotComparableError(str(error)) from None
    click.echo(as_data(found) if output_format == "json" else folded(as_text(found), columns(sys.stdout)), nl=False)
    raise click.exceptions.Exit(0 if found.same else 1)


def as_text(found: Comparison) -> str:
    """One block a value: - A, + B."""
    lines = [f"- {found.a.name}  ({found.a.what})", f"+ {found.b.name}  ({found.b.what})"]
    group = "setting"
    for difference in found.differences:
        if difference.group != group:
            group = difference.group
            lines += ["", f"{_TITLES[group]}:"]
        lines += ["", *_block(difference)]
    lines.append("")
    if found.same:
        lines.append("the same meaning")
    for count, side in zip(found.unsaid, (found.a, found.b), strict=True):
        if count:
            s = "s" * (count > 1)
            lines.append(f"not shown: {count} default{s} or unknown value{s} only in {side.name}")
    if found.left_out:
        lines.append(f"not compared, because only one has them: {', '.join(_TITLES[name] for name in found.left_out)}")
    for mark, side in (("-", found.a), ("+", found.b)):
        lines += [f"{mark} will fail, {failure}" for failure in side.failures[:MOST_FAILURES]]
    return "\n".join(lines) + "\n"


def _block(difference: Difference) -> list[str]:
    rows = [("-", difference.a), ("+", difference.b)]
    width = max(len(_shown(value)) for _, value in rows)
    return [difference.name, *(f"  {mark} {_shown(value):<{width}}  {_origin(value)}".rstrip() for mark, value in rows)]


def _shown(value: Value | None) -> str:
    return "(not set)" if value is None else shown(value.value)


def _origin(value: Value | None) -> str:
    if value is None:
        return ""
    return f"{value.origin}; its reader fills it" if value.value == AUTO else value.origin


def as_data(found: Comparison) -> str:
    data = {
        "version": 1,
        "same": found.same,
        "a": _side(found.a, found.unsaid[0]),
        "b": _side(found.b, found.unsaid[1]),
        "differences": [
            {"key": difference.name, "of": difference.group, "a": _value(difference.a), "b": _value(difference.b)}
            for difference in found.differences
        ],
        "not_compared": found.left_out,
    }
    return json.dumps(data, indent=2) + "\n"


def _side(side: Side, unsaid: int) -> dict[str, object]:
    return {"name": side.name, "what": side.what, "not_shown": unsaid, "failures": side.failures}


def _value(value: Value | None) -> dict[str, object] | None:
    if value is None:
        return None
    if value.value is UNKNOWN:
        return {"unknown": True, "origin": value.origin}
    return {"value": _strict(value.value), "origin": value.origin}


def _strict(value: object) -> object:
    """Strict JSON has no infinity, and no dates."""
    if isinstance(value, dict):
        return {str(name): _strict(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
