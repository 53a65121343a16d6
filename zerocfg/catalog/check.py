"""Checks of keys, types and ranges of a document against a compiled schema.

Yields issues, not findings: what an issue means to a reader is the business of the rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zerocfg.catalog.release_range import ReleaseRange
from zerocfg.catalog.schema import Key, Schema, Section
from zerocfg.catalog.suggest import closest
from zerocfg.catalog.values import RefusedError, as_int, convert, kind_of, show, yaml_number
from zerocfg.record import record
from zerocfg.source.node import Entry, Mapping, Node, Path, Scalar, plain

_CHECKED = ("lax", "lax 1", "argument")
"""Ways of reading in which null and the items of a list are looked at."""

Reason = tuple[str, str]
"""The kind of a refusal ("type", "range", "choice", "null") and its words, to stand after the value."""


@record(frozen=True, slots=True)
class Issue:
    """One thing that does not fit the schema.

    ``kind``: "unknown-crash" (an unknown key that stops the library), "unknown-ignored" (one that nobody reads),
    "removed", "deprecated", "inert", "type", "range", "choice", "null", "section-type", "raw-type", "missing" (a
    required key that is not there; ``entry`` is the section's own).
    """

    kind: str
    path: Path
    entry: Entry
    value: object
    reason: str = ""
    key: Key | None = None
    section: Section | None = None
    renamed: str | None = None
    releases: ReleaseRange | None = None
    """Those of the admitted releases for which it holds; None: all of them."""
    schema: Schema | None = None
    """What an unknown key was looked for in."""

    @property
    def suggestion(self) -> str | None:
        """The key that is read instead, or that was most likely meant; looked for when somebody asks, as most of many
        unknown keys are not told."""
        if self.renamed is None and self.schema is not None and self.section is not None:
            return suggest(self.entry.key, self.section, self.schema)
        return self.renamed


def check(root: Node | None, schema: Schema) -> Iterator[Issue]:
    """Every issue of a document below its root mapping; nothing for a root that is no mapping."""
    if isinstance(root, Mapping):
        yield from _section(root, schema.root, schema, ())


def _section(mapping: Mapping, section: Section, schema: Schema, path: Path) -> Iterator[Issue]:
    seen: set[str] = set()
    for entry in reversed(mapping.entries):
        if entry.key in seen:
            continue
        seen.add(entry.key)
        yield from _entry(entry, mapping, section, schema, (*path, entry.key))


def _unknown(entry: Entry, value: object, section: Section, schema: Schema, path: Path) -> Iterator[Issue]:
    """A key that its section does not know."""
    if section.open:
        return
    # DeepSpeed's typed sections drop whatever is "auto" before they look at its key.
    dropped = value == "auto" and section.facts.get("library") == "deepspeed"
    kind = "unknown-ignored" if section.unknown == "ignored" or dropped else "unknown-crash"
    yield Issue(kind, path, entry, value, "", None, section, schema=schema)


def _named_sections(mapping: Mapping, each: Section, schema: Schema, path: Path) -> Iterator[Issue]:
    """A mapping of names to sections of one kind, as the runs of a spec."""
    for named in mapping.entries:
        if isinstance(named.value, Mapping):
            yield from _section(named.value, each, schema, (*path, named.key))
            for name in each.missing({entry.key for entry in named.value.entries}):
                yield Issue("missing", (*path, named.key), named, None, name, each.keys[name], each)
        else:
            reason = f"is {kind_of(plain(named.value))}, not a mapping"
            yield Issue("section-type", (*path, named.key), named, plain(named.value), reason, None, each)


def _entry(entry: Entry, mapping: Mapping, section: Section, schema: Schema, path: Path) -> Iterator[Issue]:
    value = plain(entry.value)
    key = section.key(entry.key)
    if key is None:
        yield from _unknown(entry, value, section, schema, path)
        return
    if entry.key != key.name and section.unknown == "ignored" and _beaten(mapping, key):
        return
    for fact, kind in (("removed", "removed"), ("deprecated", "deprecated"), ("inert", "inert")):
        if fact in key.facts:
            yield Issue(kind, path, entry, value, str(key.facts[fact]), key, section, key.facts.get("renamed_to"))
            if fact == "removed":
                return
    inner = _variant(key, mapping, schema) or key.section(schema)
    if inner is not None and isinstance(entry.value, Mapping):
        yield from _section(entry.value, inner, schema, path)
        return
    each = key.entries(schema)
    if each is not None and isinstance(entry.value, Mapping):
        yield from _named_sections(entry.value, each, schema, path)
        return
    if inner is not None and not _other_branch(key, value):
        if not _absent(entry.key, value, key, inner):
            yield Issue("section-type", path, entry, value, f"is {kind_of(value)}, not a mapping", key, inner)
        return
    refused = refusal(key, value)
    if refused is not None and section.facts.get("yaml_numbers"):
        refused = refusal(key, yaml_number(value))
    if refused is not None:
        # What cannot be calculated with breaks at once where the library calculates ("auto" would, too).
        words = all(branch.get("type") == "string" for branch in key.scalars)
        breaks = key.facts.get("auto_raw") == "error" and (words or isinstance(value, (str, list, dict)))
        raw = key.facts.get("reads") in ("raw", "str") and not breaks
        yield Issue(
            "raw-type" if raw and refused[0] == "type" else refused[0],
            path,
            entry,
            value,
            refused[1],
            key,
            section,
        )


def _beaten(mapping: Mapping, key: Key) -> bool:
    """Whether an untyped section has the key under its first name; the alias is then not looked up."""
    first = mapping.entry(key.name)
    return first is not None and plain(first.value) is not None


def _absent(name: str, value: object, key: Key, inner: Section) -> bool:
    """Whether a value in the place of a section counts as no section at all."""
    if value == "auto":
        return inner.facts.get("library") == "deepspeed" and key.facts.get("auto_raw") != "error"
    if inner.facts.get("null") == "falsy" and not value:
        return True
    # Under its other name the section is taken as it is: `bfloat16: null` is passed on, `bf16: null` is not.
    return value is None and name == key.name and (inner.facts.get("null") == "absent" or key.nullable)


def _variant(key: Key, mapping: Mapping, schema: Schema) -> Section | None:
    """The section that fits the value of a sibling: the parameters of `optimizer` by its `type`."""
    chooser = mapping.entry(key.chooser) if key.chooser else None
    return key.variant(chooser.value.value, schema) if chooser and isinstance(chooser.value, Scalar) else None


def _other_branch(key: Key, value: object) -> bool:
    """True when a section may also be written as a plain value (``zero_optimization: true``) and is."""
    plain = [branch for branch in key.scalars if "properties" not in branch]
    return any(
        isinstance(value, bool) if branch.get("type") == "boolean" else _refused(branch, value, "lax") is None
        for branch in plain
    )


def suggest(name: str, section: Section, schema: Schema) -> str | None:
    """The key that an unknown one was most likely meant to be."""
    alive = [known for known, key in section.names.items() if not {"removed", "deprecated", "inert"} & set(key.facts)]
    return closest(name, alive)


def refusal(key: Key, value: object) -> Reason | None:
    """Why the library does not take a value for a key; None when it takes it.

    A literal "auto" is not judged where somebody may fill it.
    """
    if value == "auto" and ("auto" in key.facts or "auto_raw" in key.facts):
        return None
    if not value and any("minLength" in branch for branch in key.scalars):
        return ("range", "is out of range: it must not be empty")
    if "never" in key.facts:
        return ("type", str(key.facts["never"]))
    reads = str(key.facts.get("reads", "lax"))
    if reads in ("truth", "true"):  # anything has a truth value; what counts as true is for the rules to say
        return None
    if value is None:
        # auto_raw "error": a key of an untyped section whose value the library checks all the same.
        checked = reads in _CHECKED or key.facts.get("auto_raw") == "error"
        return ("null", "is null, which is not allowed here") if checked and not key.nullable else None
    if isinstance(value, bool) and key.facts.get("no_bool"):
        return ("type", "is true or false, not a number")
    if isinstance(value, str) and key.facts.get("no_text"):
        return ("type", "is a string, not a number")
    if not key.scalars and (reads == "argument" or (reads == "raw" and key.facts.get("auto_raw") == "error")):
        return ("choice", "is not null, which is all that is supported")
    first: Reason | None = None
    for branch in key.scalars:
        reason = _refused(branch, value, reads, key.facts.get("ignore_case", False))
        if reason is None:
            return None
        if first is None or first[0] == "type":
            first = reason
    return first


def converted(key: Key, value: object, reads: str = "lax") -> object:
    """A value as the library keeps it; the value itself where it is refused or not converted."""
    for branch in key.scalars:
        if _refused(branch, value, reads) is not None:
            continue
        if isinstance(branch.get("type"), str) and "enum" not in branch:
            return convert(branch["type"], value, reads)
        choices = branch.get("enum", ())
        if all(isinstance(choice, int) for choice in choices) and choices:
            return as_int(value)
        return value
    return value


def _refused(branch: dict[str, Any], value: Any, reads: str, ignore_case: bool = False) -> Reason | None:
    choices = branch.get("enum", [branch["const"]] if "const" in branch else None)
    types = branch.get("type")
    kinds = types if isinstance(types, list) else [types]
    if choices is not None:
        return _refused_choice(choices, value, reads, ignore_case)
    reason: Reason | None = None
    for kind in kinds:
        try:
            number = convert(kind, value, reads)
        except RefusedError as refused:
            reason = ("type", str(refused))
            continue
        if kind == "array" and reads in _CHECKED and (wrong := _refused_item(branch, number)) is not None:
            return wrong
        out = _outside(branch, number)
        return None if out is None else ("range", out)
    return reason


def _refused_item(branch: dict[str, Any], items: Any) -> Reason | None:
    """Why pydantic does not take one of the items of a list."""
    each = branch.get("items") or {}
    for item in items if "enum" in each or "type" in each else ():
        reason = _refused(each, item, "lax")
        if reason is not None:
            return (reason[0], f"holds {show(item)}, which {reason[1]}")
    return None


def _refused_choice(choices: list[object], value: object, reads: str, ignore_case: bool) -> Reason | None:
    if ignore_case and isinstance(value, str) and value.lower() in [str(choice).lower() for choice in choices]:
        return None
    if any(value == choice and (isinstance(value, str) == isinstance(choice, str)) for choice in choices):
        return None
    texts = not (reads == "lax 1" and isinstance(value, str))  # pydantic 1 makes no number of a text for an enum
    if texts and all(isinstance(choice, int) for choice in choices if choice is not None):
        try:
            if as_int(value) in choices:
                return None
        except RefusedError:
            pass
    if reads in ("str", "int") and isinstance(value, (str, int)) and str(value) in [str(choice) for choice in choices]:
        return None
    near = closest(value, [choice for choice in choices if isinstance(choice, str)]) if isinstance(value, str) else None
    words = ", ".join("null" if choice is None else str(choice) for choice in choices)
    return ("choice", f"is none of {words}" + (f" (did you mean {near}?)" if near else ""))


def _outside(branch: dict[str, object], number: object) -> str | None:
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return None
    if number != number:
        return "is not a number" if any(bound in branch for bound in _BOUNDS) else None
    for bound, (words, fails) in _BOUNDS.items():
        if bound in branch and fails(number, branch[bound]):
            return f"is out of range: it must be {words} {branch[bound]}"
    return None


_BOUNDS: dict[str, tuple[str, Any]] = {
    "minimum": ("at least", lambda number, bound: number < bound),
    "exclusiveMinimum": ("greater than", lambda number, bound: number <= bound),
    "maximum": ("at most", lambda number, bound: number > bound),
    "exclusiveMaximum": ("less than", lambda number, bound: number >= bound),
}
