"""Placeholders, values to be filled in: `$NAME`, `${NAME}`, `{{ name }}`, `<NAME>`, a bare NAME."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from zerocfg.patterns import pattern
from zerocfg.run.model import UNKNOWN, Run, SourceFile
from zerocfg.source.node import Document, Mapping, Node, Scalar, Sequence, walk

CODE = "${code}"
"""Stands for a value that a script makes, in a config that is a dict of it."""
_FORMS = {
    "}": pattern(r"\$\{[^}]*\}"),
    "}}": pattern(r"\{\{.*?\}\}", re.DOTALL),
    "": pattern(r"\$[A-Za-z_]\w*|<[A-Z_]+>"),
}
"""By what each ends with."""


def _placeholders(text: str) -> Iterator[re.Match[str]]:
    """Those of a form are looked for as far as one may end: beyond that, each beginning would be held against all of
    the rest, and 20,000 braces cost seconds."""
    for end, form in _FORMS.items():
        yield from form.finditer(text, 0, text.rfind(end) + len(end))


def placeholder(value: object) -> str | None:
    """The part of a text that something should have filled in."""
    if not isinstance(value, str) or not ("$" in value or "{{" in value or "<" in value):
        return None
    found = min(_placeholders(value), key=lambda item: item.start(), default=None)
    return found[0] if found else None


def placeholder_in(node: Node, document: Document) -> str | None:
    """The same of a value in a file. In JSON a bare word in capitals is one, too, and dots where a value is left out:
    `"train_batch_size": GBSIZE,`, `"num_train_epochs": ...,`."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return None
    found = placeholder(node.value)
    if found is None and document.format == "json" and not node.quoted:
        word = node.value.rstrip(", ")
        if word == "..." or (len(word) > 2 and word.isupper() and word.isidentifier()):
            return word
    return found


def opened_by_script(run: Run) -> bool:
    """Whether the script opens the DeepSpeed config by itself, so that it may change it before a library gets it. A
    Trainer reads the file again."""
    script = run.script
    if script is None or script.reader in ("transformers", "trl"):
        return False
    return any(item in script.opened and item in run.arguments for item in ("deepspeed", "deepspeed_config"))


def stops_at_placeholder(document: Document, where: int) -> bool:
    """Whether a file stops to be JSON or YAML at something that is to be filled in: `"stage": {{ stage }}`."""
    text = document.source.text
    start = text.rfind("\n", 0, where) + 1
    end = text.find("\n", where)
    line = text[start : end if end >= 0 else len(text)]
    return any(found.start() <= where - start <= found.end() for found in _placeholders(line))


def is_template(file: SourceFile) -> bool:
    """Whether a file's name marks it as a template."""
    return "template" in file.name.replace("\\", "/").rpartition("/")[2].lower()


def has_placeholders(document: Document) -> bool:
    """Whether bare words of a JSON stand for values (`"train_batch_size": GBSIZE,`, `"stage": ${stage}`): what it is
    shows when they are filled in."""
    return (
        document.format == "json"
        and document.root is not None
        and any(
            isinstance(node, Scalar) and not node.quoted and placeholder_in(node, document) is not None
            for _, node, _ in walk(document.root)
        )
    )


def plain_or_unknown(document: Document | None) -> Any:
    """The plain value of a file, UNKNOWN where something has to be filled in."""
    if document is None or document.root is None:
        return None
    text = document.source.text
    bare = not document.editable or any(problem.kind == "hjson-only" for problem in document.problems)
    return (
        _known(document.root, document)
        if bare or any(mark in text for mark in "$<") or "{{" in text
        else (document.data())
    )


def _known(node: Node, document: Document) -> Any:
    if isinstance(node, Mapping):
        return {entry.key: _known(entry.value, document) for entry in node.entries}
    if isinstance(node, Sequence):
        return [_known(item, document) for item in node.items]
    return UNKNOWN if placeholder_in(node, document) is not None else node.value
