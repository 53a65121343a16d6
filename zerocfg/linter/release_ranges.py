"""In which releases of its library each finding holds: `zerocfg lint --all-releases`.

The run of a finding is linted again with every known release of the library that reads the finding's file. What a rule
says without asking for releases counts as far back as its bad examples showed it (`catalog/rule_outcomes.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from zerocfg.catalog.history import histories
from zerocfg.catalog.rule_outcomes import rule_outcomes
from zerocfg.catalog.schema import schema_folder
from zerocfg.catalog.versions import release
from zerocfg.linter.engine import Diagnostic, findings_of_each
from zerocfg.linter.release_range import ReleaseRange
from zerocfg.linter.selection import Selection
from zerocfg.rulebook import older_releases
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.place import FileSpan, file_span
from zerocfg.rules.registry import find
from zerocfg.rules.release_scope import library_of
from zerocfg.run.config import VERSIONS
from zerocfg.run.model import Run
from zerocfg.run.resolve_settings import with_settings

_READERS = {"deepspeed": "deepspeed", "accelerate": "accelerate", "recipe": "transformers"}
"""Kind of file -> the library that reads it."""


def with_release_ranges(diagnostics: Sequence[Diagnostic], runs: Sequence[Run]) -> list[Diagnostic]:
    """The findings with their releases, where these can be told."""
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        by_name.setdefault(run.name, []).append(run)
    wanted: dict[tuple[str, str], set[str]] = {}
    for diagnostic in diagnostics:
        library = _library(diagnostic)
        if library is not None:
            wanted.setdefault((diagnostic.run, library), set()).add(diagnostic.code)
    holds: dict[tuple[object, ...], set[str]] = {}
    for (name, library), codes in wanted.items():
        for run in by_name.get(name, ()):
            for at, found in zip(_releases(library), _found(run, library, codes), strict=True):
                for key in found:
                    holds.setdefault((name, *key), set()).add(at)
    return [_with(diagnostic, holds) for diagnostic in diagnostics]


def _found(run: Run, library: str, codes: set[str]) -> Iterator[set[tuple[object, ...]]]:
    """The findings of the run with each known release of the library."""
    pinned = (
        with_settings(replace(run, versions={library: f"=={at}"}, version_places={})) for at in _releases(library)
    )
    for found in findings_of_each(pinned, Selection(select=tuple(codes))):
        yield {(rule.code, *_place(file_span(finding.location))) for rule, finding in found}


def _with(diagnostic: Diagnostic, holds: Mapping[tuple[object, ...], set[str]]) -> Diagnostic:
    library = _library(diagnostic)
    if library is None:
        return diagnostic
    known = _releases(library)
    since = _known_from(diagnostic.code, library, known)
    start = known.index(since) if since is not None else len(known)
    found = holds.get((diagnostic.run, diagnostic.code, *_place(diagnostic.span)), set())
    parts: list[tuple[str, str]] = []
    for at, name in enumerate(known):
        if at < start or name not in found:
            continue
        follows = parts and known.index(parts[-1][1]) == at - 1
        parts[-1:] = [(parts[-1][0], name)] if follows else [*parts[-1:], (name, name)]
    return replace(diagnostic, releases=ReleaseRange(library, tuple(parts), since or known[-1], known))


def _library(diagnostic: Diagnostic) -> str | None:
    """The library whose releases decide; None where the rule is about zerocfg, or compares releases by itself."""
    rule = find(diagnostic.code)
    if rule is None or rule.package or page_of(rule).proof.status == "self" or "versions" in rule.needs:
        return None
    library = library_of(rule.versions) or _READERS.get(diagnostic.span.file.kind, "")
    return library if _releases(library) else None


@cache
def _releases(library: str) -> tuple[str, ...]:
    """Every known release, oldest first; empty where there is no history."""
    if not (schema_folder() / "releases" / f"{library}.json").is_file() or library not in VERSIONS:
        return ()
    return tuple(histories(library).names)


def _known_from(code: str, library: str, known: tuple[str, ...]) -> str | None:
    """The oldest release of which it is known what a rule does there: what the histories or the rule say of every
    release, else as far back as its bad examples show the claim; today's alone where they were not played."""
    rule = find(code)
    if rule is None:
        return known[-1]
    if rule.versions or rule.histories:
        return known[0]
    since = older_releases.since(rule)
    if since is None:
        return known[-1]
    at = release(rule_outcomes().sets[since].get(library, VERSIONS[library]))
    return next((name for name in known if release(name) >= at), known[-1])


def _place(where: FileSpan) -> tuple[object, ...]:
    return where.file.name, where.start, where.path
