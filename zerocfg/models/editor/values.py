"""The values of a key as an editor's schema states them.

An editor offers what belongs into the file and underlines only what the library refuses. So that both hold, a key
has alternatives that are offered, one for each JSON type, and behind them one that is only taken: ``true`` for a
number, or a number in quotes, where the library converts it. That one is written with ``not`` and ``pattern``, from
which no editor makes a proposal. The alternatives exclude each other (``oneOf``): the YAML server joins the texts of
``anyOf`` in its hovers.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from zerocfg.catalog.alternatives import alternatives

_KINDS = ("string", "number", "boolean", "null", "array", "object")
_INTEGER = r"\s*SIGN\d+(?:_\d+)*(?:\.0+)?\s*"
_TEXT_INTEGER = r"\s*SIGN\d+(?:_\d+)*\s*"
_FLOAT = r"\s*SIGN(?:\d+(?:_\d+)*\.?(?:\d+(?:_\d+)*)?|\.\d+(?:_\d+)*)(?:[eE][+-]?\d+)?\s*"
_NOT_FINITE = r"\s*SIGN(?:[nN][aA][nN]|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?)\s*"
_TRUTH = ("true", "false", "yes", "no", "on", "off", "t", "f", "y", "n", "1", "0")
# What PyYAML takes for a truth value and for a number, and an editor, which reads YAML 1.2, for text.
_YAML_TRUTH = ("yes", "no", "on", "off")
_YAML_INTEGER = r"SIGN\d[\d_]*"
_YAML_FLOAT = r"SIGN\d[\d_]*(?:\.[\d_]*)?(?:[eE][+-]?\d+)?"
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


@dataclass
class _Taken:
    """What is taken of each JSON type."""

    choices: list[Any] = field(default_factory=list)
    numbers: dict[str, object] | None = None
    text: dict[str, Any] | None = None
    patterns: list[str] = field(default_factory=list)
    booleans: bool = False
    arrays: dict[str, object] | None = None
    objects: dict[str, object] | None = None
    hidden: set[str] = field(default_factory=set)
    """Types that are taken as they are and not offered."""
    zero_or_one: bool = False
    """Of the hidden numbers only 0 and 1 are taken: they stand for truth values."""
    no_false: bool = False
    """Of the hidden truth values only true is taken: false stands for a 0 that is out of range."""


def any_case(word: str) -> str:
    """A regular expression for a word in any case; JSON Schema has no flag for it."""
    return "".join(f"[{letter.lower()}{letter.upper()}]" if letter.isalpha() else re.escape(letter) for letter in word)


def accepted(
    branches: list[dict[str, Any]],
    facts: dict[str, object],
    *,
    yaml: bool,
    absent: Collection[Any] = (),
) -> list[dict[str, object]]:
    """The alternatives for a key's value, what is offered first; one empty schema where anything is taken.

    ``branches`` are those of the compiled schema, without sections; ``yaml``: the file is read by PyYAML; ``absent``:
    values that count as no value.
    """
    reads = str(facts.get("reads", "lax")).replace("argument", "lax")
    plain = [branch for branch in branches if branch.get("type") != "null" and branch.get("const") != "auto"]
    if any(not {"type", "enum", "const", "not", "$ref", "items"} & set(branch) for branch in plain):
        return [{}]
    taken = _Taken()
    for branch in plain:
        _take(taken, branch, facts, reads, yaml)
    filled = {"const": "auto"} in branches
    if filled:
        taken.choices.append("auto")
    elif facts.get("auto_raw") in ("default", "kept"):
        taken.patterns.append("auto")
    if len(plain) < len(branches) - filled or (reads != "lax" and facts.get("auto_raw") != "error"):
        taken.hidden.add("null")
    if reads in ("truth", "true"):
        taken.hidden |= set(_KINDS)
        taken.zero_or_one = False
        taken.patterns = []
    for value in absent:
        if isinstance(value, str):
            taken.patterns.append(re.escape(value))
        else:
            taken.hidden.add("null" if value is None else "boolean" if isinstance(value, bool) else "number")
    return _alternatives(taken)


def _take(taken: _Taken, branch: dict[str, Any], facts: dict[str, object], reads: str, yaml: bool) -> None:
    choices = branch.get("enum", [branch["const"]] if "const" in branch else None)
    if choices is not None:
        _take_choices(taken, choices, facts, reads, yaml)
        return
    kind = branch.get("type")
    if some := few(branch):
        _take_choices(taken, some, facts, reads, yaml)
    elif kind == "boolean":
        _take_boolean(taken, reads, yaml)
    elif kind in ("integer", "number"):
        _take_number(taken, branch, facts, reads, yaml)
    elif kind == "string":
        kept: dict[str, object] = {
            word: branch[word] for word in ("minLength", "maxLength", "pattern") if word in branch
        }
        taken.text = kept if taken.text is None else {}
        if reads == "str":
            taken.hidden |= set(_KINDS) - {"null"}
            taken.zero_or_one = False
    elif kind == "array":
        taken.arrays = {word: branch[word] for word in ("minItems", "maxItems") if word in branch}
        if reads == "lax" and branch.get("items"):
            items = branch["items"]
            taken.arrays["items"] = value_schema(alternatives(items), {}, yaml=yaml)
    elif kind == "object":
        taken.objects = {}
        each = branch.get("additionalProperties")
        if isinstance(each, dict) and reads == "lax":
            taken.objects["additionalProperties"] = value_schema(alternatives(each), {}, yaml=yaml)


def few(branch: dict[str, Any]) -> list[Any]:
    """The whole numbers of a branch when they are few enough to be offered."""
    if branch.get("type") != "integer" or not {"minimum", "maximum"} <= set(branch):
        return []
    return list(range(branch["minimum"], branch["maximum"] + 1)) if branch["maximum"] - branch["minimum"] < 8 else []


def _take_choices(taken: _Taken, choices: list[Any], facts: dict[str, object], reads: str, yaml: bool) -> None:
    words = [choice for choice in choices if not isinstance(choice, bool)]
    if len(words) < len(choices):
        # PyYAML reads the word NO as false, which is then a choice; where there are words, they are what to write.
        if words:
            taken.hidden.add("boolean")
            taken.patterns.extend(any_case(word) for word in (("no", "off", "false") if yaml else ()))
        else:
            taken.choices.extend(choices)
            _take_zero_and_one(taken)
            taken.patterns.append(r"\s*\+?[01](?:\.0+)?\s*")
    taken.choices.extend(word for word in words if word not in taken.choices)
    numbers = [word for word in words if isinstance(word, int)]
    if numbers:
        taken.patterns.append(rf"\s*\+?(?:{'|'.join(str(number) for number in numbers)})(?:\.0+)?\s*")
        if 1 in numbers:
            taken.hidden.add("boolean")
            taken.no_false = 0 not in numbers
    if facts.get("ignore_case"):
        taken.patterns.extend(any_case(word) for word in words if isinstance(word, str))
    if reads in ("str", "int"):
        taken.choices.extend(
            int(word) for word in words if isinstance(word, str) and word.isdecimal() and int(word) not in taken.choices
        )


def _take_boolean(taken: _Taken, reads: str, yaml: bool) -> None:
    taken.booleans = True
    _take_zero_and_one(taken)
    if reads != "raw":
        taken.patterns.extend(any_case(word) for word in _TRUTH)
    elif yaml:
        taken.patterns.extend(any_case(word) for word in _YAML_TRUTH)


def _take_zero_and_one(taken: _Taken) -> None:
    taken.zero_or_one = "number" not in taken.hidden
    taken.hidden.add("number")


def _take_number(taken: _Taken, branch: dict[str, Any], facts: dict[str, object], reads: str, yaml: bool) -> None:
    whole = branch["type"] == "integer"
    # To the JSON server 5.0e8 is no integer, though it is one; readers of environment variables agree with the server.
    exact = whole and reads in ("int", "float", "bool")
    numbers: dict[str, object] = {"type": "integer" if exact else "number"}
    if whole and not exact:
        numbers["multipleOf"] = 1
    numbers |= {word: branch[word] for word in _BOUNDS if word in branch}
    taken.numbers = numbers if taken.numbers is None else {"type": "number"}
    least = branch.get("minimum", branch.get("exclusiveMinimum", -1))
    forms = [_YAML_INTEGER if whole else _YAML_FLOAT] if yaml else []
    if reads != "raw" and not facts.get("no_text"):
        forms += [_TEXT_INTEGER if exact else _INTEGER] if whole else [_FLOAT, _NOT_FINITE]
    taken.patterns.extend(form.replace("SIGN", r"\+?" if least >= 0 else "[+-]?") for form in forms)
    if reads in ("lax", "str") and not facts.get("no_bool"):
        taken.hidden.add("boolean")
        taken.no_false = least >= 0 and not ("minimum" in branch and branch["minimum"] <= 0)


def moved(reference: str) -> str:
    """A reference to a section, as draft-07 names its place."""
    return reference.replace("#/$defs/", "#/definitions/")


def value_schema(branches: list[dict[str, Any]], facts: dict[str, object], *, yaml: bool) -> dict[str, object]:
    """One schema for a value that is in a list or a mapping, where sections may stand, too."""
    sections = [{"$ref": moved(branch["$ref"])} for branch in branches if "$ref" in branch]
    others = [branch for branch in branches if "$ref" not in branch]
    return one_of([*sections, *(accepted(others, facts, yaml=yaml) if others else [])])


def types_of(alternatives: list[dict[str, Any]]) -> list[str]:
    """The JSON types of all alternatives, what is offered first; none when anything is taken."""
    found: list[str] = []
    for each in alternatives:
        if "$ref" in each:
            found.append("object")
        elif "type" in each:
            found.append(each["type"])
        elif "not" in each:
            excluded = each["not"]["anyOf"][0] if "anyOf" in each["not"] else each["not"]
            found += [kind for kind in _KINDS if kind not in excluded["type"]]
        elif each:
            found += [_kind(value) for value in each.get("enum", [each.get("const")])]
        else:
            return []
    return list(dict.fromkeys(found))


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return "boolean" if isinstance(value, bool) else "string" if isinstance(value, str) else "number"


def one_of(alternatives: list[dict[str, Any]]) -> dict[str, object]:
    """A schema of these alternatives, which exclude each other."""
    if len(alternatives) == 1:
        return alternatives[0]
    if all("type" in each and "not" not in each for each in alternatives):
        # Every further word of these speaks about one type alone.
        merged = {word: part for each in alternatives for word, part in each.items()}
        return {**merged, "type": [each["type"] for each in alternatives]}
    return {"oneOf": alternatives}


def _alternatives(taken: _Taken) -> list[dict[str, object]]:
    numbers = [choice for choice in taken.choices if isinstance(choice, (int, float)) and not isinstance(choice, bool)]
    words = [choice for choice in taken.choices if isinstance(choice, str)]
    found: list[dict[str, object]] = []
    shown = set()
    if taken.booleans:
        found.append({"type": "boolean"})
    if taken.numbers is not None:
        found.append({**taken.numbers, **({"not": {"enum": numbers}} if numbers else {})})
    if taken.choices:
        found.append({"enum": taken.choices} if len(taken.choices) > 1 else {"const": taken.choices[0]})
    if taken.text is not None:
        text = {"type": "string", **taken.text}
        if "pattern" in text:
            text["pattern"] = _pattern([text["pattern"].removeprefix("^").removesuffix("$"), *taken.patterns])
        found.append({**text, **({"not": {"enum": words}} if words else {})})
    if taken.arrays is not None:
        found.append({"type": "array", **taken.arrays})
    if taken.objects is not None:
        found.append({"type": "object", **taken.objects})
    for kind, some in (
        ("boolean", taken.booleans or any(isinstance(choice, bool) for choice in taken.choices)),
        ("number", taken.numbers is not None or numbers),
        ("string", taken.text is not None),
        ("array", taken.arrays is not None),
        ("object", taken.objects is not None),
    ):
        if some:
            shown.add(kind)
    hidden = taken.hidden - shown
    patterns = taken.patterns if "string" not in shown | hidden else []
    if patterns:
        hidden.add("string")
    if hidden:
        but = [*(words if "string" in hidden else ()), *((False,) if taken.no_false and "boolean" in hidden else ())]
        limits = {"minimum": 0, "maximum": 1, "multipleOf": 1} if taken.zero_or_one and "number" in hidden else {}
        found.append({**_only(hidden, but), **({"pattern": _pattern(patterns)} if patterns else {}), **limits})
    return found


def _only(kinds: set[str], but: list[Any]) -> dict[str, object]:
    """All values of some types but these."""
    types: dict[str, object] = {"type": [kind for kind in _KINDS if kind not in kinds]}
    return {"not": {"anyOf": [types, {"enum": but}]} if but else types}


def _pattern(parts: list[str]) -> str:
    return f"^(?:{'|'.join(dict.fromkeys(parts))})$"
