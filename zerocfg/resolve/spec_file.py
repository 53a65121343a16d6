"""Reading ``zerocfg.yaml``: the typed spec, or every problem with its place in the file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

from zerocfg.catalog.suggest import closest
from zerocfg.models.spec import Base, Matrix, RunSpec, Spec, WrittenRun, WrittenSpec
from zerocfg.run.discover import display_name
from zerocfg.run.expand import ExpandedRun, Trouble, Written, expand
from zerocfg.source.load import load
from zerocfg.source.node import Document, Mapping, Node, Sequence, dotted, plain
from zerocfg.source.node import Path as KeyPath
from zerocfg.source.text import Place

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pydantic_core import ErrorDetails

_MULTIPLE = re.compile(r"Input should be (.*)")


@dataclass(frozen=True, slots=True)
class SpecProblem:
    """Something wrong with a spec file, and the way out. ``place`` is line and column, both from 1."""

    file: str
    place: Place
    message: str
    help: str = ""

    def __str__(self) -> str:
        text = f"{self.file}:{self.place.line}:{self.place.column}: {self.message}"
        return f"{text}\n  {self.help}" if self.help else text


@dataclass(slots=True)
class SpecFile:
    """A spec and the document that it was read from; ``spec`` is None when there are problems.

    ``runs`` tells of each run, as ``extends`` and ``matrix`` make them, where its keys are written.
    """

    path: Path
    document: Document
    spec: Spec | None = None
    problems: list[SpecProblem] = field(default_factory=list)
    runs: dict[str, ExpandedRun] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.path.resolve().parent

    def place_of(self, run: str, key: str = "") -> str:
        """``FILE:LINE:COLUMN`` of a key of a run, as "hardware" or "goals.prefer"; of the run where nobody wrote it."""
        path = tuple(key.split(".")) if key else ()
        expanded = self.runs[run]
        written = expanded.where(path)
        file, place = _position(written, at_key=written == expanded.origin)
        return f"{file}:{place.line}:{place.column}"

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
    place = document.source.place
    for problem in document.problems:
        if problem.fatal or problem.kind in ("duplicate-key", "empty"):
            found.problems.append(
                SpecProblem(document.name, place(problem.span.start), *_unreadable(problem.kind, problem.message))
            )
    if found.problems:
        return found
    if not isinstance(document.root, Mapping):
        kind = "a list" if isinstance(document.root, Sequence) else "one value"
        message = f"the file holds {kind}; a spec is a mapping with `version` and `runs`"
        found.problems.append(SpecProblem(document.name, Place(1, 1), message, _EXAMPLE))
        return found
    try:
        _check(found, document.root)
    except RecursionError:
        found.problems.append(SpecProblem(document.name, Place(1, 1), "the spec is nested too deeply"))
    return found


_EXAMPLE = "`zerocfg init` writes one from what it finds in a folder; docs/spec.md describes every key."


def _unreadable(kind: str, message: str) -> tuple[str, str]:
    if kind == "duplicate-key":
        return message.replace("the last value wins", "the first would be ignored"), "Remove one of the two."
    if kind == "empty":
        return message, _EXAMPLE
    if kind == "syntax" and "tab" in message:
        return message, "Indent with spaces."
    return message, ""


def _check(found: SpecFile, root: Mapping) -> None:
    """Expand the runs, check their keys, and those of bases that nobody extends."""

    def open_file(path: Path) -> Document | None:
        return load(path, display_name(path), "yaml") if path.is_file() else None

    expanded = expand(found.document, found.folder, open_file)
    problems = [_told(trouble) for trouble in expanded.troubles]
    runs = {run.name: run for run in expanded.runs}
    data = {entry.key: plain(entry.value) for entry in root.entries}
    bases = data.pop("bases", None)
    if isinstance(data.get("runs"), dict) and data["runs"]:
        # What is no mapping stays as it is, to be refused; what could not be expanded is told already.
        written = {name: value for name, value in data["runs"].items() if not isinstance(value, dict)}
        data["runs"] = written | {name: run.data for name, run in runs.items()}
    if not (expanded.troubles and not data.get("runs")):
        spec, errors = _validated(Spec, data)
        problems += [_explained(_Error.of_spec(found.document, runs, error)) for error in _merged(errors)]
        found.spec = spec
    problems += _check_bases(found.document, bases)
    found.problems = sorted(dict.fromkeys(problems), key=lambda one: (one.file != found.document.name, one.place))
    found.problems = _without_consequences(found.problems)
    found.runs = runs
    if found.problems:
        found.spec = None


def _check_bases(document: Document, bases: Any) -> list[SpecProblem]:
    if bases is not None and not isinstance(bases, dict):
        return [_problem(Written(document, ("bases",)), f"`bases` is {_shown(bases)}, not a mapping of bases by name")]
    problems = []
    for name, base in (bases or {}).items():
        where = Written(document, ("bases", name))
        if not isinstance(base, dict):
            problems.append(_problem(where, f"`bases.{name}` is {_shown(base)}, not a mapping of keys of a run"))
            continue
        keys = {key: value for key, value in base.items() if key not in ("extends", "matrix") and value is not None}
        for error in _merged(_validated(RunSpec, keys)[1]):
            if error["type"] != "missing" or len(error["loc"]) > 1:
                problems.append(_explained(_Error(error, Written(document, ("bases", name, *error["loc"])), where)))
    return problems


def _validated(model: type[BaseModel], data: Any) -> tuple[Any, list[ErrorDetails]]:
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        return None, error.errors(include_url=False)


def _merged(errors: Iterable[ErrorDetails]) -> list[ErrorDetails]:
    """One error for one value: pydantic tells of each kind that a value might have been by itself."""
    found: dict[tuple[Any, ...], ErrorDetails] = {}
    for error in errors:
        loc = error["loc"]
        if loc and loc[-1] in ("str", "int", "float", "bool"):
            loc = loc[:-1]
        earlier = found.get(loc)
        if earlier is None:
            found[loc] = {**error, "loc": loc}
            continue
        words = [_MULTIPLE.match(one["msg"]) for one in (earlier, error)]
        if all(words) and error["msg"] != earlier["msg"]:
            earlier["msg"] = " or ".join([earlier["msg"].partition(",")[0], words[1][1].partition(",")[0]])  # type: ignore[index]
    return list(found.values())


@dataclass(frozen=True, slots=True)
class _Error:
    """An error of pydantic, where its value is written, and where the run or section around it is."""

    details: ErrorDetails
    where: Written
    owner: Written
    bases: tuple[str, ...] = ()

    @classmethod
    def of_spec(cls, document: Document, runs: dict[str, ExpandedRun], details: ErrorDetails) -> _Error:
        loc = details["loc"]
        run = runs.get(str(loc[1])) if len(loc) > 1 and loc[0] == "runs" else None
        if run is None:
            return cls(details, Written(document, loc), Written(document, loc[:2]))
        return cls(details, run.where(loc[2:]), run.origin, run.bases)


def _explained(error: _Error) -> SpecProblem:
    kind, text, loc = error.details["type"], error.details["msg"], error.details["loc"]
    if kind == "missing":
        return _missing(error)
    document = error.where.document
    path = _known(document.root, error.where.path)
    where = Written(document, path)
    name = dotted(path)
    if loc[-1:] == ("[key]",):
        reason = text.removeprefix("Value error, ")
        return _problem(error.owner, f"'{loc[1]}' cannot name a run: {reason}", "A run's name becomes a folder.", True)
    model = _model_of(path[:-1])
    if kind == "extra_forbidden":
        keys = _keys(model)
        close = closest(str(loc[-1]), keys)
        help = f"There are: {', '.join(sorted(keys))}." if keys else ""
        known = f"; did you mean `{close}`?" if close else ""
        section = f" in `{dotted(path[:-1])}`" if path[:-1] else ""
        return _problem(where, f"unknown key `{loc[-1]}`{section}{known}", help, True)
    text = text.removeprefix("Value error, ")
    text = text.replace("Input should be a valid dictionary or instance of RunSpec", "a run is a mapping")
    text = text.replace("Input should be a valid dictionary or instance of ", "must be a mapping, see ")
    text = re.sub(r"must be a mapping, see \w+", "must be a mapping", text).replace("Input should be", "it must be")
    text = text.replace("a valid dictionary", "a mapping").replace("a valid list", "a list")
    node = document.get(path)
    given = f" is {_shown(plain(node))}" if node is not None else ""
    described = model.model_fields.get(str(path[-1])) if model is not None and path else None
    help = f"`{path[-1]}`: {described.description}" if described is not None and described.description else ""
    return _problem(where, f"`{name}`{given}: {text}" if name else text, help)


def _missing(error: _Error) -> SpecProblem:
    key = str(error.details["loc"][-1])
    path = _known(error.where.document.root, error.where.path)
    if error.where.path[: len(error.owner.path)] != error.owner.path:
        owner = Written(error.where.document, path)
    else:
        owner = Written(error.owner.document, path if len(path) > len(error.owner.path) else error.owner.path)
    owner = owner if error.details["loc"][0] == "runs" or len(error.details["loc"]) > 1 else Written(owner.document, ())
    name = dotted(owner.path)
    message = f"`{key}` is missing" + (f" in `{name}`" if name else "")
    if error.bases:
        message += f" and in what it extends ({', '.join(error.bases)})"
    model = _model_of(owner.path)
    described = model.model_fields.get(key) if model is not None else None
    help = f"Add `{key}:`. {described.description or ''}".strip() if described is not None else f"Add `{key}:`."
    return _problem(owner, message, help, True)


def _without_consequences(problems: list[SpecProblem]) -> list[SpecProblem]:
    """A key that is missing because it is misspelt is told once."""
    meant = {word for one in problems for word in re.findall(r"unknown key .*did you mean `(\w+)`", one.message)}
    return [
        one
        for one in problems
        if not ((missing := re.match(r"`(\w+)` is missing", one.message)) and missing[1] in meant)
    ]


def _told(trouble: Trouble) -> SpecProblem:
    return _problem(trouble.where, trouble.message, trouble.help, trouble.at_key)


def _problem(where: Written, message: str, help: str = "", at_key: bool = False) -> SpecProblem:
    return SpecProblem(*_position(where, at_key=at_key), message, help)


def _position(where: Written, *, at_key: bool) -> tuple[str, Place]:
    """File, line and column of something written: its value, or its key; the nearest part of its path that exists."""
    document, path = where.document, _known(where.document.root, where.path)
    start = 0
    while path:
        entry = document.entry(path) if at_key else None
        node = document.get(path)
        if entry is not None or (node is not None and not at_key):
            start = entry.key_span.start if entry is not None else node.span.start  # type: ignore[union-attr]
            break
        path = path[:-1]
    return document.name, document.source.place(start)


def _known(node: Node | None, loc: tuple[str | int, ...]) -> KeyPath:
    """The part of a pydantic location that is in the file: pydantic adds names of union branches to it."""
    path: list[str | int] = []
    for part in loc:
        if isinstance(node, Mapping) and (entry := node.entry(str(part))) is not None:
            path.append(str(part))
            node = entry.value
        elif isinstance(node, Sequence) and isinstance(part, int) and part < len(node.items):
            path.append(part)
            node = node.items[part]
        else:
            break
    return tuple(path)


def _model_of(path: KeyPath) -> type[BaseModel] | None:
    """The model of the section at a key path of a spec; None where there is none."""
    if not path:
        return WrittenSpec
    if len(path) == 2 and path[0] in ("runs", "bases"):
        return WrittenRun if path[0] == "runs" else Base
    if len(path) < 3:
        return None
    model: type[BaseModel] | None = WrittenRun
    parts = list(path[2:])
    if parts[0] == "matrix":
        if len(parts) == 1:
            return Matrix
        if len(parts) == 2:
            return None
        parts = [parts[1], *parts[3:]]
    for part in parts:
        annotation: Any = model.model_fields[str(part)].annotation if model and part in model.model_fields else None
        kinds = [annotation, *get_args(annotation)]
        model = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
    return model


def _keys(model: type[BaseModel] | None) -> list[str]:
    return list(model.model_fields) if model is not None else []


def _shown(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, (dict, list)):
        return f"a {'mapping' if isinstance(value, dict) else 'list'}"
    text = repr(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
