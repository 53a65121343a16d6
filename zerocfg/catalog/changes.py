"""What the releases of a library changed about the keys of configs, and what a key is in each, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from zerocfg.catalog.history import Histories, State, with_classes
from zerocfg.catalog.schema import schema_folder
from zerocfg.catalog.versions import LIBRARY_NAMES
from zerocfg.record import record

_KINDS = {
    "boolean": "true or false",
    "string": "text",
    "object": "mapping",
    "array": "list",
    "any": "any value",
}
_BOUNDS = {"ge": "from {}", "gt": "above {}", "le": "up to {}", "lt": "below {}"}
_STRICT = {
    "error": "a key that is not known in it is an error",
    "ignored": "a key that is not known in it is ignored",
    "passed": "a key that is not known in it is handed on",
}
_PLACES = {
    "option": "`--{}`",
    "cluster": "`{}`",
    "sagemaker": "`{}` (SageMaker)",
    "variable": "`{}` (environment)",
    "words": "values of `{}`",
    "filled": "`auto` of `{}`",
}
"""How the names of a history begin that are no paths of a config's keys."""


@record(frozen=True, slots=True)
class Change:
    """What one release changed about one key. ``name``: as people call it, in Markdown."""

    key: str
    name: str
    words: tuple[str, ...]


def known_libraries() -> list[str]:
    """The libraries whose releases were walked."""
    return [name for name in LIBRARY_NAMES if (schema_folder() / "releases" / f"{name}.json").is_file()]


def changes(library: str) -> dict[str, list[Change]]:
    """By release, newest first: the keys that it changed. The oldest known release has nothing before it."""
    known = with_classes(library)
    found: dict[str, list[Change]] = {name: [] for name in reversed(known.names[1:])}
    for key, history in known.raw.items():
        for (_, before), (since, now) in pairwise(history):
            if key.endswith(".*") and (before is None or now is None):
                continue  # the section's own key says that it came or went
            if before is None and _comes_with(known, key, since):
                continue  # of a new class everything is new
            words = tuple(_words(before, now))
            if words and not (_gone(now) and _goes_with(known, key, since)):
                found[since].append(Change(key, called(key), words))
    return found


def _gone(state: State) -> bool:
    return state is None or bool(state.get("removed"))


def _comes_with(known: Histories, key: str, since: str) -> bool:
    """Whether the class that a key is an argument of comes in the same release."""
    owner, _, argument = key.partition(".")
    came = next((release for release, state in known.raw.get(owner, ()) if state is not None), "")
    return bool(argument) and owner[:1].isupper() and came == since


def _goes_with(known: Histories, key: str, since: str) -> bool:
    """Whether the section that a key stands in goes in the same release."""
    parts = key.split(".")
    above = (".".join(parts[:at]) for at in range(1, len(parts)))
    return any(release == since and _gone(state) for item in above for release, state in known.raw.get(item, ()))


def called(key: str) -> str:
    """What people call a key of a history: `--zero_stage`, `zero_optimization.stage`, `SFTConfig(packing=)`."""
    head, _, rest = key.partition(".")
    if head in _PLACES and rest:
        return _PLACES[head].format(rest)
    if key.endswith(".*"):
        return f"`{key[:-2]}`"
    return f"`{head}({rest}=)`" if rest and head[:1].isupper() else f"`{key}`"


def keys_called(library: str, name: str) -> list[str]:
    """The keys of a library's history that people mean by a name."""
    known = with_classes(library)
    bare = name.lstrip("-").replace("-", "_")
    wanted = [f"option.{bare}"] if name.startswith("-") else [name, *(f"{head}.{name}" for head in _PLACES)]
    return [key for key in wanted if key in known.raw and not key.endswith("*")]


def states(known: Histories, key: str) -> Iterator[tuple[str, str]]:
    """Each release from which a key is something else, and what, oldest first."""
    said = ""
    for since, state in known.raw[key]:
        words = state_words(state)
        if words != said:
            yield since, words
        said = words


def state_words(state: State) -> str:
    """``integer from 0; default 50000000``."""
    if state is None:
        return "no such key"
    if state.get("removed"):
        return "removed"
    parts = [
        _type(state),
        _default(state),
        _false(state),
        _STRICT.get(state.get("unknown", ""), ""),
        _deprecated(state),
    ]
    return "; ".join(part for part in parts if part) or "known"


def _words(before: State, now: State) -> Iterator[str]:
    """The differences between two states that a config can show."""
    if now is None or now.get("removed"):
        if not _gone(before):
            yield "no longer read" if now is None else "removed: it stops the library where it is set"
        return
    if before is None or before.get("removed"):
        said = state_words(now)
        yield f"new: {said}" if said != "known" else "new"
        return
    if before.get("default") != now.get("default") and not (before.get("computed") or now.get("computed")):
        if "default" in before and "default" in now:
            yield f"default {_value(now['default'])}, was {_value(before['default'])}"
        elif "default" in now:
            yield f"default {_value(now['default'])}"
    old, new = _choices(before), _choices(now)
    if old is not None and new is not None:
        yield from _listed("also takes", [item for item in new if item not in old])
        yield from _listed("no longer takes", [item for item in old if item not in new])
    elif _type(before) != _type(now):
        yield f"{_type(now)}, was {_type(before)}" if _type(before) and _type(now) else f"checked: {_type(now)}"
    if before.get("false") != now.get("false"):
        yield _false(now) or f"false is no longer read as {_value(before['false'])}"
    if before.get("unknown") != now.get("unknown") and now.get("unknown") in _STRICT:
        yield _STRICT[now["unknown"]]
    if before.get("model") != now.get("model") and before.get("unknown") == now.get("unknown"):
        yield f"its values are read by pydantic {now['model']}" if "model" in now else "its values are not checked"
    if before.get("deprecated") != now.get("deprecated"):
        yield _deprecated(now) or "no longer deprecated"
    if bool(before.get("required")) != bool(now.get("required")):
        yield "must be given" if now.get("required") else "may be left out"


def _choices(state: dict[str, Any]) -> list[object] | None:
    """The accepted values of a key, where the history lists them."""
    found = state.get("choices", state.get("words"))
    if isinstance(found, list):
        return found
    enums = [kind["enum"] for kind in state.get("kinds", ()) if isinstance(kind, dict) and "enum" in kind]
    return enums[0] if len(enums) == 1 else None


def _listed(verb: str, values: list[object]) -> Iterator[str]:
    if values:
        yield f"{verb} {', '.join(map(_value, values))}"


def _type(state: dict[str, Any]) -> str:
    values = state.get("choices", state.get("words"))
    if isinstance(values, list):
        return "one of " + ", ".join(map(_value, values))
    kinds = [_kind(item) for item in state.get("kinds", ())]
    kinds = [kind for kind in kinds if kind != "null"] + [kind for kind in kinds if kind == "null"]
    limits = ", ".join(text.format(_value(state[word])) for word, text in _BOUNDS.items() if word in state)
    return " ".join(filter(None, (" or ".join(kinds), limits)))


def _kind(kind: object) -> str:
    if isinstance(kind, dict):
        return ", ".join(map(_value, kind.get("enum", ())))
    return _KINDS.get(str(kind), str(kind))


def _default(state: dict[str, Any]) -> str:
    return f"default {_value(state['default'])}" if "default" in state and not state.get("computed") else ""


def _false(state: dict[str, Any]) -> str:
    return f"false is read as {_value(state['false'])}" if "false" in state else ""


def _deprecated(state: dict[str, Any]) -> str:
    instead = state.get("deprecated")
    return f"deprecated: {instead}" if isinstance(instead, str) else "deprecated" if instead else ""


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
