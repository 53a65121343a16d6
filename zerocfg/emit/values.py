"""Emitted values: validated by the typed models, and written so that every reader understands them alike."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pydantic
import yaml

from zerocfg.catalog.values import show

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocfg.models.base import Section


def one_line(text: str) -> str:
    """A text that stays on the line of its comment; what no YAML reader takes, even there, becomes ``?``."""
    return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))


def yaml_value(value: object) -> str:
    """A value on one line of YAML 1.1, as PyYAML, which the trainers use, reads it back: ``1.0e-05``, ``'no'``."""
    for plain in (True, False):  # PyYAML folds line ends of Unicode (NEL) unless it escapes them
        text: str = yaml.safe_dump(
            value, default_flow_style=True, allow_unicode=plain, width=float("inf"), sort_keys=False
        )
        text = text.removesuffix("\n").removesuffix("\n...")
        if text.isprintable():
            break
    return text


def json_value(value: object) -> str:
    """A value as strict JSON that a YAML 1.1 reader reads the same way: TRL reads JSON recipes with PyYAML.

    Raises ValueError for infinity and NaN.
    """
    if isinstance(value, float):
        text = json.dumps(value, allow_nan=False)
        mantissa, sign, exponent = text.partition("e")
        if sign:
            mantissa += "" if "." in mantissa else ".0"
            return f"{mantissa}e{exponent}"
        return text
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json_value(str(key))}: {json_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(json_value(item) for item in value) + "]"
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if text.isprintable() else json.dumps(value, allow_nan=False)


class InvalidConfigError(ValueError):
    """A config holds a value that its typed model refuses, as the library would, or that no file can hold."""


def _key(data: Any, place: tuple[int | str, ...]) -> str:
    """The dotted key of a place in pydantic's words, which name types and validators between the keys."""
    names = []
    for part in place:
        if part in data if isinstance(data, dict) else isinstance(data, list) and part in range(len(data)):
            names.append(str(part))
            data = data[part]
    return ".".join(names)


def typed(model: type[Section], data: Mapping[str, object]) -> dict[str, object]:
    """The values of a config as its model holds them: those that ``data`` states, converted as the library would.

    Raises InvalidConfigError for a config that the library refuses. After a clean lint that is a bug of zerocfg.
    """
    try:
        made = model.model_validate(data)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InvalidConfigError(
            f"{model.__name__}: {_key(data, first['loc'])}: {first['msg']} (given {show(first['input'])})"
        ) from None
    return made.model_dump(exclude_unset=True, serialize_as_any=True)
