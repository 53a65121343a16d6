"""The outputs of a report: standard output, files, or several at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zerocfg.record import record
from zerocfg.report.formats import FORMATS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


@record(frozen=True)
class Output:
    """One report. ``file`` None: standard output."""

    format: str
    file: Path | None = None


class OutputType(click.ParamType):  # type: ignore[type-arg]
    """``FORMAT`` or ``FORMAT=FILE``."""

    name = "format"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Output:
        if isinstance(value, Output):
            return value
        name, equals, file = str(value).partition("=")
        if name not in FORMATS:
            self.fail(f"'{name}' is none of {', '.join(FORMATS)}", param, ctx)
        if equals and not file:
            self.fail(f"'{value}' names no file behind the =", param, ctx)
        return Output(name, Path(file) if file else None)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in FORMATS if name.startswith(incomplete)]

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "FORMAT[=FILE]"


def outputs(chosen: Sequence[Output], file: Path | None) -> list[Output]:
    """What is written where. ``file`` is that of --output-file. Raises click.UsageError when two go to one place."""
    found = list(chosen) or [Output("full")]
    if file is not None:
        unplaced = [at for at, output in enumerate(found) if output.file is None]
        if len(unplaced) != 1:
            raise click.UsageError("--output-file is for one --output-format without a file of its own")
        found[unplaced[0]] = Output(found[unplaced[0]].format, file)
    places = [output.file for output in found]
    for place in places:
        if places.count(place) > 1:
            where = f"'{place}'" if place else "standard output"
            raise click.UsageError(f"two reports cannot both go to {where}; write --output-format FORMAT=FILE")
    return found


def write(file: Path, text: str) -> None:
    """Write a report, and make its folder. Raises click.ClickException (exit code 2) when that cannot be done."""
    from zerocfg.source.write import write_atomic

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise click.ClickException(f"'{file}' cannot be written: {error.strerror or error}") from None
