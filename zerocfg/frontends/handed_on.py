"""Keys that a framework hands on to the Trainer as they are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import yaml_number
from zerocfg.frontends.api import UNKNOWN, Value, Written

COMMON = (
    "deepspeed gradient_accumulation_steps learning_rate max_grad_norm weight_decay adam_beta1 adam_beta2 adam_epsilon "
    "max_steps"
).split()
"""Fields of TrainingArguments that most frameworks call so, too."""


def handed_on(recipe: Written, options: Written, fields: Mapping[str, str]) -> dict[str, Value]:
    """The values of ``fields``, which gives the field of TrainingArguments by key of the framework. An option wins over
    the recipe."""
    found = {
        fields[key]: Value(_read(fields[key], value), key)
        for key, value in recipe.items()
        if key in fields and not (fields[key] == "deepspeed" and not value)
    }
    return found | {fields[key]: Value(value, key, True) for key, value in options.items() if key in fields}


def _read(name: str, value: Any) -> Any:
    """A text that spells a number stays one: whether it arrives as a number the front end says by itself. A key without
    a value, an interpolation, a word where a number or a yes or no belongs say nothing that is known."""
    kind = (load_schema("training-arguments").root.keys[name].facts.get("cli") or {}).get("type")
    if isinstance(value, str):
        wanted = kind not in ("int", "float", "bool") or not isinstance(yaml_number(value), str)
        return value if wanted and "${" not in value else UNKNOWN
    if kind in ("int", "float"):
        return value if isinstance(value, (int, float)) else UNKNOWN
    return value if isinstance(value, bool) or (name == "deepspeed" and isinstance(value, dict)) else UNKNOWN
