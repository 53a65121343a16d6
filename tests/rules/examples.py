"""Runs out of the examples that rules carry."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from zerocfg.linter.engine import Result, lint_runs
from zerocfg.linter.fixing import fix_all
from zerocfg.linter.selection import Selection
from zerocfg.resolve.facts import with_facts
from zerocfg.rulebook.example import Expected
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.releases import with_versions
from zerocfg.workspace.job import assume_consumer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from zerocfg.linter.engine import Diagnostic
    from zerocfg.rulebook.example import Example
    from zerocfg.rules.place import FileSpan
    from zerocfg.run.model import Run


def write(example: Example, folder: Path) -> None:
    """The files of an example; a lone surrogate stands for a byte that is not UTF-8."""
    for name, text in example.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = os.getcwd()  # noqa: PTH109
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def lint(
    folder: Path,
    consumer: str | None,
    selection: Selection | None = None,
    texts: Mapping[str, str] | None = None,
    facts: Mapping[str, object] | None = None,
    changed: Callable[[Run], Run] | None = None,
) -> Result:
    """Lint a folder; ``consumer`` counts where the files do not tell one. ``texts`` replaces files by real path,
    ``facts`` what is known of model, hardware and memory of every run; ``changed`` makes another run of each."""
    files = Files()
    with inside(folder):
        for path, text in (texts or {}).items():
            files.open(folder / path, text)
        runs, _ = find_runs([folder], files, root=folder, scripts=True)
        if consumer is not None:
            runs = assume_consumer(runs, consumer)
        runs = with_versions(runs, {})
        known = [replace(run, **(facts or {})) for run in with_facts(runs, files)]
        known = [changed(run) for run in known] if changed is not None else known
        return lint_runs(known, selection, complete=True)


def lint_example(example: Example, folder: Path, selection: Selection | None = None) -> Result:
    write(example, folder)
    return lint(folder, example.consumer, selection)


FIGURE = re.compile(r"(?<![\w.-])-?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?(?!\w)")
"""A number that stands for itself: not the 3 of ZeRO-3, of ``stage3_...`` or of a release."""


def told(found: Diagnostic, files: dict[str, str]) -> Expected:
    """What a finding says of an example's files, in the form in which the example states it."""
    figures = tuple(FIGURE.findall(f"{found.message}\n{found.help}"))
    return Expected(
        found.severity.value,
        place(found.span, files),
        figures,
        tuple(place(o, files) for o in found.related),
        "" if found.fix is None else "safe" if found.fix.safe else "unsafe",
    )


def without_fix(expected: Expected) -> Expected:
    return replace(expected, fix="")


def place(span: FileSpan, files: dict[str, str]) -> str:
    """File and underlined text; with line and column where that text stands earlier in the file, too, or is none."""
    name = span.file.name
    text = files.get(name)
    if text is None:
        return name
    lines = text.splitlines(keepends=True)
    start, end = (sum(map(len, lines[: at.line - 1])) + at.column - 1 for at in (span.start, span.end))
    marked = text[start:end]
    if start == end == 0:
        return name
    exact = f":{span.start.line}:{span.start.column}" if not marked or text.find(marked) != start else ""
    return f"{name}{exact}: {marked}".rstrip()


def fixed(example: Example, code: str, folder: Path) -> dict[str, str]:
    """The files of an example after the fixes of one rule, unsafe ones too."""
    write(example, folder)
    only = Selection(select=(code,))
    before = lint(folder, example.consumer, only)
    texts, _, _ = fix_all(before, lambda found: lint(folder, example.consumer, only, found), unsafe=True)
    names = {str((folder / name).resolve()): name for name in example.files}
    return {**example.files, **{names[path]: text for path, text in texts.items()}}


def variant(example: Example, **files: str) -> Example:
    return replace(example, files={**example.files, **files})
