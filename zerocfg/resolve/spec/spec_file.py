"""Reading ``zerocfg.yaml``: the typed spec, or every problem with its place in the file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

from zerocfg.catalog.suggest import closest
from zerocfg.models.spec import Base, Matrix, RunSpec, Spec, WrittenRun, WrittenSpec
from zerocfg.resolve.plan import Problem
from zerocfg.run.discover import display_name
from zerocfg.run.expand import ExpandedRun, Trouble, Written, expand
from zerocfg.source import node as source
from zerocfg.source.load import load
from zerocfg.source.node import Document, Mapping, Node, Sequence, dotted, plain
from zerocfg.source.node import Path as KeyPath
from zerocfg.source.text import Where

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pydantic_core import ErrorDetails

_MULTIPLE = re.compile(r"Input should be (.*)")


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
        """The place of a key of a run, as "hardware" or "goals.prefer"; of the run where nobody wrote it."""
        path = tuple(key.split(".")) if key else ()
        expanded = self.runs[run]
        written = expanded.where(path)
        return _position(written, at_key=written == expanded.origin)

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
_WAYS_OUT = {
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
    """What to say about a text that could not be read as YAML, and the way out."""
    message, help = problem.message, _WAYS_OUT.get(problem.kind, "")
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
    unique = dict.fromkeys(problems)
    here = sorted((one for one in unique if one.place and one.place.file == found.document.name), key=_line)
    found.problems = _without_consequences([*here, *sorted((one for one in unique if one not in here), key=_line)])
    found.runs = runs
    if found.problems:
        found.spec = None


def _check_bases(document: Document, bases: Any) -> list[Problem]:
    if bases is not None and not isinstance(bases, dict):
        message = f"`bases` is {_shown(bases)}, not a mapping of bases by name"
        return [_problem(Written(document, ("bases",)), message, _help(("bases",)))]
    problems = []
    for name, base in (bases or {}).items():
        where = Written(document, ("bases", name))
        if not isinstance(base, dict):
            message = f"`bases.{name}` is {_shown(base)}, not a mapping of keys of a run"
            problems.append(_problem(where, message, _help(where.path)))
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


def _explained(error: _Error) -> Problem:
    kind, text, loc = error.details["type"], error.details["msg"], error.details["loc"]
    if kind == "missing":
        return _missing(error)
    document = error.where.document
    path = _known(document.root, error.where.path)
    text = text.removeprefix("Value error, ")
    if loc[-1:] == ("[key]",):
        return _problem(error.owner, f"'{loc[1]}' cannot name a run: {text}", "A run's name becomes a folder.", True)
    # Facts of a model are checked as a whole; the text names the key.
    inner = re.match(r"(\w+): (.*)", text)
    if inner is not None and document.get((*path, inner[1])) is not None:
        path, text = (*path, inner[1]), inner[2]
        kind = "extra_forbidden" if text == "Extra inputs are not permitted" else kind
    if kind == "extra_forbidden":
        while path and path[-1] not in (loc[-1], inner[1] if inner else None):
            path = path[:-1]
        keys = _keys(_model_of(path[:-1]))
        close = closest(str(path[-1]), keys) if path else None
        help = f"There are: {', '.join(sorted(keys))}." if keys else ""
        section = f" in `{dotted(path[:-1])}`" if path[:-1] else ""
        known = f"; did you mean `{close}`?" if close else ""
        unknown = _problem(Written(document, path), f"unknown key `{path[-1]}`{section}{known}", help, True)
        return replace(unknown, meant=close or "")
    name, node = dotted(path), document.get(path)
    given = f" is {_shown(plain(node))}" if node is not None else ""
    return _problem(Written(document, path), f"`{name}`{given}: {_plain_words(text)}" if name else text, _help(path))


_WORDS = (
    (r"Input should be a valid dictionary or instance of RunSpec", "a run is a mapping"),
    (r"Input should be a valid dictionary or instance of \w+", "it must be a mapping"),
    (r"Input should be", "it must be"),
    (r"valid dictionary", "mapping"),
    (r"valid list", "list"),
    (r"valid string", "text"),
    (r"(?<=be )a text", "text"),
    (r"valid integer, got a number with a fractional part", "whole number"),
    (r"valid integer, unable to parse string as an integer", "whole number"),
    (r"valid integer", "whole number"),
    (r"valid number, unable to parse string as a number", "number"),
    (r"valid number", "number"),
    (r"a valid boolean(, unable to interpret input)?", "true or false"),
    (r"text or a whole number or a number", "text or a number"),
)


def _plain_words(text: str) -> str:
    """Pydantic's words in those of a config file."""
    for old, new in _WORDS:
        text = re.sub(old, new, text)
    return text


def _help(path: KeyPath) -> str:
    """What the key at a path is for; where it has no description of its own, the nearest around it."""
    names = [part for part in path if isinstance(part, str)]
    if len(names) > 3 and names[2] == "matrix":
        names = names[:2] + names[3:4] + names[5:]
    while names:
        model = _model_of(tuple(names[:-1]))
        described = model.model_fields.get(names[-1]) if model is not None else None
        if described is not None and described.description:
            return f"`{names[-1]}`: {described.description}"
        names.pop()
    return ""


def _missing(error: _Error) -> Problem:
    """A key that is required and not there, told at the section that lacks it."""
    loc, document = error.details["loc"], error.where.document
    key = str(loc[-1])
    owner = Written(document, ())
    if len(loc) > 1:
        around = Written(document, _known(document.root, error.where.path[:-1]))
        inside = document.get(around.path) is not None and len(around.path) >= len(error.owner.path)
        owner = around if inside and error.where != error.owner else error.owner
    name = dotted(owner.path)
    message = f"`{key}` is missing" + (f" in `{name}`" if name else "")
    if error.bases and owner == error.owner:
        message += f" and in what it extends ({', '.join(error.bases)})"
    model = _model_of(owner.path)
    described = model.model_fields.get(key) if model is not None else None
    help = f"Add `{key}:`. {(described.description if described else None) or ''}".strip()
    return replace(_problem(owner, message, help, True), missing=key)


def _line(problem: Problem) -> Where:
    return problem.place or Where("")


def _without_consequences(problems: list[Problem]) -> list[Problem]:
    """A key that is missing because it is misspelt is told once."""
    meant = {one.meant for one in problems} - {""}
    return [one for one in problems if one.missing not in meant]


def _told(trouble: Trouble) -> Problem:
    return _problem(trouble.where, trouble.message, trouble.help, trouble.at_key)


def _problem(where: Written, message: str, help: str = "", at_key: bool = False) -> Problem:
    return Problem(dotted(where.path), message, help, _position(where, at_key=at_key))


def _position(where: Written, *, at_key: bool) -> Where:
    """The place of something written: its value, or its key; the nearest part of its path that exists."""
    document, path = where.document, _known(where.document.root, where.path)
    start = 0
    while path:
        entry = document.entry(path) if at_key else None
        node = document.get(path)
        if entry is not None or (node is not None and not at_key):
            start = entry.key_span.start if entry is not None else node.span.start  # type: ignore[union-attr]
            break
        path = path[:-1]
    return Where(document.name, *document.source.place(start))


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
        return f"a {'mapping' if isinstance(value, dict) else 'list'}" + ("" if value else " without entries")
    text = repr(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
