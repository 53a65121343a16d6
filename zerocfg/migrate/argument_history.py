"""The history of one key: which releases have it, which removed it, and its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zerocfg.catalog.history import Histories, State, histories
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.versions import Release, release

SCHEMAS = {"transformers": "training-arguments", "trl": "trl"}
"""The compiled schemas of the libraries whose keys are training arguments."""
_OF_EVERY_SCRIPT = ("ModelConfig", "ScriptArguments")


@dataclass(frozen=True, slots=True)
class Absent:
    """A training argument that a release does not have. ``since``: the release that dropped it, None where unknown.
    ``default``: what it was where nobody wrote it; only where ``defaulted``."""

    library: str
    since: str | None
    instead: str
    renamed_to: str | None
    defaulted: bool = False
    default: Any = None


def absent_argument(name: str, at: Mapping[str, Release], classes: frozenset[str]) -> Absent | None:
    """What is known of an argument that a release lacks; None for one that it has, or that no release ever had.

    ``at``: the release of each library that is asked about; ``classes``: the configs of TRL that it may be for.
    """
    inherited = load_schema("training-arguments").root.names.get(name)
    if inherited is not None or name in histories("transformers").raw:
        return _absent("transformers", name, [name], at)
    return _absent("trl", name, _of_classes(name, classes), at)


def _of_classes(name: str, classes: frozenset[str]) -> list[str]:
    """What TRL's histories call an argument: once for every class that has or had it, among those that a recipe may be
    for, else among those that every script of TRL reads, else among all."""
    every = [key for key in histories("trl").raw if key.rpartition(".")[2] == name and "." in key]
    own = [key for key in every if key.rpartition(".")[0].removeprefix("experimental.") in classes]
    return own or [key for key in every if key.rpartition(".")[0] in _OF_EVERY_SCRIPT] or every


def _absent(library: str, name: str, keys: list[str], at: Mapping[str, Release]) -> Absent | None:
    if library not in at:
        return None
    schema_key = load_schema(SCHEMAS[library]).root.names.get(name)
    facts = schema_key.facts if schema_key is not None else {}
    known = histories(library)
    keys = [key for key in keys if key in known.raw]
    if keys:
        if any(known.state(key, at[library]) is not None for key in keys):
            return None
        later = [edge for key in keys for edge, _ in known.raw[key] if release(edge) > at[library]]
        if later and all(_before(known, key, at[library]) is None for key in keys):
            return None  # it came later: no migration speaks of it
    elif "removed" not in facts:  # gone for longer than releases were walked
        return None
    gone = [edge for key in keys if (edge := _gone(known, key, at[library]))]
    states = [state for key in keys if (state := _before(known, key, at[library])) is not None]
    defaults = [state["default"] for state in states if "default" in state]
    same = bool(states) and len(defaults) == len(states) and all(default == defaults[0] for default in defaults)
    return Absent(
        library,
        max(gone, key=release) if gone else None,
        str(facts.get("removed", "")),
        facts.get("renamed_to"),
        same,
        defaults[0] if same else None,
    )


def _before(known: Histories, key: str, at: Release) -> State:
    """The last state of a key that an earlier release had; None where none had it."""
    found: State = None
    for edge, state in known.raw[key]:
        if release(edge) <= at and state is not None:
            found = state
    return found


def _gone(known: Histories, key: str, at: Release) -> str | None:
    """The release from which a key is not there any more, of those up to one."""
    found = None
    for edge, state in known.raw[key]:
        if release(edge) <= at:
            found = edge if state is None else None
    return None if found == known.names[0] else found


def has_argument(name: str, at: Mapping[str, Release]) -> bool:
    """Whether the releases have a training argument of this name, as far as it is known."""
    ours = histories("transformers")
    if "transformers" in at and name in ours.raw:
        return ours.state(name, at["transformers"]) is not None
    keys = (load_schema(schema).root.names.get(name) for schema in SCHEMAS.values())
    return any(key is not None and "removed" not in key.facts for key in keys)


def changed_default(known: Histories, key: str, old: Release, new: Release) -> tuple[Any, Any] | None:
    """The defaults of a key that both releases have, where they differ."""
    then, now = known.state(key, old), known.state(key, new)
    if then is None or now is None or "removed" in now or "default" not in then or "default" not in now:
        return None
    one, other = then["default"], now["default"]
    return None if one == other and isinstance(one, bool) == isinstance(other, bool) else (one, other)


def since(known: Histories, key: str, new: Release, of: str = "") -> str:
    """The release from which a key is what it is in a release: as a whole, or in one of its facts."""
    found = known.names[0]
    last: object = known  # nothing that a state holds
    for edge, state in known.raw[key]:
        now = state.get(of) if of and state is not None else state
        if release(edge) <= new and now != last:
            found, last = edge, now
    return found
