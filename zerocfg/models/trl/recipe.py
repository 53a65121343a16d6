"""A TRL recipe: the settings of any TRL trainer, of the model and of the script, in one mapping."""

from __future__ import annotations

import functools
import operator
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import create_model

from zerocfg.models.base import Section, key
from zerocfg.models.training_arguments import TrainingArguments
from zerocfg.models.trl.keys import KEYS
from zerocfg.models.trl.older_names import DEPRECATED, REMOVED
from zerocfg.models.walked import walked_keys

TRAINERS = ("SFTConfig", "DPOConfig", "KTOConfig", "RewardConfig", "GRPOConfig", "RLOOConfig", "DistillationConfig")
_SCRIPTS = ("GRPOScriptArguments", "RLOOScriptArguments")
"""They extend ScriptArguments, and are the only classes that were not walked: no script of a user parses them."""
CLASSES = ("ScriptArguments", *_SCRIPTS, "DatasetMixtureConfig", "ModelConfig", *TRAINERS)

# Defaults that are made anew for each object: a walk does not know them.
_MADE: dict[str, object] = {"DatasetMixtureConfig.datasets": [], "DPOConfig.loss_type": ["sigmoid"]}

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
    "None": None,
}

# Accepted beyond the declared type.
ALSO: dict[str, str] = {
    "scale_rewards": "bool",  # true is group, false is none
    "lora_target_modules": "str",  # a name that peft knows (all-linear), or a regular expression
}


class Declared(NamedTuple):
    """What a dataclass of TRL says of a key."""

    default: object
    choices: tuple[str, ...] = ()


@functools.cache
def declared(owner: str) -> dict[str, Declared]:
    """The keys of a dataclass of TRL. LookupError where `KEYS` lacks one, or has it for nothing.

    Of a trainer's: those that TrainingArguments lacks, or has with another default.
    """
    if owner in _SCRIPTS:
        own = dict.fromkeys(("reward_model_name_or_path", "reward_funcs"), Declared(None))
        return declared("ScriptArguments") | own
    found = {}
    for name, facts in walked_keys("trl", owner).items():
        default = _MADE[f"{owner}.{name}"] if "computed" in facts else facts["default"]
        inherited = TrainingArguments.model_fields.get(name) if owner in TRAINERS else None
        if inherited is None or inherited.default != default:
            found[name] = Declared(default, tuple(facts.get("choices", ())))
    if unknown := found.keys() - KEYS.keys():
        raise LookupError(f"{owner} of TRL has {', '.join(sorted(unknown))}, of which models/trl/keys.py says nothing")
    return found


def _annotation(types: str) -> Any:
    parts = sorted(types.split(" | "), key="None".__eq__)  # null is the last alternative
    return functools.reduce(operator.or_, (_TYPES[part] for part in parts))


def _field(name: str) -> tuple[Any, Any]:
    """Annotation and field of one key, put together from all dataclasses that declare it."""
    entries = {owner: entry for owner in CLASSES if (entry := declared(owner).get(name)) is not None}
    inherited = TrainingArguments.model_fields.get(name)
    defaults = {owner: entry.default for owner, entry in entries.items()}
    if inherited is not None:
        defaults = {owner: defaults.get(owner, inherited.default) for owner in TRAINERS}
    agreed = len({repr(value) for value in defaults.values()}) == 1
    facts = _kept(name)
    if not agreed:
        facts["defaults"] = defaults
    if not set(TRAINERS) <= set(defaults):
        facts["in"] = sorted(defaults)
    types, about, unit = KEYS[name]
    doc = about or (inherited.description or "" if inherited is not None else "")
    default = next(iter(defaults.values())) if agreed else None
    cli = _cli(types, list(entries.values()))
    annotation = _annotation(f"{types} | {ALSO[name]}" if name in ALSO else types)
    return annotation, key(doc, default=default, unit=unit, cli=cli, facts=facts)


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


def _cli(types: str, entries: list[Declared]) -> dict[str, object]:
    """How text becomes a value, by the rules of HfArgumentParser."""
    parts = [part for part in types.split(" | ") if part != "None"]
    name = "str" if "str" in parts else parts[0]
    cli: dict[str, object] = {"type": name}
    if name.startswith("list["):
        cli = {"type": name[5:-1], "nargs": "+"}
    if all(entry.choices for entry in entries):
        cli["choices"] = list(dict.fromkeys(choice for entry in entries for choice in entry.choices))
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
    known_as: ClassVar[str | None] = None
    readers: ClassVar[dict[str, str]] = {"TrlParser": "converted"}

    env: dict[str, object] | None = key(
        "Environment variables that the parser sets before anything else.", default=None
    )


def _fields() -> dict[str, Any]:
    fields = {name: _field(name) for name in KEYS}
    for name, (text, renamed_to) in REMOVED.items():
        fields[name] = (object, key(removed=text, renamed_to=renamed_to))
    return fields


Recipe: type[Section] = create_model("Recipe", __base__=TrlKeys, __doc__=TrlKeys.__doc__, **_fields())
