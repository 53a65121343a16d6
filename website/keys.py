"""The reference of keys: pages of Markdown, written from the compiled schemas.

A schema gives a folder: ``index.md`` holds the keys of its top level, each section below it has a page with all that is
nested in it. The anchor of a key is its path: ``keys/deepspeed/zero_optimization.md#zero_optimization.stage``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zerocfg.catalog.alternatives import alternatives, own_keys
from zerocfg.catalog.changes import known_libraries, states
from zerocfg.catalog.history import histories, name_in

Node = dict[str, Any]

SCHEMAS = {
    "deepspeed": "DeepSpeed JSON",
    "accelerate": "accelerate YAML",
    "training-arguments": "Trainer recipe",
    "trl": "TRL recipe",
    "accelerate-launcher": "accelerate launch",
    "accelerate-sagemaker": "accelerate YAML for SageMaker",
    "spec": "zerocfg.yaml",
    "model-facts": "Numbers of a model",
    "hardware": "Hardware profile",
}
READERS = {"deepspeed": "DeepSpeed", "accelerate": "accelerate", "transformers": "the Trainer", "trl": "TRL"}
READS = {
    "lax": 'converted as pydantic does: `"3"` is 3, `"true"` is true',
    "raw": "taken as it is; nothing checks or converts it",
    "int": "an integer, from the text of an environment variable",
    "float": "a number, from the text of an environment variable",
    "bool": "a truth value, from the text of an environment variable",
    "str": "as text",
    "true": "only the word true, in any case, is true",
    "argument": "text as a word of the command line, other values as they are",
    "truth": 'Python\'s truth: any text, also `"false"`, is true',
}
UNFILLED = {
    "default": "drops it, and takes the default in silence",
    "kept": "keeps the word, which travels on as a text",
    "error": "stops",
}
UNKNOWN = {
    "error": "A key that is not listed here is an error.",
    "ignored": "A key that is not listed here is ignored in silence.",
    "passed": "A key that is not listed here is handed on.",
}
NULL = {
    "absent": "`null` is the same as leaving the section out.",
    "error": "`null` is an error.",
    "falsy": '`null`, `false`, `0`, `""` and `[]` are the same as leaving the section out.',
}


@dataclass
class KeyPages:
    """``pages``: path below ``keys/`` -> Markdown. ``anchors``: (schema, key path) -> link below ``keys/``."""

    pages: dict[str, str] = field(default_factory=dict)
    anchors: dict[tuple[str, str], str] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)


def key_pages(folder: Path, rules: Mapping[tuple[str, str], list[str]]) -> KeyPages:
    """All pages. ``rules``: (schema, key path) -> links of the rules that speak of the key, as Markdown."""
    made = KeyPages()
    for name, title in SCHEMAS.items():
        schema = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        _Writer(name, title, schema, rules, made).write()
    made.pages["index.md"] = _index(folder)
    made.titles["index.md"] = "All keys"
    return made


def _index(folder: Path) -> str:
    lines = [
        "# Keys",
        "",
        "Every key that the libraries read, from the typed models that zerocfg checks configs with. The tests compare "
        "the models with the installed libraries key by key: names, types, defaults, ranges, and who fills an `auto`.",
        "",
        "| file | keys | read by |",
        "|---|---|---|",
    ]
    for name, title in SCHEMAS.items():
        schema = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        sections = [schema, *schema.get("$defs", {}).values()]
        number = sum(len(own_keys(section.get("properties", {}))) for section in sections)
        source = schema.get("x-zerocfg", {}).get("source", "")
        lines.append(f"| [{title}]({name}/index.md) | {number} | {f'`{source}`' if source else 'zerocfg'} |")
    return "\n".join(lines) + "\n"


class _Writer:
    def __init__(
        self, name: str, title: str, schema: Node, rules: Mapping[tuple[str, str], list[str]], made: KeyPages
    ) -> None:
        self.name, self.title, self.schema, self.rules, self.made = name, title, schema, rules, made

    def write(self) -> None:
        top = own_keys(self.schema.get("properties", {}))
        own = {key: node for key, node in top.items() if not self._inner(node)}
        sections = {key: node for key, node in top.items() if self._inner(node)}
        lines = [f"# {self.title}", "", *self._about(self.schema)]
        if sections:
            lines += ["## Sections", "", "| section | |", "|---|---|"]
            lines += [f"| [`{key}`]({key}.md) | {_told(_described(node))} |" for key, node in sections.items()]
            lines += ["", "## Keys of the top level", ""]
        else:
            lines += ["## Keys", ""]
        for key, node in own.items():
            lines += self._key("index.md", key, key, node, 3)
        self._keep("index.md", self.title, lines)
        for key, node in sections.items():
            page = f"{key}.md"
            lines = [f"# {key}", "", f"A section of [{self.title}](index.md).", ""]
            lines += self._section(page, key, node, 2)
            self._keep(page, key, lines)

    def _keep(self, page: str, title: str, lines: list[str]) -> None:
        self.made.pages[f"{self.name}/{page}"] = "\n".join(lines).rstrip("\n") + "\n"
        self.made.titles[f"{self.name}/{page}"] = title

    def _inner(self, node: Node) -> list[tuple[str, Node]]:
        """The sections that a key may hold: a suffix of the path (`.NAME` of a mapping of them) and the section."""
        found = []
        for branch in [node, *node.get("anyOf", [])]:
            for suffix, holder in (
                ("", branch),
                (".NAME", branch.get("additionalProperties")),
                ("[]", branch.get("items")),
            ):
                if isinstance(holder, dict) and "$ref" in holder:
                    found.append((suffix, self.schema["$defs"][holder["$ref"].rsplit("/", 1)[1]]))
        return found

    def _section(self, page: str, path: str, node: Node, level: int) -> list[str]:
        """A key that holds sections: what is said about it, the keys of each, and the sections within them."""
        lines = [_anchor(path), *self._remember(page, path), *self._facts(path, node)]
        inner = [(f"{path}{suffix}", section, "") for suffix, section in self._inner(node)]
        variants = node.get("x-zerocfg", {}).get("variants")
        if variants:
            inner = [*self._cases(path, variants), *((at, one, "For others") for at, one, _ in inner)]
        for at, section, case in inner:
            if case:
                lines += [f"{_hashes(level)} {case}", ""]
            lines += self._about(section)
            keys = own_keys(section.get("properties", {}))
            for key, one in keys.items():
                if not self._inner(one):
                    lines += self._key(page, key, f"{at}.{key}", one, level + bool(case))
            for key, one in keys.items():
                if self._inner(one):
                    lines += [f"{_hashes(level)} `{at}.{key}`", ""]
                    lines += self._section(page, f"{at}.{key}", one, level + 1)
        return lines

    def _cases(self, path: str, variants: Node) -> Iterator[tuple[str, Node, str]]:
        by_section: dict[str, list[str]] = {}
        for value, target in variants["cases"].items():
            by_section.setdefault(target.rsplit("/", 1)[1], []).append(value)
        for section, values in by_section.items():
            words = " or ".join(f"`{value}`" for value in values)
            yield path, self.schema["$defs"][section], f"With `{variants['key']}` {words}"

    def _about(self, section: Node) -> list[str]:
        known = section.get("x-zerocfg", {})
        said = [escaped(section.get("description", ""))]
        said += [UNKNOWN[known["unknown"]]] if known.get("unknown") in UNKNOWN else []
        if section is not self.schema:
            said += [NULL[known["null"]]] if known.get("null") in NULL else []
        return [" ".join(part for part in said if part), ""]

    def _key(self, page: str, key: str, path: str, node: Node, level: int) -> list[str]:
        heading = f"{_hashes(level)} `{key}`"
        # Of the variants of a section only the first to have a key owns its anchor.
        if (self.name, path) in self.made.anchors:
            return [heading, "", *self._facts(path, node)]
        self._remember(page, path)
        return [f"{heading} {{ #{_id(path)} }}", "", *self._facts(path, node)]

    def _remember(self, page: str, path: str) -> list[str]:
        self.made.anchors.setdefault((self.name, path), f"{self.name}/{page}#{_id(path)}")
        return [""]

    def _facts(self, path: str, node: Node) -> list[str]:
        rows = [(name, text) for name, text in _rows(node) if text]
        rows += [("by release", text) for text in [_by_release(self.name, path)] if text]
        links = self.rules.get((self.name, path), [])
        if links:
            rows.append(("rules", ", ".join(links)))
        lines = [escaped(_described(node)), ""] if _described(node) else []
        if rows:
            lines += ["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows), ""]
        return lines


def _hashes(level: int) -> str:
    return "#" * min(level, 6)


def _id(path: str) -> str:
    return path.replace("[]", ".ITEM")


def _anchor(path: str) -> str:
    return f'<a id="{_id(path)}"></a>'


def _described(node: Node) -> str:
    """The description without the sentences that stand in the table below it."""
    text = re.sub(r" ?Unit: [^.]*\.", "", node.get("description", ""))
    return re.sub(r" ?(?:Since|Until) [\d.]+\.", "", text).strip()


def _rows(node: Node) -> Iterator[tuple[str, str]]:
    known = node.get("x-zerocfg", {})
    yield "type", _told(_type(node))
    if "default" in node and not known.get("removed"):
        before = "".join(f"; `{_json(old)}` before {at}" for at, old in known.get("default_before", {}).items())
        yield "default", _told(f"`{_json(node['default'])}`{before}")
    yield "default by class", _told(_by_class(known.get("defaults", {})))
    yield "unit", _told(known.get("unit", ""))
    yield "examples", ", ".join(f"`{_json(one)}`" for one in node.get("examples", []))
    yield "`auto`", _told(_auto(node, known))
    yield "read", READS.get(known.get("reads", ""), "") + ("; in any case" if known.get("ignore_case") else "")
    yield "known values", _codes(known.get("known_values", []))
    yield "read by", _codes(known.get("in", []))
    yield "FSDP version", " or ".join(str(version) for version in known.get("versions", []))
    yield "FP8 backend", _codes(known.get("backends", []))
    yield "refused beside", f"`{known['conflicts']}`" if known.get("conflicts") else ""
    yield "since", known.get("since", "")
    yield "until", known.get("until", "")
    yield "also spelled", _codes(known.get("aliases", []))
    yield "deprecated", _told(escaped(known.get("deprecated", "")))
    yield "removed", _told(escaped(known.get("removed", "")))
    yield "now", f"`{known['renamed_to']}`" if known.get("renamed_to") else ""
    yield "no effect", _told(escaped(known.get("inert", "")))
    yield "no value fits", _told(escaped(known.get("never", "")))
    yield "option", _codes(known.get("cli", {}).get("flags", []))
    yield "reaches the job as", _codes(one["name"] for one in known.get("env", []))
    yield "source", f"`{known['source']}`" if known.get("source") else ""


_HISTORIES = {"deepspeed": "deepspeed", "accelerate": "accelerate", "training-arguments": "transformers"}
"""The library whose releases read the keys of a schema."""


def _by_release(schema: str, path: str) -> str:
    """What the key is in each release that was walked, where they differ."""
    library = _HISTORIES.get(schema)
    if library not in known_libraries():
        return ""
    known, key = histories(library), name_in(library, path.split("."))
    told = list(states(known, key)) if key in known.raw else []
    if len(told) < 2:
        return ""
    page = f"../../releases/{library}.md"
    return "<br>".join(f"[{since}]({page}): {_told(escaped(words))}" for since, words in told)


def _codes(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(f"`{word}`" for word in words))


def _by_class(defaults: Node) -> str:
    classes: dict[str, list[str]] = {}
    for name, value in defaults.items():
        classes.setdefault(_json(value), []).append(name)
    return "; ".join(f"`{value}` in {_codes(names)}" for value, names in classes.items())


def _auto(node: Node, known: Node) -> str:
    fills: dict[str, list[str]] = {}
    for consumer, what in known.get("auto", {}).items():
        fills.setdefault(what, []).append(READERS[consumer])
    said = [f"{' and '.join(who)}: {escaped(what)}" for what, who in fills.items()]
    raw = known.get("auto_raw")
    if said and raw:
        said.append(f"unfilled, the library {UNFILLED[raw]}")
    return "; ".join(said)


def _type(node: Node) -> str:
    if "not" in node and node.get("x-zerocfg", {}).get("removed"):
        return ""
    words = [_branch(branch) for branch in alternatives(node)]
    words = list(dict.fromkeys(word for word in words if word))
    return " or ".join(words)


def _branch(branch: Node) -> str:
    if "$ref" in branch:
        return "section"
    if "const" in branch:
        return f"`{_json(branch['const'])}`"
    if "enum" in branch:
        return ", ".join(f"`{_json(one)}`" for one in branch["enum"])
    kind = branch.get("type")
    if kind == "array":
        inner = branch.get("items")
        return f"list of {_type(inner)}" if isinstance(inner, dict) and _type(inner) else "list"
    words = {"object": "mapping", "string": "text", "boolean": "true or false"}
    told = " or ".join(words.get(one, one) for one in ([kind] if isinstance(kind, str) else kind or []))
    limits = {
        "minimum": "from {}",
        "exclusiveMinimum": "above {}",
        "maximum": "up to {}",
        "exclusiveMaximum": "below {}",
    }
    said = [text.format(_json(branch[word])) for word, text in limits.items() if word in branch]
    return f"{told} {', '.join(said)}".strip()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _told(text: str) -> str:
    """In a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def escaped(text: str) -> str:
    """Outside of code, what Markdown would take for HTML, emphasis or an attribute."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(one if one.startswith("`") else re.sub(r"([<*_\\])", r"\\\1", one) for one in pieces)
