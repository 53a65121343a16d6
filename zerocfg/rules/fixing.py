"""Applying fixes: one at a time, each kept only when it removes its finding and adds none."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zerocfg.rules.engine import Diagnostic, Result
from zerocfg.source.edit import Edit, apply_edits

Texts = dict[str, str]
"""New text of a file by its real path."""

Relint = Callable[[Mapping[str, str]], Result]
"""Lint again with these texts in place of what is on disk."""


def fix_all(result: Result, relint: Relint, *, unsafe: bool = False) -> tuple[Texts, Result, int]:
    """Apply every fix that holds. Returns the changed texts, the result that remains and how many fixes were applied.

    A fix that touches two files is applied to both or to neither.
    """
    texts: Texts = {}
    tried: set[tuple[str, str, str]] = set()
    applied = 0
    while True:
        open_ones = [d for d in result.diagnostics if _fixable(d, unsafe) and _identity(d) not in tried]
        if not open_ones:
            return texts, result, applied
        # By code: a misspelt key is put right before a rule about its value adds the key a second time.
        found = min(open_ones, key=lambda d: d.code)
        tried.add(_identity(found))
        candidate = edited(found, texts)
        if candidate is None:
            continue
        after = relint(candidate)
        if _improves(result, after, found):
            texts, result, applied = candidate, after, applied + 1


def edited(diagnostic: Diagnostic, texts: Mapping[str, str]) -> Texts | None:
    """The texts after one diagnostic's fix, or None when its edits do not fit."""
    assert diagnostic.fix is not None
    by_path: dict[str, tuple[str, list[Edit]]] = {}
    for file, edit in diagnostic.fix.edits:
        if file.path is None:
            return None
        by_path.setdefault(str(file.path.resolve()), (file.source.text, []))[1].append(edit)
    try:
        return {**texts, **{path: apply_edits(text, edits) for path, (text, edits) in by_path.items()}}
    except ValueError:
        return None


def _fixable(diagnostic: Diagnostic, unsafe: bool) -> bool:
    return diagnostic.fix is not None and (diagnostic.fix.safe or unsafe)


def _identity(diagnostic: Diagnostic) -> tuple[str, str, str]:
    return (diagnostic.code, diagnostic.spot.file.name, f"{diagnostic.spot.path} {diagnostic.message}")


def _improves(before: Result, after: Result, fixed: Diagnostic) -> bool:
    old = {_identity(diagnostic) for diagnostic in before.diagnostics}
    new = {_identity(diagnostic) for diagnostic in after.diagnostics}
    places = {(d.code, d.spot.file.name, d.spot.path) for d in before.diagnostics}
    fresh = [d for d in after.diagnostics if _identity(d) not in old]
    return _identity(fixed) not in new and all((d.code, d.spot.file.name, d.spot.path) in places for d in fresh)
