"""Censuses of many releases as one file of histories: for each key, from which release it is what.

    "gradient_clipping": [["0.10.0", {"default": 0.0}], ["0.19.0", {"default": 1.0}]]
    "zero_optimization.mics_shard_size": [["0.10.0", {...}], ["0.18.0", null]]

Each entry holds until the next one; null: the key is not there. A key that starts behind the first known release begins
with null. One line a key, so that a new release changes the lines of what it changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise

History = list[tuple[str, object]]


def told(library: str, keys: Mapping[str, object]) -> dict[str, object]:
    """What the file keeps of the keys of a release. Of TRL neither types nor what is experimental: no rule reads them,
    and they would make most of the file."""
    if library != "trl":
        return dict(keys)
    return {
        name: {word: held for word, held in facts.items() if word != "kinds"}
        for name, facts in keys.items()
        if isinstance(facts, dict) and not name.startswith("experimental.")
    }


def fold(censuses: Sequence[tuple[str, Mapping[str, object]]]) -> dict[str, History]:
    """By key: its history over (release, keys of that release), given oldest first."""
    names = sorted({name for _, keys in censuses for name in keys})
    histories: dict[str, History] = {}
    for name in names:
        history: History = []
        for release, keys in censuses:
            state = keys.get(name)
            if not history or _json(history[-1][1]) != _json(state):  # 1 and 1.0 are not the same default
                history.append((release, state))
        histories[name] = history
    return histories


def written(library: str, releases: Sequence[str], histories: Mapping[str, History]) -> str:
    lines = [f"{_json(name)}: {_json(history)}" for name, history in histories.items()]
    head = f'{{\n"library": {_json(library)},\n"releases": {_json(list(releases))},\n"keys": {{\n'
    return head + ",\n".join(lines) + "\n}}\n"


def _json(of: object) -> str:
    return json.dumps(of, separators=(", ", ": "))


def changes(histories: Mapping[str, History], release: str) -> list[str]:
    """What a release changed, in words: one line a key."""
    return [
        _change(name, before, now)
        for name, history in histories.items()
        for (_, before), (since, now) in pairwise(history)
        if since == release
    ]


def _change(name: str, before: object, now: object) -> str:
    if before is None:
        return f"+ {name} {_json(now)}"
    return f"- {name}" if now is None else f"~ {name} {_json(before)} -> {_json(now)}"
