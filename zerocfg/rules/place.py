"""A symbolic place made concrete."""

from __future__ import annotations

from zerocfg.record import record
from zerocfg.rules.api import Location
from zerocfg.run.model import SourceFile
from zerocfg.source.foreign import one_line
from zerocfg.source.node import Path, dotted
from zerocfg.source.text import Place


@record(frozen=True, slots=True)
class FileSpan:
    """A place made concrete: name of the file, key path, start and end as an editor shows them."""

    file: SourceFile
    path: str
    start: Place
    end: Place
    label: str = ""
    keys: Path = ()


def file_span(location: Location) -> FileSpan:
    """Line and column of a symbolic place."""
    span = location.concrete()
    source = location.file.source
    start = source.place(span.start)
    end = max(start, source.place(span.end))
    return FileSpan(location.file, dotted(location.path), start, end, one_line(location.label), location.path)
