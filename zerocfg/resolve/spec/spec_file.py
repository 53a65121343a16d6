"""Reading ``zerocfg.yaml``: the typed spec, or every problem with its place in the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from zerocfg.catalog.suggest import closest
from zerocfg.models.spec import RunSpec, Spec
from zerocfg.resolve.plan import Problem
from zerocfg.resolve.spec.validation_errors import (
    SpecError,
    help_for,
    merge_errors,
    position_of,
    problem_at,
    problem_of_error,
    shown_value,
)
from zerocfg.run.discover import display_name
from zerocfg.run.expand import ExpandedRun, Trouble, Written, expand
from zerocfg.source import node as source
from zerocfg.source.disk import is_file
from zerocfg.source.load import load
from zerocfg.source.node import Document, Mapping, Sequence, plain
from zerocfg.source.text import Where

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic_core import ErrorDetails


@dataclass(slots=True)
class SpecFile:
    """A spec and the document that it was read from; ``spec`` is None when there are problems.

    ``runs`` tells of each run, as ``extends`` and ``matrix`` make them, where its keys are written.
    """

    path: Path
    document: Document
    spec: Spec | None = None
    problems: list[Problem] = field(default_factory=list)
    runs: dict[str, ExpandedRun] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.path.resolve().parent

    def place_of(self, run: str, key: str = "") -> Where:
        """The location of a key of a run ("hardware", "goals.prefer"); that of the run where the key is not written."""
        path = tuple(key.split(".")) if key else ()
        expanded = self.runs[run]
        written = expanded.where(path)
        return position_of(written, at_key=written == expanded.origin)

    def selected(self, only: str | None) -> list[str]:
        """The runs that ``--run`` asks for: all, one, or all of a matrix by its name in the file.

        Raises ValueError with one line for a name that there is not.
        """
        if only is None:
            return list(self.runs)
        if only in self.runs:
            return [only]
        found = [name for name, run in self.runs.items() if run.written == only]
        if found:
            return found
        near = closest(only, self.runs)
        shown = ", ".join(list(self.runs)[:20]) + (", ..." if len(self.runs) > 20 else "")
        raise ValueError(
            f"the spec has no run '{only}'; it has {shown}" + (f"; did you mean '{near}'?" if near else "")
        )


def read_spec(path: Path, name: str | None = None) -> SpecFile:
    """Read and check a spec. Never raises for what is in the file."""
    return check_spec(path, load(path, name or path.as_posix(), "yaml"))


def check_spec(path: Path, document: Document) -> SpecFile:
    """The same for a document that was read already, or is not written to ``path`` yet."""
    found = SpecFile(path, document)
    for problem in document.problems:
        if problem.fatal or problem.kind in ("duplicate-key", "empty"):
            place = Where(document.name, *document.source.place(problem.span.start))
            found.problems.append(Problem("", *_unreadable(document, problem), place))
    if found.problems:
        return found
    if not isinstance(document.root, Mapping):
        kind = "a list" if isinstance(document.root, Sequence) else "one value"
        message = f"the file holds {kind}; a spec is a mapping with `version` and `runs`"
        found.problems.append(Problem("", message, _EXAMPLE, Where(document.name, 1, 1)))
        return found
    try:
        _check(found, document.root)
    except RecursionError:
        found.problems.append(Problem("", "the spec is nested too deeply", place=Where(document.name, 1, 1)))
    return found


_EXAMPLE = "`zerocfg init` writes one from what it finds in a folder; docs/spec.md describes every key."
_REMEDIATIONS = {
    "empty": _EXAMPLE,
    "duplicate-key": "Remove one of the two.",
    "encoding": "Save the spec as UTF-8 text.",
    "too-large": "A spec names files and numbers; write less into it, or use fewer aliases.",
    "too-deep": "No key of a spec lies that deep; look for brackets that are never closed.",
    "alias-cycle": "Write the value out instead of the alias; `extends` shares keys among runs.",
    "multiple-documents": "Put all runs under one `runs:` and remove the line `---`.",
    "unreadable": "Name a spec file that you may read.",
    "syntax": "Look at this place for a missing quote, bracket or colon, and at the line before it.",
}


def _unreadable(document: Document, problem: source.Problem) -> tuple[str, str]:
    """Message and remediation for a text that could not be read as YAML."""
    message, help = problem.message, _REMEDIATIONS.get(problem.kind, "")
    if problem.kind == "duplicate-key":
        first = f" (line {document.source.place(problem.related.start).line})" if problem.related else ""
        message = f"{problem.brief}; the first{first} would be ignored"
    elif problem.kind == "encoding":
        message = problem.brief or message
    elif problem.form == "tab":
        help = "Indent with spaces."
    return message, help


def _check(found: SpecFile, root: Mapping) -> None:
    """Expand the runs, check their keys, and those of bases that nobody extends."""

    def open_file(path: Path) -> Document | None:
        return load(path, display_name(path), "yaml") if is_file(path) else None

    expanded = expand(found.document, found.folder, open_file)
    problems = [_problem_of(trouble) for trouble in expanded.troubles]
    runs = {run.name: run for run in expanded.runs}
    data = {entry.key: plain(entry.value) for entry in root.entries}
    bases = data.pop("bases", None)
    if isinstance(data.get("runs"), dict) and data["runs"]:
        # What is no mapping stays as it is, to be refused; what could not be expanded is reported already.
        written = {name: value for name, value in data["runs"].items() if not isinstance(value, dict)}
        data["runs"] = written | {name: run.data for name, run in runs.items()}
    if not (expanded.troubles and not data.get("runs")):
        spec, errors = _validated(Spec, data)
        problems += [problem_of_error(SpecError.of_spec(found.document, runs, error)) for error in merge_errors(errors)]
        found.spec = spec
    problems += _check_bases(found.document, bases)
    unique = dict.fromkeys(problems)
    here = sorted(
        (problem for problem in unique if problem.place and problem.place.file == found.document.name), key=_line
    )
    found.problems = _without_consequences(
        [*here, *sorted((problem for problem in unique if problem not in here), key=_line)]
    )
    found.runs = runs
    if found.problems:
        found.spec = None


def _check_bases(document: Document, bases: Any) -> list[Problem]:
    if bases is not None and not isinstance(bases, dict):
        message = f"`bases` is {shown_value(bases)}, not a mapping of bases by name"
        return [problem_at(Written(document, ("bases",)), message, help_for(("bases",)))]
    problems = []
    for name, base in (bases or {}).items():
        where = Written(document, ("bases", name))
        if not isinstance(base, dict):
            message = f"`bases.{name}` is {shown_value(base)}, not a mapping of keys of a run"
            problems.append(problem_at(where, message, help_for(where.path)))
            continue
        keys = {key: value for key, value in base.items() if key not in ("extends", "matrix") and value is not None}
        for error in merge_errors(_validated(RunSpec, keys)[1]):
            if error["type"] != "missing" or len(error["loc"]) > 1:
                problems.append(
                    problem_of_error(SpecError(error, Written(document, ("bases", name, *error["loc"])), where))
                )
    return problems


def _validated(model: type[BaseModel], data: Any) -> tuple[Any, list[ErrorDetails]]:
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        return None, error.errors(include_url=False)


def _line(problem: Problem) -> Where:
    return problem.place or Where("")


def _without_consequences(problems: list[Problem]) -> list[Problem]:
    """Drops the report of a missing key that is reported as misspelt already."""
    meant = {problem.meant for problem in problems} - {""}
    return [problem for problem in problems if problem.missing not in meant]


def _problem_of(trouble: Trouble) -> Problem:
    return problem_at(trouble.where, trouble.message, trouble.help, trouble.at_key)
