"""What `from_pretrained` of a model of transformers no longer takes (`tools.facts.load_arguments` loaded a model with
each keyword in every minor release)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from zerocfg.catalog.schema import schema_folder


@lru_cache(maxsize=1)
def removed_load_arguments() -> Mapping[str, str]:
    """By keyword: the release from which on every class of models refuses it, whatever its value, but for those that
    take any."""
    found: dict[str, str] = _facts()["removed"]
    return found


@lru_cache(maxsize=1)
def classes_that_take_any() -> Mapping[str, Sequence[str]]:
    """Classes of models that hand an unknown keyword on to somebody who takes it, in some release that refuses it
    elsewhere; of an Auto class the types of the models that do."""
    found: dict[str, list[str]] = _facts()["takes_any"]
    return found


@lru_cache(maxsize=1)
def _facts() -> dict[str, Any]:
    path = schema_folder() / "releases" / "transformers-load-arguments.json"
    read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return read
