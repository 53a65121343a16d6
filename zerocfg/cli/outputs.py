"""The outputs of a report: standard output, files, or several at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zerocfg.errors import UsageError
from zerocfg.record import record


@record(frozen=True)
class Output:
    """One report. ``file`` None: standard output."""

    format: str
    file: Path | None = None


def outputs(chosen: Sequence[Output], file: Path | None) -> list[Output]:
    """What is written where. ``file`` is that of --output-file. Raises UsageError when two go to one place."""
    found = list(chosen) or [Output("full")]
    if file is not None:
        unplaced = [at for at, output in enumerate(found) if output.file is None]
        if len(unplaced) != 1:
            raise UsageError("--output-file is for one --output-format without a file of its own")
        found[unplaced[0]] = Output(found[unplaced[0]].format, file)
    places = [output.file for output in found]
    for place in places:
        if places.count(place) > 1:
            where = f"'{place}'" if place else "standard output"
            raise UsageError(f"two reports cannot both go to {where}; write --output-format FORMAT=FILE")
    return found


def write(file: Path, text: str) -> None:
    """Write a report, and make its folder. Raises click.ClickException (exit code 2) when that cannot be done."""
    from zerocfg.source.disk import check_inside
    from zerocfg.source.write import write_atomic

    try:
        check_inside(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        from click import ClickException

        raise ClickException(f"'{file}' cannot be written: {error.strerror or error}") from None
