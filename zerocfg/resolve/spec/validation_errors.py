"""Errors of pydantic on a spec as problems: in the terms of the file, with the place where the value is written."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

from zerocfg.catalog.suggest import closest
from zerocfg.models.spec import Base, Matrix, WrittenRun, WrittenSpec
from zerocfg.resolve.plan import Problem
from zerocfg.run.expand import ExpandedRun, Written
from zerocfg.source.node import Document, Mapping, Node, Sequence, dotted, plain
from zerocfg.source.node import Path as KeyPath
from zerocfg.source.text import Where

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic_core import ErrorDetails

_MULTIPLE = re.compile(r"Input should be (.*)")


def merge_errors(errors: Iterable[ErrorDetails]) -> list[ErrorDetails]:
    """One error for one value: pydantic reports each alternative of a union separately."""
    found: dict[tuple[Any, ...], ErrorDetails] = {}
    for error in errors:
        loc = error["loc"]
        # The key of an unknown one may be named as pydantic names its alternatives.
        if loc and loc[-1] in ("str", "int", "float", "bool") and error["type"] != "extra_forbidden":
            loc = loc[:-1]
        earlier = found.get(loc)
        if earlier is None:
            found[loc] = {**error, "loc": loc}
            continue
        words = [_MULTIPLE.match(item["msg"]) for item in (earlier, error)]
        if all(words) and error["msg"] != earlier["msg"]:
            earlier["msg"] = " or ".join([earlier["msg"].partition(",")[0], words[1][1].partition(",")[0]])  # type: ignore[index]
    return list(found.values())


@dataclass(frozen=True, slots=True)
class SpecError:
    """An error of pydantic, where its value is written, and where the run or section around it is."""

    details: ErrorDetails
    where: Written
    owner: Written
    bases: tuple[str, ...] = ()

    @classmethod
    def of_spec(cls, document: Document, runs: dict[str, ExpandedRun], details: ErrorDetails) -> SpecError:
        """An error at a location of the expanded spec, traced back to where the value is written."""
        loc = details["loc"]
        run = runs.get(str(loc[1])) if len(loc) > 1 and loc[0] == "runs" else None
        if run is None:
            return cls(details, Written(document, loc), Written(document, loc[:2]))
        return cls(details, run.where(loc[2:]), run.origin, run.bases)


def problem_of_error(error: SpecError) -> Problem:
    """The problem to report: the message in the spec's terms, its location and remediation."""
    kind, text, loc = error.details["type"], error.details["msg"], error.details["loc"]
    if kind == "missing":
        return _missing(error)
    document = error.where.document
    path = _known(document.root, error.where.path)
    text = text.removeprefix("Value error, ")
    if loc[-1:] == ("[key]",) and kind != "extra_forbidden":
        return problem_at(error.owner, f"'{loc[1]}' cannot name a run: {text}", "A run's name becomes a folder.", True)
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
        unknown = problem_at(Written(document, path), f"unknown key `{path[-1]}`{section}{known}", help, True)
        return replace(unknown, meant=close or "")
    name, node = dotted(path), document.get(path)
    given = f" is {shown_value(plain(node))}" if node is not None else ""
    return problem_at(
        Written(document, path), f"`{name}`{given}: {_plain_words(text)}" if name else text, help_for(path)
    )


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
    """A message of pydantic in the terms of a config file."""
    for old, new in _WORDS:
        text = re.sub(old, new, text)
    return text


def help_for(path: KeyPath) -> str:
    """The description of the key at a path, or of the nearest key around it that has one."""
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


def _missing(error: SpecError) -> Problem:
    """A missing required key, reported at the section that lacks it."""
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
    return replace(problem_at(owner, message, help, True), missing=key)


def problem_at(where: Written, message: str, help: str = "", at_key: bool = False) -> Problem:
    return Problem(dotted(where.path), message, help, position_of(where, at_key=at_key))


def position_of(where: Written, *, at_key: bool) -> Where:
    """The location of a value or of its key; of a path that does not exist, its nearest existing part."""
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


def shown_value(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, (dict, list)):
        return f"a {'mapping' if isinstance(value, dict) else 'list'}" + ("" if value else " without entries")
    text = repr(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
