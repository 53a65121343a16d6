"""Reading ``zerocfg.yaml``: the typed spec, or every problem with its place in the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from zerocfg.models.spec import RunSpec, Spec
from zerocfg.source.load import load
from zerocfg.source.node import Document, Mapping, Node, Sequence, dotted
from zerocfg.source.node import Path as KeyPath
from zerocfg.source.text import Place, Span

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class SpecProblem:
    """Something wrong with a spec file. ``place`` is line and column, both from 1."""

    file: str
    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.place.line}:{self.place.column}: {self.message}"


@dataclass(slots=True)
class SpecFile:
    """A spec and the document that it was read from; ``spec`` is None when there are problems."""

    path: Path
    document: Document
    spec: Spec | None = None
    problems: list[SpecProblem] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.path.resolve().parent

    def problem(self, path: KeyPath, message: str) -> SpecProblem:
        """A problem at a key path: at its value, or at the nearest part of the path that exists."""
        return SpecProblem(self.document.name, self.document.source.place(_span(self.document, path).start), message)


def read_spec(path: Path, name: str | None = None) -> SpecFile:
    """Read and check a spec. Never raises for what is in the file."""
    document = load(path, name or path.as_posix(), "yaml")
    found = SpecFile(path, document)
    place = document.source.place
    for problem in document.problems:
        if problem.fatal or problem.kind in ("duplicate-key", "empty"):
            found.problems.append(SpecProblem(document.name, place(problem.span.start), problem.message))
    if found.problems:
        return found
    if not isinstance(document.root, Mapping):
        found.problems.append(SpecProblem(document.name, Place(1, 1), "a spec is a mapping with `version` and `runs`"))
        return found
    try:
        found.spec = Spec.model_validate(document.data())
    except ValidationError as error:
        seen: set[SpecProblem] = set()
        for item in error.errors(include_url=False):
            explained = _explain(found, item)
            if explained not in seen:
                seen.add(explained)
                found.problems.append(explained)
        found.problems.sort(key=lambda problem: problem.place)
    except RecursionError:
        found.problems.append(SpecProblem(document.name, Place(1, 1), "the spec is nested too deeply"))
    return found


def _explain(found: SpecFile, item: Any) -> SpecProblem:
    path = _known(found.document.root, item["loc"])
    name = dotted(path)
    kind, text = item["type"], item["msg"]
    if kind == "missing":
        message = f"`{item['loc'][-1]}` is missing" + (f" in `{name}`" if name else "")
        return SpecProblem(found.document.name, _key_place(found.document, path), message)
    if kind == "extra_forbidden":
        message = f"unknown key `{path[-1] if path else ''}`"
        close = get_close_matches(str(path[-1]), _keys(path), 1, 0.6) if path else []
        message += f"; did you mean `{close[0]}`?" if close else ""
        return SpecProblem(found.document.name, _key_place(found.document, path), message)
    text = text.removeprefix("Value error, ")
    text = text.replace("Input should be a valid dictionary or instance of RunSpec", "a run is a mapping")
    text = text.replace("Input should be", "must be")
    message = f"`{name}`: {text}" if name else text
    return found.problem(path, message)


def _keys(path: KeyPath) -> list[str]:
    model: type[BaseModel] = Spec if len(path) == 1 else RunSpec
    return list(model.model_fields)


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


def _span(document: Document, path: KeyPath) -> Span:
    while path:
        node = document.get(path)
        if node is not None:
            return node.span
        path = path[:-1]
    return Span(0, 0)


def _key_place(document: Document, path: KeyPath) -> Place:
    entry = document.entry(path) if path else None
    return document.source.place(entry.key_span.start if entry else _span(document, path).start)
