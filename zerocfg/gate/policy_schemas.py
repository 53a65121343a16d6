"""Policies of an organisation: JSON Schemas for the values of every run (`run_values`).

The instance is one object with every value twice: under its dotted name (``"zero_optimization.stage"``) and nested as
in DeepSpeed's JSON (``{"zero_optimization": {"stage": ...}}``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zerocfg.budgets import POLICY_SECONDS
from zerocfg.compare.values import shown
from zerocfg.emit import lock as lockfile
from zerocfg.gate.model import GateError, Reason, Target
from zerocfg.gate.positions import position
from zerocfg.gate.time_limit import TimeLimitError, limited
from zerocfg.run.discover import display_name
from zerocfg.source.load import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

    from zerocfg.resolve.plan import Decision
    from zerocfg.source.node import Document

LONGEST = 200
"""Longest part of a validator's message that is shown; it may quote all settings."""

_PATTERNS = ("pattern", "patternProperties", "additionalProperties", "unevaluatedProperties")
"""Keywords for which the validator tries patterns, of this key or of its neighbours."""
_MISSING = "is required and not set"
_UNWANTED = "is set and must not be"


@dataclass(frozen=True, slots=True)
class PolicySchema:
    """One policy: its file as read, its validator, and the schema as it is written. ``at``: where the time for it ran
    out, each as a part of the schema and its key that holds a pattern."""

    name: str
    document: Document
    validator: Validator
    schema: dict[str, Any]
    at: list[tuple[object, str]]


def read_schema(path: Path) -> PolicySchema:
    """Read a policy file. Raises GateError, with the position, for what is not a JSON Schema."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Registry

    name = display_name(path)
    document = load(path, name, "json")
    if not document.readers.get("json"):
        problem = next(iter(document.problems), None)
        place = document.source.place(problem.span.start) if problem else None
        where = f"{name}:{place.line}:{place.column}" if place and document.source.text else name
        raise GateError(
            f"{where}: the policy is not JSON: {(problem.why or problem.message) if problem else 'it is empty'}"
        )
    schema = document.data()
    if not isinstance(schema, dict):
        raise GateError(f"{name}:1:1: the policy must be a JSON Schema, for example an object with `properties`")
    kind = validator_for(schema, default=Draft202012Validator)
    draft = str(kind.META_SCHEMA.get("$id", kind.META_SCHEMA.get("id", "")))
    if "$schema" in schema and str(schema["$schema"]).rstrip("#") != draft.rstrip("#"):
        line, column = position(document, ["$schema"])
        raise GateError(
            f"{name}:{line}:{column}: $schema {shown(schema['$schema'])} is not a known draft of JSON Schema"
        )
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        line, column = position(document, error.absolute_path)
        where = f"{name}:{line}:{column}" if line else f"{name}:1:1"
        key = ".".join(map(str, error.absolute_path))
        raise GateError(f"{where}: the policy is not a JSON Schema: {key}: {error.message[:LONGEST]}") from None
    # An empty registry: jsonschema's own would fetch what a $ref names from the network.
    at: list[tuple[object, str]] = []
    return PolicySchema(name, document, _remembering(kind, at)(_spelled_out(schema), registry=Registry()), schema, at)


def _remembering(kind: type[Validator], at: list[tuple[object, str]]) -> type[Validator]:
    """A validator that tells at which pattern the time ran out."""
    from jsonschema.validators import extend

    def tried(keyword: str) -> Callable[..., Iterator[ValidationError]]:
        judge = kind.VALIDATORS[keyword]

        def errors(validator: Validator, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
            try:
                yield from judge(validator, value, instance, schema) or ()
            except TimeLimitError:
                at.append((schema, keyword))  # the innermost comes first
                raise

        return errors

    judges = {keyword: tried(keyword) for keyword in _PATTERNS if keyword in kind.VALIDATORS}
    found: type[Validator] = extend(kind, judges)  # type: ignore[no-untyped-call]
    return found


def _path_to(schema: Any, wanted: list[tuple[object, str]]) -> list[str | int]:
    """The key path of a keyword in a schema that is part of a larger one; empty where it is none of it."""
    parts: list[tuple[Any, list[str | int]]] = [(schema, [])]
    while wanted and parts:
        part, path = parts.pop()
        if part is wanted[0][0]:
            return [*path, wanted[0][1]]
        inner = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        parts += [(value, [*path, key]) for key, value in inner]
    return []


def _spelled_out(schema: Any) -> Any:
    """The schema with ``"name": false`` as ``"name": {"type": "null"}``, of which jsonschema tells the name: what is
    null by default is not set."""
    if isinstance(schema, list):
        return [_spelled_out(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: {"type": "null"} if item is False else _spelled_out(item) for name, item in value.items()}
        if key in ("properties", "patternProperties") and isinstance(value, dict)
        else _spelled_out(value)
        for key, value in schema.items()
    }


def violations(target: Target, values: Mapping[str, Decision], policy: PolicySchema) -> list[Reason]:
    """Where a run does not meet a policy. ``values``: those of the run by dotted name. Raises GateError for a policy
    that cannot be applied."""
    from referencing.exceptions import Unresolvable

    try:
        with limited(POLICY_SECONDS):
            found = list(policy.validator.iter_errors(instance(values)))
    except TimeLimitError:
        line, column = position(policy.document, _path_to(policy.validator.schema, policy.at[:1]))
        what = "this pattern is tried in too many ways" if policy.at else "it is not held against a run"
        where = f"{policy.name}:{line}:{column}" if line else policy.name
        raise GateError(f"{where}: {what} within {POLICY_SECONDS:.0f} s; write it without repeats in repeats") from None
    except Unresolvable as error:
        raise GateError(
            f"{policy.name}: $ref {error.ref!r} cannot be resolved; a policy is one file, and nothing is fetched"
        ) from None
    except RecursionError:
        raise GateError(f"{policy.name}: it refers to itself endlessly") from None
    reasons: dict[tuple[str, str], Reason] = {}
    for validation_error in found:
        for name, message in _said(validation_error):
            rule = position(policy.document, validation_error.absolute_schema_path)
            reason = _reason(target, values, policy.name, name, message, rule, _words(validation_error))
            reasons.setdefault((name, message), reason)
    return list(reasons.values())


def instance(values: Mapping[str, Decision]) -> dict[str, Any]:
    """What a policy is applied to: the values by dotted name, and nested."""
    flat = {
        name: lockfile.without_secrets({name.rpartition(".")[2]: decision.value})[name.rpartition(".")[2]]
        for name, decision in values.items()
    }
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, leaf = name.split(".")
        section: Any = nested
        for parent in parents:
            section = section.setdefault(parent, {}) if isinstance(section, dict) else None
        if isinstance(section, dict) and not isinstance(section.get(leaf), dict):
            section[leaf] = dict(value) if isinstance(value, dict) else value
    return {**flat, **nested}


def _said(error: ValidationError) -> Iterable[tuple[str, str]]:
    """(setting, what is wrong with it); the setting is empty where the error is about all of them together."""
    path = ".".join(map(str, error.absolute_path))
    instance: Any = error.instance
    keyword = str(error.validator)
    if keyword == "required" and isinstance(instance, dict) and isinstance(error.validator_value, list):
        # jsonschema reports each missing name on its own, and does not say which: all of them are told of each report.
        for name in error.validator_value:
            if name not in instance:
                yield f"{path}.{name}" if path else str(name), _MISSING
        return
    if (keyword, error.validator_value) in (("not", {}), ("type", "null")):
        yield path, _UNWANTED
        return
    if isinstance(instance, dict):
        message = error.message if len(error.message) <= LONGEST else f"the settings do not meet `{keyword}`"
        yield path, message
        return
    value = f"is {shown(instance)}"
    expected = {
        "const": lambda rule: f"only {shown(rule)} is allowed",
        "enum": lambda rule: f"allowed are {', '.join(map(shown, rule))}",
        "maximum": lambda rule: f"at most {shown(rule)} is allowed",
        "minimum": lambda rule: f"at least {shown(rule)} is required",
        "type": lambda rule: f"its type must be {rule if isinstance(rule, str) else ' or '.join(rule)}",
    }.get(keyword)
    if expected is not None:
        yield path, f"{value}; {expected(error.validator_value)}"
    else:
        yield path, f"{value}; {error.message[:LONGEST]}"


def _words(error: ValidationError) -> str:
    """What the policy says about the rule that is not met, for people."""
    schema: Any = error.schema
    words = (schema.get("description") or schema.get("title")) if isinstance(schema, dict) else None
    return " ".join(str(words).split()).rstrip(".") if words and error.absolute_schema_path else ""


def _reason(
    target: Target,
    values: Mapping[str, Decision],
    policy: str,
    name: str,
    message: str,
    rule: tuple[int, int],
    words: str,
) -> Reason:
    file, line, column = _where(target, values, name)
    where = f"{policy}:{rule[0]}:{rule[1]}" if rule[0] else policy
    text = f"run {target.name}: {name} {message} ({where})" if name else f"run {target.name}: {message} ({where})"
    how = {_MISSING: f"set {name}", _UNWANTED: f"remove {name}"}.get(message, f"set {name or 'the settings'} otherwise")
    help = words or f"{how}, or ask whoever keeps {policy}"
    return Reason("policy", "policy-violated", file, text, help, target.name, line, column)


def _where(target: Target, values: Mapping[str, Decision], name: str) -> tuple[str, int, int]:
    """Where the value is written; else where the lock holds it; else the run in its spec."""
    known = name
    while known and known not in values:
        known = known.rpartition(".")[0]
    if not known:
        return target.spec.place_of(target.name)
    if (place := values[known].place) is not None:
        return display_name(target.spec.folder / place.file), place.line, place.column
    path = target.folder / lockfile.NAME
    document = load(path, display_name(path), "json")
    for part in ("settings", "changes", "accelerate") if document.root is not None else ():
        if document.get((part, known)) is not None:
            return (document.name, *position(document, [part, known]))
    return target.spec.place_of(target.name)
