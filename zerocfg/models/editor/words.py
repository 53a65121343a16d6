"""What a hover tells about a key: the facts of the models as sentences.

Every text is written as Markdown; :func:`plain` makes the one for editors that show none.
"""

from __future__ import annotations

import json
import re
from typing import Any

from zerocfg.catalog.alternatives import alternatives
from zerocfg.catalog.versions import LIBRARY_NAMES
from zerocfg.models.editor import values

_LEFT = {
    "default": "Left unfilled, it counts as absent.",
    "kept": "Left unfilled, the word itself travels on.",
    "error": "Left unfilled, it is an error.",
}
_RANGE = (
    ("minimum", "at least"),
    ("exclusiveMinimum", "more than"),
    ("maximum", "at most"),
    ("exclusiveMaximum", "less than"),
)
_NO_LIMIT = 2**63 - 1


def show(value: Any) -> str:
    """A value as a reader wants to see it: thousands are set apart, the rest is JSON."""
    if isinstance(value, int) and not isinstance(value, bool):
        return "no limit" if value == _NO_LIMIT else f"{value:,}"
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15:
        return f"{value:,.1f}" if abs(value) < 1000 else f"{int(value):,}"
    return json.dumps(value, ensure_ascii=False)


def listed(words: list[str], last: str = "and") -> str:
    """Words as a sentence lists them."""
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 2 else words)


def hover(prop: dict[str, Any], section: dict[str, Any], text: str) -> str:
    """The Markdown of a key: what it is, what it counts, its default, who fills "auto", and where it is read.

    ``section`` are the facts of the mapping that the key stands in, ``text`` is what the model says about the key.
    """
    facts = prop.get("x-zerocfg", {})
    about: list[str] = []
    for fact, word in (("removed", "Removed"), ("deprecated", "Deprecated")):
        if fact in facts:
            about.append(f"**{word}:** {_code(facts[fact])}.")
    if "inert" in facts:
        about.append(f"**No effect:** {_code(facts['inert'])}.")
    if text:
        about.append(_code(text))
    lines = ["\n\n".join(about)]
    if (numbers := _numbers(prop, facts)) is not None:
        lines.append(numbers)
    lines += _auto(facts, section)
    lines += _releases(facts, section)
    lines += _places(facts)
    if source := facts.get("source") or section.get("source"):
        lines.append(f"Read in `{source}`.")
    return "\n\n".join(line for line in lines if line)


def section_text(prop: dict[str, Any], section: dict[str, Any], text: str, about: str) -> str:
    """The Markdown of a key that opens a mapping: the key's own words, then those about the mapping."""
    reader = {fact: value for fact, value in section.get("x-zerocfg", {}).items() if fact in ("library", "source")}
    both = "\n\n".join(dict.fromkeys(part for part in (text, about) if part))
    return hover({name: value for name, value in prop.items() if name != "default"}, reader, both)


def plain(markdown: str) -> str:
    """The same words for an editor that shows no Markdown."""
    parts = markdown.split("`")
    for index in range(0, len(parts), 2):
        parts[index] = parts[index].replace("**", "").replace(r"\*", "*")
    return re.sub(r"\s*\n\s*", " ", "".join(parts))


def expected(prop: dict[str, Any]) -> str | None:
    """What to write instead of a wrong value, for an editor's message; None where the editor's own words do."""
    facts = prop.get("x-zerocfg", {})
    words: list[str] = []
    for branch in alternatives(prop):
        kind = branch.get("type")
        if "enum" in branch:
            # PyYAML makes false of a bare NO; that is no reason to write false.
            spoken = [choice for choice in branch["enum"] if not isinstance(choice, bool)] or branch["enum"]
            words += [show(choice) for choice in spoken]
        elif few := values.few(branch):
            words += [show(choice) for choice in few]
        elif "const" in branch:
            words.append(show(branch["const"]))
        elif kind in ("integer", "number"):
            name = "a whole number" if kind == "integer" else "a number"
            unit = f" of {facts['unit']}" if facts.get("unit", "").isalpha() and facts["unit"].endswith("s") else ""
            limits = listed([f"{say} {show(branch[word])}" for word, say in _RANGE if word in branch])
            words.append(f"{name}{unit}{f' ({limits})' if limits else ''}")
        elif kind == "boolean":
            words.append("true or false")
        elif kind in ("string", "array", "null"):
            words.append({"string": "text", "array": "a list", "null": "null"}[kind])
        elif "$ref" in branch or kind == "object":
            words.append("a mapping")
        else:
            return None
    return f"Expected {listed(words, 'or')}." if words else None


def _code(text: str) -> str:
    """Names with underscores, which Markdown would read as emphasis, as code; nothing inside code is touched."""
    parts = text.replace("``", "`").split("`")
    if len(parts) % 2 == 0:
        return text.replace("*", r"\*")
    for index in range(0, len(parts), 2):
        escaped = re.sub(r"(?<![\w`*])\*(?!\*)|(?<!\*)\*(?=\s)", r"\\*", parts[index])
        parts[index] = re.sub(r"(?<![\w/.`-])([\w./-]*\w_\w[\w./-]*\w|_\w+)", r"`\1`", escaped)
    return "`".join(parts)


def _numbers(prop: dict[str, Any], facts: dict[str, Any]) -> str | None:
    """What the key counts and its default: "Unit: elements, default 500,000,000."."""
    said: list[str] = []
    if "unit" in facts:
        said.append(f"unit: **{facts['unit']}**")
    if prop.get("default") is not None:
        said.append(f"default **{show(prop['default'])}**")
    elif "default" in prop and "default" not in prop["description"].lower():
        said.append("default **null**")
    branches = alternatives(prop)
    limits = [f"{say} {show(branch[word])}" for branch in branches for word, say in _RANGE if word in branch]
    if limits:
        said.append(listed(limits))
    if "defaults" in facts:
        classes: dict[str, list[str]] = {}
        for name, value in facts["defaults"].items():
            classes.setdefault(show(value), []).append(name)
        said.append("default " + "; ".join(f"**{value}** in {listed(names)}" for value, names in classes.items()))
    if not said:
        return None
    line = ", ".join(said)
    return line[0].upper() + line[1:] + "."


def _auto(facts: dict[str, Any], section: dict[str, Any]) -> list[str]:
    filled: dict[str, list[str]] = {}
    for consumer, value in facts.get("auto", {}).items():
        filled.setdefault(str(value), []).append(LIBRARY_NAMES[consumer])
    if not filled:
        return []
    who = "; ".join(
        f"{listed(names)} {'fill' if len(names) > 1 else 'fills'} in {_expression(value)}"
        for value, names in filled.items()
    )
    sentence = f'`"auto"`: {who}. {_LEFT.get(facts.get("auto_raw", ""), "")}'
    return [sentence.strip()]


def _expression(text: str) -> str:
    """What an auto becomes: the expression as code, the words behind it as words."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 and re.match(r" with | of | where | when | \(|, ", text[place:]):
            return f"`{text[:place]}`{_code(text[place:])}"
    return f"`{text}`"


def _releases(facts: dict[str, Any], section: dict[str, Any]) -> list[str]:
    library = str(section.get("library", ""))
    name = {"deepspeed": "DeepSpeed "}.get(library, f"{library} " if library else "")
    said = []
    if "since" in facts:
        said.append(f"Since {name}{facts['since']}.")
    if "until" in facts:
        said.append(f"Not read any more since {name}{facts['until']}.")
    for release, value in facts.get("default_before", {}).items():
        said.append(f"Before {name}{release} the default was {show(value)}.")
    return [" ".join(said)] if said else []


def _places(facts: dict[str, Any]) -> list[str]:
    """Which classes, options and variables the key belongs to."""
    said = []
    if facts.get("in"):
        said.append(f"Read by {listed([f'`{name}`' for name in facts['in']])}.")
    if facts.get("versions"):
        said.append(f"Only with FSDP version {listed([str(version) for version in facts['versions']], 'or')}.")
    if facts.get("backends"):
        said.append(f"Only with the FP8 backend {listed([str(backend) for backend in facts['backends']], 'or')}.")
    if "conflicts" in facts:
        said.append(f"Refused beside `{facts['conflicts']}`.")
    if facts.get("known_values"):
        said.append(f"Known values: {listed([f'`{value}`' for value in facts['known_values']])}.")
    if facts.get("aliases"):
        said.append(f"Also read as {listed([f'`{alias}`' for alias in facts['aliases']], 'or')}.")
    if flags := facts.get("cli", {}).get("flags"):
        said.append(f"On the command line `{flags[0]}`.")
    if names := list(dict.fromkeys(each["name"] for each in facts.get("env", ()))):
        said.append(f"Reaches the job as {listed([f'`{name}`' for name in names])}.")
    return [" ".join(said)] if said else []
