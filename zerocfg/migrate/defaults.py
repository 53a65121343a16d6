"""Training arguments that nobody writes, and that two sets of releases fill with something else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from zerocfg.catalog.history import State, call_defaults, histories
from zerocfg.catalog.versions import Release
from zerocfg.migrate.argument_history import since
from zerocfg.rules.argument_reader import methods, reader, trainer_configs
from zerocfg.rules.effects import recipe_data
from zerocfg.run.model import Call, Run

_Named = tuple[tuple[str, Release], ...]
_MEANT = {"report_to": "all"}
"""What the Trainer makes of an argument that is None."""


@dataclass(frozen=True, slots=True)
class ChangedDefault:
    """A training argument that nobody writes, and what two releases put in its place. ``since``: the release that
    changed it. ``of``: the one config of TRL, among several that may read the recipe, that changed it."""

    library: str
    name: str
    then: Any
    now: Any
    since: str
    of: str = ""


def changed_arguments(run: Run, old: Mapping[str, Release], new: Mapping[str, Release]) -> Iterator[ChangedDefault]:
    """The defaults of a run's arguments that mean different things in two sets of releases. Of a recipe that may be for
    several configs of TRL those that all of them change alike come first, then those of each."""
    who = reader(run)
    if who is None:
        return
    classes = tuple(sorted(methods(run) or trainer_configs())) if who == "trl" else ("",)
    written = recipe_data(run).keys() | run.arguments.keys()
    yield from (item for item in _changed(classes, tuple(old.items()), tuple(new.items())) if item.name not in written)


def changed_in_call(call: Call, old: Mapping[str, Release], new: Mapping[str, Release]) -> Iterator[ChangedDefault]:
    """The same of what a call of TrainingArguments, or of a config of TRL, leaves out."""
    library, _, name = call.name.rpartition(".")
    classes = (name,) if library == "trl" else ("",)
    written = call.arguments.keys()
    yield from (item for item in _changed(classes, tuple(old.items()), tuple(new.items())) if item.name not in written)


def changed_dtype(old: Mapping[str, Release], new: Mapping[str, Release]) -> ChangedDefault | None:
    """In which dtype two releases of transformers load a model where nobody says one, if they differ."""
    library, key = "transformers", "from_pretrained.dtype"
    if library not in old or library not in new:
        return None
    known = call_defaults(library)
    then, now = (known.state(key, side[library]) for side in (old, new))
    if then is None or now is None or then == now:
        return None
    edge = since(known, key, max(old[library], new[library]), "default")
    return ChangedDefault(library, key, then["default"], now["default"], edge)


@lru_cache(maxsize=64)
def _changed(classes: tuple[str, ...], old: _Named, new: _Named) -> tuple[ChangedDefault, ...]:
    names = dict.fromkeys(name for name in histories("transformers").raw if "." not in name)
    for key in histories("trl").raw if classes != ("",) else ():
        of, _, name = key.rpartition(".")
        if of in classes:
            names[name] = None
    alike, apart = [], []
    for name in names:
        of_each = [_of_class(name, of, dict(old), dict(new)) for of in classes]
        first = of_each[0]
        if first is not None and all(item == first for item in of_each):
            alike.append(first)
        else:
            apart += [replace(item, of=of) for item, of in zip(of_each, classes, strict=True) if item is not None]
    return (*alike, *apart)


def _of_class(name: str, of: str, old: Mapping[str, Release], new: Mapping[str, Release]) -> ChangedDefault | None:
    before, after = _state(name, of, old), _state(name, of, new)
    if before is None or after is None:
        return None
    then, now = (_MEANT.get(name, item) if item is None else item for item in (before[1], after[1]))
    if (_nothing(then) and _nothing(now)) or (then == now and isinstance(then, bool) == isinstance(now, bool)):
        return None
    library = "trl" if "trl" in (before[0], after[0]) else "transformers"
    key = f"{of}.{name}" if library == "trl" else name
    return ChangedDefault(
        library, name, then, now, since(histories(library), key, max(old[library], new[library]), "default")
    )


def _state(name: str, of: str, at: Mapping[str, Release]) -> tuple[str, Any] | None:
    """Which library fills an argument in the releases, and with what; None where that is not known, and where they do
    not have it. A config of TRL inherits what it does not state."""
    if of:
        if "trl" not in at or not _exists(of, at["trl"]):
            return None
        own: State = histories("trl").state(f"{of}.{name}", at["trl"])
        if own is not None:
            return ("trl", own["default"]) if "default" in own else None
    inherited = histories("transformers").state(name, at["transformers"]) if "transformers" in at else None
    return ("transformers", inherited["default"]) if inherited is not None and "default" in inherited else None


@lru_cache(maxsize=256)
def _exists(of: str, at: Release) -> bool:
    """Whether a release of TRL has a config of this name."""
    known = histories("trl")
    return any(known.state(key, at) is not None for key in known.raw if key.startswith(f"{of}."))


def _nothing(value: object) -> bool:
    return value in (None, False, "", "no") or value == [] or value == {}
