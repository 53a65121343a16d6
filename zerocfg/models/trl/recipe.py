"""A TRL recipe: the settings of any TRL trainer, of the model and of the script, in one mapping."""

from __future__ import annotations

import functools
import operator
from typing import Any, ClassVar, Literal

from pydantic import create_model

from zerocfg.models.base import Section, key
from zerocfg.models.training_arguments import TrainingArguments
from zerocfg.models.trl.about import ABOUT
from zerocfg.models.trl.keys import KEYS
from zerocfg.models.trl.older_names import DEPRECATED, REMOVED

TRAINERS = tuple(
    name
    for name in KEYS
    if name.endswith("Config") and name not in ("_BaseConfig", "ModelConfig", "DatasetMixtureConfig")
)
EXTENDS = {
    "GRPOScriptArguments": "ScriptArguments",
    "RLOOScriptArguments": "ScriptArguments",
    **dict.fromkeys(TRAINERS, "_BaseConfig"),
}

_TYPES: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "dict": dict[str, object],
    "list[str]": list[str],
    "list[int]": list[int],
    "list[float]": list[float],
    "list[dict]": list[dict[str, object]],
    "tuple": list[float],
}

# Accepted beyond the declared type.
ALSO: dict[str, str] = {
    "scale_rewards": "bool",  # true is group, false is none
    "lora_target_modules": "str",  # a name that peft knows (all-linear), or a regular expression
}


def declared(owner: str, name: str) -> tuple[Any, ...] | None:
    """(type, default, choices...) of a key of a TRL dataclass; None when TRL does not declare it there."""
    entry = KEYS[owner].get(name)
    if entry is None and owner in EXTENDS:
        return declared(EXTENDS[owner], name)
    return entry


def _annotation(types: list[str]) -> Any:
    parts = dict.fromkeys(part for text in types for part in text.split(" | ") if part != "None")
    optional = any(text.endswith("None") for text in types)
    found = [_TYPES[part] for part in parts] + ([type(None)] if optional else [])
    return functools.reduce(operator.or_, found)


def _field(name: str) -> tuple[Any, Any]:
    """Annotation and field of one key, put together from all dataclasses that declare it."""
    entries = {owner: entry for owner in KEYS if (entry := declared(owner, name)) is not None}
    entries.pop("_BaseConfig", None)
    inherited = TrainingArguments.model_fields.get(name)
    defaults = {owner: entry[1] for owner, entry in entries.items()}
    if inherited is not None:
        defaults = {owner: defaults.get(owner, inherited.default) for owner in TRAINERS}
    agreed = len({repr(value) for value in defaults.values()}) == 1
    facts = _kept(name)
    if not agreed:
        facts["defaults"] = defaults
    if not set(TRAINERS) <= set(defaults):
        facts["in"] = sorted(defaults)
    types = [entry[0] for entry in entries.values()] + ([ALSO[name]] if name in ALSO else [])
    doc, unit = ABOUT.get(name, (inherited.description or "" if inherited is not None else "", None))
    default = next(iter(defaults.values())) if agreed else None
    return _annotation(types), key(doc, default=default, unit=unit, cli=_cli(list(entries.values())), facts=facts)


def _kept(name: str) -> dict[str, object]:
    """Facts that a key of TrainingArguments keeps when TRL declares it anew, and TRL's own deprecations."""
    facts: dict[str, object] = {}
    if name in TrainingArguments.model_fields:
        extra = TrainingArguments.model_fields[name].json_schema_extra
        stated = extra.get("x-zerocfg") if isinstance(extra, dict) else None
        known = stated if isinstance(stated, dict) else {}
        facts.update({fact: value for fact, value in known.items() if fact in ("deprecated", "renamed_to")})
    if name in DEPRECATED:
        _, facts["deprecated"], facts["renamed_to"] = DEPRECATED[name]
    return {fact: value for fact, value in facts.items() if value is not None}


def _cli(entries: list[tuple[Any, ...]]) -> dict[str, object]:
    """How text becomes a value, by the rules of HfArgumentParser; the first declaration stands for all."""
    first = entries[0][0]
    parts = [part for part in first.split(" | ") if part != "None"]
    name = "str" if "str" in parts else parts[0]
    cli: dict[str, object] = {"type": name}
    if name.startswith("list["):
        cli = {"type": name[5:-1], "nargs": "+"}
    if all(len(entry) > 2 for entry in entries):
        cli["choices"] = list(dict.fromkeys(choice for entry in entries for choice in entry[2]))
    return cli


class TrlKeys(TrainingArguments):
    """All TRL trainers share one mapping with the model's and the script's settings.

    `in` names the dataclasses that have a key, when not every trainer does; `defaults` its default in each of
    them, when they differ. Scripts add dataclasses of their own: an unknown key is wrong for TRL's commands
    alone.
    """

    unknown: ClassVar[Literal["error", "ignored", "passed"]] = "error"
    source: ClassVar[str] = "trl/scripts/utils.py"
    library: ClassVar[str] = "trl"
    readers: ClassVar[dict[str, str]] = {"TrlParser": "converted"}

    env: dict[str, object] | None = key(
        "Environment variables that the parser sets before anything else.", default=None
    )


def _fields() -> dict[str, Any]:
    names = dict.fromkeys(name for table in KEYS.values() for name in table)
    fields = {name: _field(name) for name in names}
    for name, (text, renamed_to) in REMOVED.items():
        fields[name] = (object, key(removed=text, renamed_to=renamed_to))
    return fields


Recipe: type[Section] = create_model("Recipe", __base__=TrlKeys, __doc__=TrlKeys.__doc__, **_fields())
