"""A compiled schema as an older release of its library has it.

The compiled schema is today's. Where a history says that a release differs, its copy is changed: keys that came later
are taken out, those that were removed since come back, bounds, defaults and strictness are that release's. What a
release does not check is left open, so that less is said, never more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from zerocfg.catalog.history import State, histories, name_in
from zerocfg.catalog.schema import Schema, load_schema, schema_folder
from zerocfg.catalog.versions import Bounds, Release

Raw = dict[str, Any]
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_PLAIN = frozenset({"boolean", "integer", "number", "string", "object", "array", "null"})
_NO_SECTION = {(): "error", ("null",): "absent", ("null", "false"): "falsy"}
"""What a walk saw in the place of a section, and what the section's fact ``null`` calls that."""


@cache
def schema_at(name: str, at: Release) -> Schema:
    """The schema "deepspeed" or "accelerate" as a release has it; today's for releases that are not older."""
    edit = _EDITS.get(name)
    if edit is None or at >= histories(name).releases[-1]:
        return load_schema(name)
    raw: Raw = json.loads((schema_folder() / f"{name}.json").read_text(encoding="utf-8"))
    edit(raw, at)
    return Schema(raw)


def differing(name: str, keys: Callable[[str], bool], limits: Bounds) -> list[Release]:
    """Releases, oldest first, one for each way in which the keys that a document holds were read between two bounds.

    ``keys``: whether the document holds a key, by the name that histories have for it. Empty where no known
    release lies between.
    """
    known = histories(name)
    within = known.admitted(limits)
    if len(within) < 2:
        return within
    edges = {edge for key in known.raw if len(known.raw[key]) > 1 and keys(key) for edge in known.edges(key)[1:]}
    return [within[0], *(one for one in within[1:] if one in edges)]


def _deepspeed(raw: Raw, at: Release) -> None:
    known = histories("deepspeed")
    newest = known.releases[-1]
    for key in sorted(key for key, entries in known.raw.items() if len(entries) > 1):
        then, now = known.state(key, at), known.state(key, newest)
        *above, name = key.split(".")
        if then == now or above[:1] in (["optimizer"], ["words"]):
            continue
        scheduler = len(above) == 2 and above[0] == "scheduler" and above[1] != "params"
        section = raw["$defs"].get(f"{above[1]}Params") if scheduler else _section(raw, above)
        if section is None:
            continue
        if name == "*":
            _strictness(section, then)
        else:
            _key(raw, section, name, then, known.state(".".join((*above, "*")), at))


def _section(raw: Raw, path: list[str]) -> Raw | None:
    """The raw section at a path of names; None where there is none."""
    here = raw
    for part in path:
        prop = here.get("properties", {}).get(part)
        opened = next(_opened(raw, prop), None) if prop is not None else None
        if opened is None:
            return None
        here = opened
    return here


def _opened(raw: Raw, prop: Raw) -> Iterator[Raw]:
    for branch in (prop, *prop.get("anyOf", ())):
        reference = branch.get("$ref")
        if reference:
            here = raw
            for part in reference.removeprefix("#/").split("/"):
                here = here[part]
            yield here
        elif "properties" in branch:
            yield branch


def _strictness(section: Raw, then: State) -> None:
    """What an unknown key does in the section, and how its values are read."""
    if then is None:
        return  # the section itself is not there: its key says so
    typed = "model" in then
    if not typed and section.get("additionalProperties") is True:
        return  # that nothing refuses a key does not say that nobody reads it: DeepSpeed hands those of `amp` to Apex
    facts = section.setdefault("x-zerocfg", {})
    facts["unknown"] = then["unknown"]
    section["additionalProperties"] = False
    for name, prop in section.get("properties", {}).items():
        if not typed and "$ref" not in prop:
            section["properties"][name] = {**_unchecked(prop), "x-zerocfg": _untyped(prop)}
        elif then.get("model") == 1 and prop.get("x-zerocfg", {}).get("reads") == "lax":
            prop["x-zerocfg"]["reads"] = "lax 1"


def _unchecked(prop: Raw) -> Raw:
    return {word: prop[word] for word in ("description", "default") if word in prop}


def _untyped(prop: Raw) -> Raw:
    dropped = ("no_bool", "no_text", "never", "removed")
    facts = {word: held for word, held in prop.get("x-zerocfg", {}).items() if word not in dropped}
    return {**facts, "reads": "raw", "auto_raw": "kept"}


def _key(raw: Raw, section: Raw, name: str, then: State, around: State) -> None:
    """What a key is then; ``around``: the section that it stands in."""
    properties = section["properties"]
    prop = properties.get(name)
    if then is None:
        properties.pop(name, None)
        for other in [word for word, held in properties.items() if held.get("x-zerocfg", {}).get("read_as") == name]:
            del properties[other]
    elif then.get("removed"):
        return
    elif prop is None or "removed" in prop.get("x-zerocfg", {}):
        properties[name] = _returned(then, around)
    else:
        _facts(prop, then)
        for inner in _opened(raw, prop):
            if _others(inner, then) and then["takes"] == []:
                prop["type"] = "object"


def _returned(then: Raw, around: State) -> Raw:
    """A key that today's release has no more. What is in a section is left open; a section it has to be."""
    kinds = then.get("kinds", ())
    if around is not None and "model" in around and _PLAIN.issuperset(map(str, kinds)):
        reads = "lax 1" if around["model"] == 1 else "lax"
        return {"description": "", "type": [*kinds], "default": then.get("default"), "x-zerocfg": {"reads": reads}}
    open_: Raw = {"description": "", "x-zerocfg": {"reads": "raw", "auto_raw": "kept"}}
    if "section" not in then.get("kinds", ()) or not _others(open_, then):
        return open_
    return {**open_, "type": "object", "properties": {}, "additionalProperties": True}


def _others(section: Raw, then: Raw) -> bool:
    """What a release takes in the place of a section, where it takes nothing but what counts as none; whether so."""
    meaning = _NO_SECTION.get(tuple(then.get("takes", ("anything",))))
    if meaning is not None:
        section.setdefault("x-zerocfg", {})["null"] = meaning
    return meaning is not None


def _facts(prop: Raw, then: Raw) -> None:
    for branch in (prop, *prop.get("anyOf", ())):
        if any(bound in branch for bound in _BOUNDS.values()):
            for bound in _BOUNDS.values():
                branch.pop(bound, None)
            branch.update({_BOUNDS[word]: held for word, held in then.items() if word in _BOUNDS})
    if "default" in then and not isinstance(then["default"], dict):
        prop["default"] = then["default"]
    if "deprecated" not in then:
        prop.get("x-zerocfg", {}).pop("deprecated", None)


def _accelerate(raw: Raw, at: Release) -> None:
    _newer_out(raw, raw, (), at)
    known = histories("accelerate")
    for key in known.raw:
        home, _, name = key.partition(".")
        prop = raw["properties"].get(name, {"x-zerocfg": {"removed": ""}}) if home == "cluster" else {}
        if "removed" in prop.get("x-zerocfg", {}) and known.state(key, at) is not None:
            raw["properties"][name] = {"description": "", "x-zerocfg": {"reads": "raw", "auto_raw": "kept"}}


def _newer_out(raw: Raw, section: Raw, path: tuple[str, ...], at: Release) -> None:
    """Takes out the keys of a section, and of those below it, that a release of accelerate has not."""
    known = histories("accelerate")
    for name, prop in list(section.get("properties", {}).items()):
        key = name_in("accelerate", (*path, name))
        removed = "removed" in prop.get("x-zerocfg", {})
        if key in known.raw and known.state(key, at) is None and not removed:
            del section["properties"][name]
        elif not path:
            for inner in _opened(raw, prop):
                _newer_out(raw, inner, (name,), at)


_EDITS: dict[str, Callable[[Raw, Release], None]] = {"deepspeed": _deepspeed, "accelerate": _accelerate}
WALKED = frozenset(_EDITS)
"""The compiled schemas that can be had as an older release has them."""
