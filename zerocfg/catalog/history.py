"""What each release of a library reads: the histories that ``make facts`` writes to ``schemas/releases/*.json``.

A history is a list of (release, state), oldest first; a state holds until the next one. ``None``: there is no such key.
Names are dotted paths; ``zero_optimization.*`` speaks of the section itself (what an unknown key does there).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from zerocfg.catalog.schema import schema_folder
from zerocfg.catalog.versions import Bounds, Release, release

State = dict[str, Any] | None


class Histories:
    """The histories of one library. ``releases``: all that were walked, oldest first. ``mentioned``: names that some
    release reads elsewhere, or without a schema; kept of the frameworks around the Trainer alone."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.names: list[str] = raw["releases"]
        self.releases: list[Release] = [release(name) for name in self.names]
        self.raw: dict[str, list[tuple[str, State]]] = raw["keys"]
        self.mentioned: frozenset[str] = frozenset(raw.get("mentioned", ()))
        self._edges: dict[str, list[Release]] = {}

    def edges(self, key: str) -> list[Release]:
        """The releases from which each state of a key's history holds."""
        found = self._edges.get(key)
        if found is None:
            found = self._edges[key] = [release(since) for since, _ in self.raw.get(key, ())]
        return found

    def state(self, key: str, at: Release) -> State:
        """What a key is in a release; the oldest known state for releases before it."""
        edges = self.edges(key)
        return self.raw[key][max(0, bisect_right(edges, at) - 1)][1] if edges else None

    def today(self, key: str) -> State:
        """What a key is in the newest known release."""
        return self.raw[key][-1][1] if key in self.raw else None

    def changed_since(self, at: Release) -> list[str]:
        """The keys that have changed since a release."""
        return [key for key, entries in self.raw.items() if len(entries) > 1 and release(entries[-1][0]) > at]

    def within(self, limits: Bounds) -> list[Release]:
        """The known releases between two bounds, oldest first."""
        low, high, closed = limits
        return [item for item in self.releases if low <= item and (item < high or (closed and item == high))]

    def admitted(self, limits: Bounds) -> list[Release]:
        """As `within`; for releases between two known ones the one before them. Empty where all are older than any."""
        return self.within(limits) or [item for item in self.releases if item <= limits[0]][-1:]

    def changed(self, key: str) -> bool:
        """Whether the releases differ about a key."""
        return len(self.raw.get(key, ())) > 1

    def strictness_changed(self, section: str) -> bool:
        """Whether the releases differ about what an unknown key does in a section."""
        return len({state["unknown"] for _, state in self.raw.get(f"{section}.*", ()) if state is not None}) > 1

    def since(self, key: str) -> str | None:
        """The release that brought a key that today's release has; None where all known releases have it, or today's
        has not."""
        found = None
        for since, state in self.raw.get(key, ()):
            found = None if state is None or state.get("removed") else (found or since)
        return None if found == self.names[0] else found


def name_in(library: str, path: Sequence[str]) -> str:
    """What a history calls the key at a path of a config. A key in a section of accelerate's YAML is the option of the
    launcher that it becomes."""
    if library == "accelerate":
        return f"cluster.{path[0]}" if len(path) == 1 else f"option.{path[-1]}"
    return ".".join(path)


@cache
def histories(library: str) -> Histories:
    """The histories of "deepspeed", "accelerate", "transformers", "trl", or a framework that has such a file. Of
    accelerate these are its config file, its options and its variables: half of what is known of it."""
    return Histories(_read(library))


@cache
def with_classes(library: str) -> Histories:
    """The histories of a library, with those of the classes that scripts make by themselves."""
    raw, classes = _read(library), f"{library}-classes"
    return Histories({**raw, "keys": {**raw["keys"], **(_read(classes)["keys"] if _file(classes).is_file() else {})}})


@cache
def call_defaults(library: str) -> Histories:
    """What a library puts in the place of arguments that calls leave out: `from_pretrained.dtype`. Each release that is
    named was run (`tests/models/test_call_defaults.py` runs today's)."""
    return Histories(_read(f"{library}-calls"))


@cache
def signatures(library: str) -> Histories:
    """The parameters of `Accelerator` or of the trainers of "accelerate", "transformers" or "trl", release by release
    (`tools/facts/signatures.py`): `SFTTrainer` and `SFTTrainer.args`. An `open` class takes any keyword."""
    return Histories(_read(f"{library}-signatures"))


@cache
def lost_names() -> dict[str, Any]:
    """By library, what older releases had and the newest lacks (`catalog/lost_names.py`)."""
    return _read("lost-names")


def _read(name: str) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads(_file(name).read_text(encoding="utf-8"))
    return raw


def _file(name: str) -> Path:
    return schema_folder() / "releases" / f"{name}.json"
