"""Fields of TrainingArguments in a release of transformers: their types, defaults and words; and what the configs of
TRL's trainers put in the place of a default."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from zerocfg.catalog.history import histories
from zerocfg.catalog.versions import Release

_KINDS = {"integer": "int", "number": "float", "boolean": "bool"}


def exists(name: str, at: Release) -> bool:
    return histories("transformers").state(name, at) is not None


def kind(name: str, at: Release) -> str | None:
    """The type that a word of the command line is converted to: "int", "float", "bool" or "str"; None without such a
    field."""
    state = histories("transformers").state(name, at)
    if state is None:
        return None
    kinds = [item for item in state["kinds"] if item != "null"]
    return _KINDS.get(str(kinds[0]), "str") if len(kinds) == 1 else "str"


def default(name: str, at: Release) -> Any:
    """Its default; None without such a field, and where the release computes it."""
    return (histories("transformers").state(name, at) or {}).get("default")


def choices(name: str, at: Release) -> list[str]:
    """The words that it takes; none where any will do."""
    state = histories("transformers").state(name, at) or {}
    return [str(word) for item in state.get("kinds", ()) if isinstance(item, dict) for word in item["enum"]]


def fills(key: str, at: Release) -> bool:
    """Whether the Trainer fills the "auto" of a key of the DeepSpeed config from its arguments."""
    return histories("transformers").state(f"filled.{key}", at) is not None


@lru_cache(maxsize=16)
def ever(name: str) -> frozenset[str]:
    """The words that it takes in any known release."""
    return frozenset(word for at in histories("transformers").edges(name) for word in choices(name, at))


@lru_cache(maxsize=64)
def in_trl(name: str) -> tuple[str, ...]:
    """The fields of this name in dataclasses of TRL, by the names that histories have for them."""
    return tuple(key for key in histories("trl").raw if key.rpartition(".")[2] == name and "." in key)


def of_trl(name: str, at: Release) -> list[Any]:
    """The defaults that configs of trainers have of their own in a release of TRL; each of them once."""
    known = histories("trl")
    found: list[Any] = []
    for key in in_trl(name):
        state = known.state(key, at)
        if state is not None and (known.state(key.rpartition(".")[0], at) or {}).get("trainer"):
            found += [] if state.get("default") in found else [state.get("default")]
    return found
