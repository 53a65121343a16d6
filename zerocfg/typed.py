"""A config file as the typed model of its format, every key with its place.

The models judge and convert (``model_validate``); lint has the words for a refusal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, Literal, TypeVar, get_args

import pydantic

from zerocfg.catalog.check import refusal
from zerocfg.catalog.schema import Key, load_schema
from zerocfg.catalog.values import kind_of, show
from zerocfg.errors import Error, Refusal, ValidationError
from zerocfg.linter.engine import Diagnostic, lint_runs
from zerocfg.models.accelerate import ClusterConfig, SageMakerConfig
from zerocfg.models.base import Section, keys_of, spellings
from zerocfg.models.deepspeed import DeepSpeedConfig
from zerocfg.models.training_arguments import TrainingArguments
from zerocfg.models.trl import Recipe
from zerocfg.rules.api import Severity
from zerocfg.rules.argument_reader import reader
from zerocfg.run.discover import display_name
from zerocfg.run.kinds import guess_unread, sniff
from zerocfg.run.model import Run, SourceFile
from zerocfg.run.resolve_settings import with_settings
from zerocfg.source.load import load_as, load_bytes, read_bytes
from zerocfg.source.node import Document, Mapping, Node, Problem, Scalar, Sequence, dotted
from zerocfg.source.node import Path as KeyPath
from zerocfg.source.text import Span, Where

Kind = Literal["deepspeed", "accelerate", "recipe"]
"""What can be loaded. "recipe": arguments of the Trainer, or of a trainer of TRL where a key is TRL's own."""

Model = TypeVar("Model", bound=Section, covariant=True)

_SCHEMAS: dict[type[Section], str] = {
    DeepSpeedConfig: "deepspeed",
    ClusterConfig: "accelerate",
    SageMakerConfig: "accelerate-sagemaker",
    TrainingArguments: "training-arguments",
    Recipe: "trl",
}


@dataclass(frozen=True)
class Loaded(Generic[Model]):
    """A config file as its library reads it.

    ``model`` holds the values, converted; what the file does not write has the library's default
    (``model.model_fields_set`` tells them apart, section by section).
    """

    model: Model
    kind: Kind
    name: str
    document: Document

    def place(self, key: str) -> Where | None:
        """Where the value of a key is written, by its dotted name; None where the file does not write it.

        A key that is written under another of its names is found by the model's, too.
        """
        node: Node | None = self.document.root
        section: type[Section] = type(self.model)
        for part in key.split("."):
            found = _below(node, part, section)
            if found is None:
                return None
            _, node, section = found
        return None if node is None else _place(self.document, node.span)


def load(path: Path, kind: Kind | None) -> Loaded[Section]:
    """The typed model of a file; its ``kind`` follows from its keys unless it is given.

    Raises ValidationError for values and keys that the library refuses, Error for a file that cannot be read or is of
    no such kind.
    """
    if kind is not None and kind not in get_args(Kind):
        raise Error(f"kind is one of {', '.join(get_args(Kind))}, not {kind!r}")
    name = display_name(path)
    kind, document = _read(path, name, kind)
    file = SourceFile(name, kind, document.source, document, path)
    run = _run(file, kind)
    model = _model(run, kind, document)
    try:
        made = model.model_validate(document.data())
    except pydantic.ValidationError as error:
        raise ValidationError(tuple(_refusals(error, model, document, lint_runs([run]).diagnostics))) from None
    return Loaded(made, kind, name, document)


def _read(path: Path, name: str, kind: Kind | None) -> tuple[Kind, Document]:
    if not path.exists():
        raise Error(f"there is no file '{path}'")
    data = read_bytes(path)
    if isinstance(data, Problem):
        raise Error(f"{name}: {data.message}")
    document = load_bytes(name, data)
    found = kind or sniff(document.data(), name)
    if document.root is None and kind is None:
        found = guess_unread(document.source.text, name)
    if found == "deepspeed" and document.format != "json":
        document = load_as(document.source, "json")  # whatever its name says
    for problem in document.problems:
        refused = problem.fatal or (problem.kind == "duplicate-key" and found == "deepspeed")
        if refused:
            raise Error(f"{_place(document, problem.span)}: {problem.message}")
    if found in ("deepspeed", "accelerate", "recipe"):
        if isinstance(document.root, Mapping):
            return found, document
        raise Error(f"{name}: the file holds {kind_of(document.data())} where a mapping of keys is needed")
    raise Error(f"{name}: its keys are those of no {', '.join(get_args(Kind))} config; name its kind")


def _run(file: SourceFile, kind: Kind) -> Run:
    run = Run(file.name)
    if kind == "deepspeed":
        return with_settings(replace(run, deepspeed=file))
    return with_settings(replace(run, accelerate=file) if kind == "accelerate" else replace(run, recipe=file))


def _model(run: Run, kind: Kind, document: Document) -> type[Section]:
    if kind == "deepspeed":
        return DeepSpeedConfig
    if kind == "recipe":
        return Recipe if reader(run) == "trl" else TrainingArguments
    data = document.data()
    own = not isinstance(data, dict) or data.get("compute_environment") in (None, "LOCAL_MACHINE")
    return ClusterConfig if own else SageMakerConfig


def _refusals(
    error: pydantic.ValidationError, model: type[Section], document: Document, diagnostics: list[Diagnostic]
) -> list[Refusal]:
    """One for each place, in lint's words where lint speaks of that place."""
    spoken = {item.span.path: item for item in reversed(diagnostics) if item.severity is Severity.ERROR}
    schema = load_schema(_SCHEMAS[model])
    places = [(*_where(item["loc"], model, document), item["msg"]) for item in error.errors(include_url=False)]
    found: dict[KeyPath, Refusal] = {}
    for path, node, said in places:
        # Of a section that may also be a plain value, pydantic says that it is none.
        if path in found or any(other[: len(path)] == path != other for other, _, _ in places):
            continue
        key, value = dotted(path), node.value if isinstance(node, Scalar) else None
        if (one := spoken.get(key)) is not None:
            message = one.message + (f" ({one.help})" if one.help else "")
        elif node is None:
            message = f"`{key}` is missing; it has no default"
        else:
            shown = f": {show(value)}" if isinstance(node, Scalar) else ""
            message = f"`{key}{shown}` {_reason(schema.find(tuple(map(str, path))), node, said)}"
        span = node.span if node is not None else _span(document, path[:-1])
        written = document.source.text[slice(*span)] if isinstance(node, Scalar) else ""
        if written.strip("\"'") not in ("", show(value).strip('"')) and "is read as" not in message:
            message += f"; `{written}` is read as {show(value)}"
        found[path] = Refusal(_place(document, span), key, written, value, message)
    return sorted(found.values(), key=lambda refused: refused.place)


def _reason(key: Key | None, node: Node, said: str) -> str:
    """Why a value is refused, as the catalog says it; else as the model does."""
    value = node.value if isinstance(node, Scalar) else [] if isinstance(node, Sequence) else {}
    reason = refusal(key, value) if key is not None else None
    return reason[1] if reason is not None else said.removeprefix("Value error, ")


def _where(loc: tuple[str | int, ...], model: type[Section], document: Document) -> tuple[KeyPath, Node | None]:
    """The path that is meant by an error's ``loc``, in which pydantic also names alternatives of a type, and the node
    there; None where that key is not written."""
    path: KeyPath = ()
    node, section = document.root, model
    for part in loc:
        if isinstance(node, Sequence) and isinstance(part, int) and part < len(node.items):
            path, node = (*path, part), node.items[part]
        elif (found := _below(node, str(part), section)) is not None:
            name, node, section = found
            path = (*path, name)
        elif isinstance(node, Mapping) and str(part) in keys_of(section):
            return (*path, str(part)), None
    return path, node


def _below(node: Node | None, name: str, section: type[Section]) -> tuple[str, Node, type[Section]] | None:
    """The key as it is written, its value, and the section that it holds (else the one that it stands in)."""
    if not isinstance(node, Mapping):
        return None
    declared = keys_of(section).get(name)
    for spelled in [name, *(spellings(section, name) if declared is not None else ())]:
        if (entry := node.entry(spelled)) is not None:
            inner = declared.section if declared is not None else None
            return spelled, entry.value, _variant(section, name, node) or inner or section
    return None


def _variant(section: type[Section], name: str, node: Mapping) -> type[Section] | None:
    variants = section.variants.get(name)
    chooser = node.entry(variants.key) if variants is not None else None
    if variants is None or chooser is None or not isinstance(chooser.value, Scalar):
        return None
    return variants.section(chooser.value.value)


def _span(document: Document, path: KeyPath) -> Span:
    """Where a section is opened."""
    entry = document.entry(path)
    return entry.key_span if entry is not None else Span(0, 0)


def _place(document: Document, span: Span) -> Where:
    at = document.source.place(span.start)
    return Where(document.name, at.line, at.column)
