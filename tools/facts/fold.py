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
    """What the file keeps of the keys of a release: what takes most of its room and is read by nobody stays out. Of TRL
    these are the types and what is experimental, of accelerate's options the spellings that follow from their names,
    of transformers the enumerations, whose words stand with the arguments that take them."""
    if library == "transformers":
        return {name: facts for name, facts in keys.items() if not name.startswith("words.")}
    if library == "accelerate":
        return {name: _option(name, facts) if isinstance(facts, dict) else facts for name, facts in keys.items()}
    if library != "trl":
        return dict(keys)
    return {
        name: {word: held for word, held in facts.items() if word != "kinds"}
        for name, facts in keys.items()
        if isinstance(facts, dict) and not name.startswith("experimental.")
    }


def _option(key: str, facts: Mapping[str, object]) -> dict[str, object]:
    """An option of the launcher: its other names, and what its parser does with it unless it stores a value."""
    kept = {word: held for word, held in facts.items() if word != "flags" and (word, held) != ("action", "Store")}
    own = key.removeprefix("option.")
    flags = facts.get("flags")
    others = [flag for flag in flags if _name(flag) != own] if isinstance(flags, list) else []
    return {**kept, "aliases": others} if others else kept


def _name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


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


def files(library: str, histories: Mapping[str, History]) -> dict[str, dict[str, History]]:
    """By name: the files that hold the histories of a library. accelerate's classes have their own: every lint of a
    project that says which releases it has reads the rest, and none these."""
    classes = {name: held for name, held in histories.items() if library == "accelerate" and name[0].isupper()}
    rest = {name: held for name, held in histories.items() if name not in classes}
    return {library: rest, **({f"{library}-classes": classes} if classes else {})}


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
