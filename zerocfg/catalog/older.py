"""A compiled schema as an older release of its library has it.

The compiled schema is today's. Where a history says that a release differs, a section is changed when it is first asked
for: keys that came later are taken out, those that were removed since come back, bounds, defaults and strictness are
that release's. What a release does not check is left open, so that less is said, never more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from zerocfg.catalog.history import State, histories, name_in
from zerocfg.catalog.schema import Schema, Section, load_schema
from zerocfg.catalog.versions import Bounds, Release

Raw = dict[str, Any]
Edit = Callable[[Raw, str], None]
"""Makes a section at a dotted path what a release has. The section and its `properties` are its own, what is in them is
today's and stays as it is."""
_FACTS = "x-zerocfg"
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_PLAIN = frozenset({"boolean", "integer", "number", "string", "object", "array", "null"})
_NO_SECTION = {(): "error", ("null",): "absent", ("null", "false"): "falsy"}
"""What a walk saw in the place of a section, and what the section's fact ``null`` calls that."""


class _Older(Schema):
    """Reading the whole schema once more and editing all of it took as long as all else that a pin costs (2.5 of 9 ms);
    a file has few of the sections."""

    def __init__(self, raw: Raw, edit: Edit) -> None:
        self._edit = edit
        self._paths = {id(raw): ""}
        super().__init__(raw)

    def section(self, raw: Raw) -> Section:
        found = self._sections.get(id(raw))
        if found is None:
            found = self._sections[id(raw)] = Section(self._then(raw), self)
        return found

    def _then(self, raw: Raw) -> Raw:
        path = self._paths.get(id(raw))
        if path is None:
            return raw
        section = {**raw, "properties": {**raw.get("properties", {})}, _FACTS: {**raw.get(_FACTS, {})}}
        self._edit(section, path)
        for name, prop in section["properties"].items():
            for inner in self._opened(prop):
                self._paths.setdefault(id(inner), _joined(path, name))
            for name, reference in _facts(prop).get("variants", {}).get("cases", {}).items():
                self._paths.setdefault(id(self.deref({"$ref": reference})), _joined(path, name))
        return section

    def _opened(self, prop: Raw) -> Iterator[Raw]:
        """The sections that a key opens."""
        for branch in (prop, *prop.get("anyOf", ())):
            if "$ref" in branch or "properties" in branch:
                yield self.deref(branch)


@cache
def schema_at(name: str, at: Release) -> Schema:
    """The schema "deepspeed" or "accelerate" as a release has it; today's for releases that are not older."""
    edits = _EDITS.get(name)
    today = load_schema(name)
    return today if edits is None or at >= histories(name).releases[-1] else _Older(today.raw, edits(at))


def differing(name: str, keys: Callable[[str], bool], limits: Bounds) -> list[Release]:
    """Releases, oldest first, one for each way in which the keys that a document holds were read between two bounds.

    ``keys``: whether the document holds a key, by the name that histories have for it. Empty where no known
    release lies between.
    """
    known = histories(name)
    within = known.admitted(limits)
    if len(within) < 2:
        return within
    edges = {edge for key in known.raw if keys(key) for edge in known.edges(key)[1:]}
    return [within[0], *(item for item in within[1:] if item in edges)]


def _deepspeed(at: Release) -> Edit:
    known = histories("deepspeed")
    differ: dict[str, list[str]] = defaultdict(list)
    for key in known.changed_since(at):
        above, _, name = key.rpartition(".")
        differ[above].append(name)

    def edit(section: Raw, path: str) -> None:
        if path.partition(".")[0] in ("optimizer", "words"):
            return
        _others(section, known.state(path, at) or {})
        gone = set()
        for name in sorted(differ.get(path, ())):
            then = known.state(_joined(path, name), at)
            if then == known.today(_joined(path, name)):
                continue
            if name == "*":
                _strictness(section, then)
            elif then is None:
                gone.add(name)
            elif not then.get("removed"):
                _key(section["properties"], name, then, known.state(_joined(path, "*"), at))
        if gone:
            _take_out(section["properties"], gone)

    return edit


def _take_out(properties: Raw, gone: set[str]) -> None:
    """The keys of these names, and those that are read as one of them."""
    for name in [name for name, prop in properties.items() if name in gone or _facts(prop).get("read_as") in gone]:
        del properties[name]


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _facts(prop: Raw) -> Raw:
    facts: Raw = prop.get(_FACTS, {})
    return facts


def _strictness(section: Raw, then: State) -> None:
    """What an unknown key does in the section, and how its values are read."""
    if then is None:
        return  # the section itself is not there: its key says so
    typed = "model" in then
    if not typed and section.get("additionalProperties") is True:
        return  # that nothing refuses a key does not say that nobody reads it: DeepSpeed hands those of `amp` to Apex
    section[_FACTS]["unknown"] = then["unknown"]
    section["additionalProperties"] = False
    for name, prop in section["properties"].items():
        if not typed and "$ref" not in prop:
            section["properties"][name] = {**_unchecked(prop), _FACTS: _untyped(prop)}
        elif then.get("model") == 1 and _facts(prop).get("reads") == "lax":
            section["properties"][name] = {**prop, _FACTS: {**_facts(prop), "reads": "lax 1"}}


def _unchecked(prop: Raw) -> Raw:
    return {word: prop[word] for word in ("description", "default") if word in prop}


def _untyped(prop: Raw) -> Raw:
    dropped = ("no_bool", "no_text", "never", "removed")
    facts = {word: fact for word, fact in _facts(prop).items() if word not in dropped}
    return {**facts, "reads": "raw", "auto_raw": "kept"}


def _key(properties: Raw, name: str, then: Raw, around: State) -> None:
    """What a key is then; ``around``: the section that it stands in."""
    prop = properties.get(name)
    if prop is None or "removed" in _facts(prop):
        properties[name] = _returned(then, around)
    else:
        properties[name] = _with_facts(prop, then)


def _with_facts(prop: Raw, then: Raw) -> Raw:
    """A key that today's release has, too, with the bounds, default and facts of another."""
    found = {**_bounded(prop, then), _FACTS: {**_facts(prop)}}
    if "anyOf" in prop:
        found["anyOf"] = [_bounded(branch, then) for branch in prop["anyOf"]]
    if "default" in then and not isinstance(then["default"], dict):
        found["default"] = then["default"]
    if "deprecated" not in then:
        found[_FACTS].pop("deprecated", None)
    if then.get("takes") == [] and any("$ref" in branch for branch in (prop, *prop.get("anyOf", ()))):
        found["type"] = "object"
    return found


def _bounded(branch: Raw, then: Raw) -> Raw:
    if not any(bound in branch for bound in _BOUNDS.values()):
        return branch
    free = {word: limit for word, limit in branch.items() if word not in _BOUNDS.values()}
    return {**free, **{_BOUNDS[word]: limit for word, limit in then.items() if word in _BOUNDS}}


def _returned(then: Raw, around: State) -> Raw:
    """A key that today's release has no more. What is in a section is left open; a section it has to be."""
    kinds = then.get("kinds", ())
    if around is not None and "model" in around and _PLAIN.issuperset(map(str, kinds)):
        reads = "lax 1" if around["model"] == 1 else "lax"
        return {"description": "", "type": [*kinds], "default": then.get("default"), _FACTS: {"reads": reads}}
    open_ = _open()
    if "section" not in then.get("kinds", ()) or not _others(open_, then):
        return open_
    return {**open_, "type": "object", "properties": {}, "additionalProperties": True}


def _open() -> Raw:
    """A key of which nothing is checked."""
    return {"description": "", _FACTS: {"reads": "raw", "auto_raw": "kept"}}


def _others(section: Raw, then: Raw) -> bool:
    """What a release takes in the place of a section, where it takes nothing but what counts as none; whether so."""
    meaning = _NO_SECTION.get(tuple(then.get("takes", ("anything",))))
    if meaning is not None:
        section[_FACTS]["null"] = meaning
    return meaning is not None


def _accelerate(at: Release) -> Edit:
    known = histories("accelerate")

    def edit(section: Raw, path: str) -> None:
        above = (path,) if path else ()
        properties = section["properties"]
        for name, prop in list(properties.items()):
            key = name_in("accelerate", (*above, name))
            if key in known.raw and known.state(key, at) is None and "removed" not in _facts(prop):
                del properties[name]
        # A section's keys become the options of the launcher that are named after it: fsdp_config, --fsdp_...
        home, start = ("cluster.", "") if not path else ("option.", path.removesuffix("config"))
        for key in known.raw if "." not in path else ():
            name = key.removeprefix(home)
            gone = key.startswith(home + start) and (name not in properties or "removed" in _facts(properties[name]))
            if gone and known.state(key, at) is not None:
                properties[name] = _open()

    return edit


_EDITS: dict[str, Callable[[Release], Edit]] = {"deepspeed": _deepspeed, "accelerate": _accelerate}
WALKED = frozenset(_EDITS)
"""The compiled schemas that can be had as an older release has them."""
