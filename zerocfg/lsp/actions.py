"""Fixes and ignore comments as edits of the editor's texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from lsprotocol.types import (
    CodeAction,
    CodeActionKind,
    OptionalVersionedTextDocumentIdentifier,
    Range,
    TextDocumentEdit,
    TextEdit,
    WorkspaceEdit,
)
from lsprotocol.types import Diagnostic as Shown

from zerocfg.linter.add_ignores import ignores_for
from zerocfg.linter.engine import Diagnostic, real_name
from zerocfg.lsp.checking import Snapshot
from zerocfg.lsp.diagnostics import UriOf, range_of
from zerocfg.lsp.positions import lines_of
from zerocfg.source.text import Span

FIX_ALL = f"{CodeActionKind.SourceFixAll.value}.zerocfg"
Edits = dict[str, list[TextEdit]]
"""By real path."""


def wanted(only: Sequence[str] | None, kind: str) -> bool:
    """Whether the client asks for actions of a kind: for all, for this one, or for one that it belongs to."""
    return only is None or any(kind == item or kind.startswith(f"{item}.") or not item for item in only)


def at(snapshot: Snapshot, path: str, where: Range, encoding: str) -> list[Diagnostic]:
    """The findings that stand, or point, at a range of a file."""
    found = []
    for diagnostic in snapshot.diagnostics:
        spans = [span for span in (diagnostic.span, *diagnostic.related) if real_name(span.file) == path]
        if any(_overlap(range_of(span, encoding), where) for span in spans):
            found.append(diagnostic)
    return found


def _overlap(item: Range, other: Range) -> bool:
    return item.start <= other.end and other.start <= item.end


def quick_fixes(
    snapshot: Snapshot, found: Sequence[Diagnostic], context: Sequence[Shown], write: Writer
) -> Iterator[CodeAction]:
    """For each finding its fix, if that removes it, and a comment that silences it. ``context``: as it is shown."""
    for diagnostic in found:
        others = snapshot.others_after(diagnostic) if diagnostic.fix is not None else None
        if diagnostic.fix is not None and others is not None:
            remarks = [diagnostic.code]
            remarks += [] if diagnostic.fix.safe else ["unsafe: decides for you"]
            remarks += [f"then {others[0].code} in {others[0].span.file.name}"] if others else []
            yield CodeAction(
                title=f"{_capital(diagnostic.fix.description)} ({'; '.join(remarks)})",
                kind=CodeActionKind.QuickFix,
                diagnostics=_as_shown(diagnostic, context, write.encoding),
                is_preferred=(diagnostic.fix.safe and not others) or None,
                edit=write(_fix_edits(diagnostic, write.encoding)),
            )
    for diagnostic in found:
        texts = ignores_for([diagnostic]).texts
        if texts:
            before = dict.fromkeys(texts, diagnostic.span.file.source.text)
            yield CodeAction(
                title=f"Ignore {diagnostic.code} here ({diagnostic.name})",
                kind=CodeActionKind.QuickFix,
                diagnostics=_as_shown(diagnostic, context, write.encoding),
                edit=write(changed(before, texts, write.encoding)),
            )


def _as_shown(diagnostic: Diagnostic, context: Sequence[Shown], encoding: str) -> list[Shown] | None:
    """The same finding as the client holds it."""
    ranges = [range_of(span, encoding) for span in (diagnostic.span, *diagnostic.related)]
    return [item for item in context if item.code == diagnostic.code and item.range in ranges] or None


def fix_all_of(snapshot: Snapshot, path: str, write: Writer) -> WorkspaceEdit | None:
    """What `zerocfg lint --fix` would change for a file; None: nothing."""
    before, after = snapshot.fixed(path)
    edits = changed(before, after, write.encoding)
    return write(edits) if edits else None


def _fix_edits(diagnostic: Diagnostic, encoding: str) -> Edits:
    assert diagnostic.fix is not None
    found: Edits = {}
    for file, edit in diagnostic.fix.edits:
        lines = lines_of(file.source.text, encoding)
        found.setdefault(real_name(file), []).append(TextEdit(lines.range(edit.span), edit.replacement))
    return found


def changed(before: Mapping[str, str], after: Mapping[str, str], encoding: str) -> Edits:
    """The edits that lead from one set of texts to another, line by line."""
    found: Edits = {}
    for path, text in after.items():
        edits = line_edits(before[path], text, encoding)
        if edits:
            found[path] = edits
    return found


def line_edits(before: str, after: str, encoding: str) -> list[TextEdit]:
    """The edits that lead from one text to another: whole lines that differ."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    starts = [0]
    for line in old:
        starts.append(starts[-1] + len(line))
    lines = lines_of(before, encoding)
    return [
        TextEdit(lines.range(Span(starts[first], starts[last])), "".join(new[begin:end]))
        for kind, first, last, begin, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if kind != "equal"
    ]


class Writer:
    """Edits by real path as the client takes them; with the versions that they are for where it can check them."""

    def __init__(self, snapshot: Snapshot, uri_of: UriOf, encoding: str, *, versioned: bool) -> None:
        self._versions = snapshot.versions
        self._uri_of = uri_of
        self._versioned = versioned
        self.encoding = encoding

    def __call__(self, edits: Edits) -> WorkspaceEdit:
        if not self._versioned:
            return WorkspaceEdit(changes={self._uri_of(path): found for path, found in edits.items()})
        return WorkspaceEdit(
            document_changes=[
                TextDocumentEdit(
                    OptionalVersionedTextDocumentIdentifier(self._uri_of(path), self._versions.get(path)), list(found)
                )
                for path, found in edits.items()
            ]
        )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
