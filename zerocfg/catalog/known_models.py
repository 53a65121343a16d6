"""Configs of well-known models, for a name on the hub that is in no cache.

``known_models.json`` holds, for each name, the keys of its published config.json that decide the parameters, and the
public file that states them (repository and path). A base model and its tuned variants of the same shape are one row.
Models whose parameters zerocfg cannot count exactly are left out: tests/models/test_models_by_transformers.py compares
every row with the class of transformers.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from zerocfg.patterns import pattern

_TABLE = Path(__file__).with_name("known_models.json")
_VARIANT = pattern(r"-(?:(?:instruct|thinking)-2507$|(?:instruct|thinking|chat|it|base|pt|hf|sft|dpo)(?=-|$))")
"""Parts of a name that say how a model was trained, and change no tensor."""


def known_config(name: str) -> dict[str, Any] | None:
    """The config of a well-known model by its name on the hub, with or without its owner; None for any other name."""
    row = _by_exact_name().get(_without_owner(name)) or _by_shape().get(_shape_name(name))
    return None if row is None else dict(row["config"])


def known_names() -> list[str]:
    """The names on the hub, in the order of the table: by model type, then by size."""
    return list(_rows())


def nearest_names(name: str, most: int = 3) -> list[str]:
    """The known names that are closest to a name, the closest first; empty where none is similar."""
    from difflib import get_close_matches

    names = {_shape_name(known): known for known in reversed(known_names())}
    wanted = _shape_name(name)
    return [names[near] for near in get_close_matches(wanted, names, n=most)] if len(wanted) <= 80 else []


@cache
def _rows() -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = json.loads(_TABLE.read_text(encoding="utf-8"))
    return rows


@cache
def _by_exact_name() -> dict[str, dict[str, Any]]:
    return {_without_owner(name): row for name, row in _rows().items()}


@cache
def _by_shape() -> dict[str, dict[str, Any]]:
    """The first row of each name without its variant: ``mixtral-8x22b`` is the base model's."""
    return {_shape_name(name): row for name, row in reversed(_rows().items())}


def _without_owner(name: str) -> str:
    return name.lower().rpartition("/")[2].removeprefix("meta-")


def _shape_name(name: str) -> str:
    return _VARIANT.sub("", _without_owner(name)).removesuffix("-v0.1")
