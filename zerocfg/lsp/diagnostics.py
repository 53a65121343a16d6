"""Findings as diagnostics of the protocol."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from lsprotocol.types import (
    CodeDescription,
    DiagnosticRelatedInformation,
    DiagnosticSeverity,
    DiagnosticTag,
    Location,
    Range,
)
from lsprotocol.types import Diagnostic as Shown

from zerocfg.linter.engine import Diagnostic, real_name
from zerocfg.lsp.checking import Snapshot
from zerocfg.lsp.keys import key_at
from zerocfg.lsp.pages import page
from zerocfg.lsp.positions import lines_of
from zerocfg.rules.api import Severity
from zerocfg.rules.place import FileSpan
from zerocfg.source.text import Place

SOURCE = "zerocfg"
_SEVERITIES = {
    Severity.ERROR: DiagnosticSeverity.Error,
    Severity.WARNING: DiagnosticSeverity.Warning,
    Severity.NOTE: DiagnosticSeverity.Information,
}
_UNREAD = frozenset(("ignored-key", "key-accelerate-ignores", "key-without-effect", "unused-ignore"))
"""Rules about what is written and read by nobody."""

UriOf = Callable[[str], str]
"""How the client calls a file, by real path."""


Rendered = dict[tuple[object, ...], Shown]
"""What was made of a finding, by all that it was made from."""


def diagnostics(
    snapshot: Snapshot,
    open_files: Collection[str],
    uri_of: UriOf,
    encoding: str,
    rendered: Rendered | None = None,
) -> dict[str, list[Shown]]:
    """What to show, by real path.

    A finding stands where `zerocfg lint` tells it. In an open file that it also speaks of there is a pointer to it, so
    that whoever types in one file sees what becomes wrong in another.

    ``rendered`` comes from the look before, and holds afterwards what this one used: of hundreds of findings an edit
    changes a few.
    """
    before = dict(rendered) if rendered else {}
    now: Rendered = {} if rendered is None else rendered
    now.clear()
    found: dict[str, list[Shown]] = {}
    for diagnostic in snapshot.diagnostics:
        file = diagnostic.span.file
        if file.path is None:
            continue
        own = snapshot.real_names[file.path]
        key = _made_from(diagnostic, uri_of, encoding)
        now[key] = before.get(key) or shown(diagnostic, uri_of, encoding)
        found.setdefault(own, []).append(now[key])
        pointed: set[str] = {own}
        for span in diagnostic.related:
            name = snapshot.real_names[span.file.path] if span.file.path is not None else ""
            if name in open_files and name not in pointed:
                pointed.add(name)
                found.setdefault(name, []).append(_pointer(diagnostic, span, uri_of, encoding))
    return found


def _made_from(diagnostic: Diagnostic, uri_of: UriOf, encoding: str) -> tuple[object, ...]:
    """Files are the same as long as nobody edits them."""
    uris = tuple(uri_of(real_name(span.file)) for span in diagnostic.related)
    words = diagnostic.code, diagnostic.severity, diagnostic.message, diagnostic.help
    return encoding, uris, *words, diagnostic.span, diagnostic.related


def shown(diagnostic: Diagnostic, uri_of: UriOf, encoding: str) -> Shown:
    """One finding at its own place."""
    related = [
        DiagnosticRelatedInformation(_location(span, uri_of, encoding), span.label or span.path or "see here")
        for span in diagnostic.related
        if span.file.path is not None
    ]
    href = page(diagnostic.code)
    return Shown(
        range=range_of(diagnostic.span, encoding),
        severity=_SEVERITIES[diagnostic.severity],
        code=diagnostic.code,
        code_description=CodeDescription(href) if href else None,
        source=SOURCE,
        message=f"{diagnostic.message}\n{diagnostic.help}" if diagnostic.help else diagnostic.message,
        tags=list(_tags(diagnostic)) or None,
        related_information=related or None,
    )


def _pointer(diagnostic: Diagnostic, span: FileSpan, uri_of: UriOf, encoding: str) -> Shown:
    """The same finding as seen from another file that it speaks of."""
    href = page(diagnostic.code)
    back = DiagnosticRelatedInformation(_location(diagnostic.span, uri_of, encoding), diagnostic.message)
    return Shown(
        range=range_of(span, encoding),
        severity=DiagnosticSeverity.Information,
        code=diagnostic.code,
        code_description=CodeDescription(href) if href else None,
        source=SOURCE,
        message=f"{diagnostic.span.file.name}:{diagnostic.span.start.line}: {diagnostic.message}",
        related_information=[back],
    )


def _tags(diagnostic: Diagnostic) -> Iterator[DiagnosticTag]:
    key = key_at(diagnostic.span.file, diagnostic.span.keys)
    facts = key.facts if key is not None else {}
    if "deprecated" in facts or "removed" in facts:
        yield DiagnosticTag.Deprecated
    elif diagnostic.name in _UNREAD or "inert" in facts:
        yield DiagnosticTag.Unnecessary


def range_of(span: FileSpan, encoding: str) -> Range:
    """The range of a span, which counts lines as `zerocfg.source.text` does."""
    lines = lines_of(span.file.source.text, encoding)
    return Range(lines.position(_offset(span, span.start)), lines.position(_offset(span, span.end)))


def _offset(span: FileSpan, place: Place) -> int:
    source = span.file.source
    bom = place.line == 1 and source.text.startswith("\ufeff")
    return source.offset(place.line - 1, place.column - 1 + bom)


def _location(span: FileSpan, uri_of: UriOf, encoding: str) -> Location:
    return Location(uri_of(real_name(span.file)), range_of(span, encoding))
