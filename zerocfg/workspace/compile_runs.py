"""Compiles resolved runs to files: lints the sources, emits, reads the emitted files back and lints them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerocfg.emit.emit_run import emit_run, unlike
from zerocfg.emit.problems import problems as emit_problems
from zerocfg.emit.verify import emitted_run
from zerocfg.linter.engine import Diagnostic, Result, lint_runs
from zerocfg.resolve.explain.refused_values import refused_value
from zerocfg.resolve.spec.locate_problems import locate_problems
from zerocfg.rules.api import Severity
from zerocfg.run.config import AUTO
from zerocfg.run.releases import with_newest_releases
from zerocfg.source.node import Path as KeyPath
from zerocfg.source.node import Scalar, dotted, walk
from zerocfg.source.text import Where

if TYPE_CHECKING:
    from collections.abc import Set
    from pathlib import Path

    from zerocfg.emit.files import Emitted
    from zerocfg.linter.selection import Selection
    from zerocfg.resolve.build import BuildResult
    from zerocfg.resolve.spec.spec_file import SpecFile
    from zerocfg.run.model import Run


@dataclass(slots=True)
class CompiledBuild:
    """The outcome of a build, before anything is written.

    ``emitted``: the files of the runs that may be written; the other runs have `BuildResult.problems`, or lint
    ``errors``. ``warnings``: the number of lint warnings about the sources. ``broken``: whether a problem is an error
    of zerocfg itself."""

    built: list[BuildResult]
    emitted: list[Emitted] = field(default_factory=list)
    errors: Result | None = None
    warnings: int = 0
    broken: bool = False

    @property
    def has_problems(self) -> bool:
        return any(item.problems for item in self.built)

    @property
    def failed(self) -> list[str]:
        """The names of the runs without files."""
        emitted = {item.plan.name for item in self.emitted}
        return [item.name for item in self.built if item.name not in emitted]


def compile_runs(
    read: SpecFile, built: list[BuildResult], out: Path, selection: Selection | None = None
) -> CompiledBuild:
    """Emit the files of the runs below ``out``, without writing them. ``selection``: the rules of the project."""
    result = CompiledBuild(built)
    for item in built:
        if item.plan is not None:
            item.problems += locate_problems(emit_problems(item.plan), read, item.run)
    # Where the search chose no plan, lint would judge values that no job gets.
    judged = [item for item in built if all(problem.key != "goals" for problem in item.problems)]
    linted = lint_runs([with_newest_releases(item.run) for item in judged], selection)
    result.warnings = sum(diagnostic.severity is Severity.WARNING for diagnostic in linted.diagnostics)
    result.errors = _errors(linted, moved={place for item in built for place in item.moved_from})
    rest = [item for item in judged if not item.problems and item.name not in _runs_of(result.errors)]
    for item in rest:  # an ignored finding does not keep the library from refusing the value
        if (refused := refused_value(item)) is not None:
            item.problems.append(refused.problem)
    rest = [item for item in rest if not item.problems]
    made = {item.name: files for item in rest if (files := emit_run(item, out)) is not None}
    runs = {item.name: emitted_run(made[item.name], item.run) for item in rest if item.name in made}
    for item in rest:
        if item.name in made:
            item.problems += locate_problems(unlike(made[item.name], runs[item.name], item.source), read, item.source)
    result.broken = any(item.problems for item in rest)
    good = [item.name for item in rest if not item.problems]
    again = _read_back([runs[name] for name in good], linted, selection)
    result.emitted = [made[name] for name in good if name not in _runs_of(again)]
    result.errors = result.errors or again
    return result


def _runs_of(errors: Result | None) -> set[str]:
    """The names of the runs that have these errors."""
    return (
        set()
        if errors is None
        else {name for diagnostic in errors.diagnostics for name in (diagnostic.run, *diagnostic.met_in)}
    )


def _errors(linted: Result, *, moved: Set[Where] | None = None) -> Result | None:
    """The errors of a lint. ``moved``: places of keys that the build writes elsewhere; if given, errors there and at
    values that the build replaces are left out."""
    errors = [diagnostic for diagnostic in linted.diagnostics if diagnostic.severity is Severity.ERROR]
    if moved is not None:
        errors = [error for error in errors if not _is_replaced(error) and _place(error) not in moved]
    return Result(errors, linted.suppressed, linted.files) if errors else None


def _place(diagnostic: Diagnostic) -> Where:
    return Where(diagnostic.span.file.name, *diagnostic.span.start)


def _is_replaced(diagnostic: Diagnostic) -> bool:
    """Whether the build replaces the value: an `auto`, or a number of processes that follows from the hardware."""
    if diagnostic.span.path in ("num_processes", "num_machines"):
        return True
    document = diagnostic.span.file.document
    path = _path(diagnostic)
    node = document.get(path) if document is not None and path else None
    return isinstance(node, Scalar) and node.value == AUTO


def _path(diagnostic: Diagnostic) -> KeyPath:
    document = diagnostic.span.file.document
    if document is None or document.root is None:
        return ()
    return next((path for path, _, _ in walk(document.root) if dotted(path) == diagnostic.span.path), ())


def _read_back(runs: list[Run], sources: Result, selection: Selection | None) -> Result | None:
    """The errors of a lint of the emitted files, without those that the project suppresses in its sources."""
    accepted = {(item.diagnostic.code, item.diagnostic.run) for item in sources.suppressed}
    linted = lint_runs(runs, selection)
    linted.diagnostics = [
        diagnostic for diagnostic in linted.diagnostics if (diagnostic.code, diagnostic.run) not in accepted
    ]
    return _errors(linted)
