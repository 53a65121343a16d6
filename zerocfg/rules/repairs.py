"""Fixes of single values: what a refused one most likely says, in the form that its key takes."""

from __future__ import annotations

import json
import math
import re

from zerocfg.catalog.check import Issue
from zerocfg.catalog.values import show
from zerocfg.rules.api import Fix
from zerocfg.rules.issues import KeyIssue
from zerocfg.run.model import SourceFile
from zerocfg.source.edit import Edit
from zerocfg.source.node import Problem
from zerocfg.source.text import Span

_WORDS = {"true": "true", "yes": "true", "on": "true", "enabled": "true"} | dict.fromkeys(
    ("false", "no", "off", "disabled"), "false"
)
_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")


def repaired(key: KeyIssue) -> Fix | None:
    """The value in the form that the key takes, where its text leaves no doubt what it is."""
    text, safe = _meaning(key.issue)
    return key.replace(text, f"write {text}", safe=safe) if text is not None else None


def _meaning(issue: Issue) -> tuple[str | None, bool]:
    """How a refused value should be written, and whether that is beyond doubt."""
    value = issue.value
    kinds = {str(branch.get("type")) for branch in issue.key.scalars} if issue.key is not None else set()
    if kinds == {"string"}:
        return _as_text(value), True
    if isinstance(value, float) and "integer" in kinds and abs(value) < 1e15:
        return str(round(value)), value == round(value)
    if not isinstance(value, str):
        return None, False
    word = value.strip()
    if word.lower() == "auto" and issue.key is not None and "auto" in issue.key.facts:
        return '"auto"', False
    if "boolean" in kinds and word.lower() in _WORDS:
        return _WORDS[word.lower()], word.lower() in ("true", "false")
    if not {"integer", "number"} & kinds:
        return None, False
    number = re.sub(r"[,_ ]", "", word)
    if _NUMBER.fullmatch(number) is None or not math.isfinite(float(number)):
        return None, False
    if "number" not in kinds and float(number) != int(float(number)):
        return str(round(float(number))), False
    plain = number if re.search(r"[eE.]", number) is None else _with_dot(number)
    return plain, number == word


def _with_dot(number: str) -> str:
    """A number that YAML and JSON read alike: a whole one in full where it is short, else with dot and sign."""
    value = float(number)
    return str(int(value)) if value == int(value) and abs(value) < 1e16 else plain_number(value)


def plain_number(number: float) -> str:
    """A number as YAML and JSON both write it: YAML 1.1 takes one with an exponent and no dot for a text."""
    text = repr(number)
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def _as_text(value: object) -> str | None:
    """Numbers as the text that a key of texts takes: 0 becomes "0", [0, 1] becomes "0,1"."""
    items = value if isinstance(value, list) else [value]
    if not items or not all(isinstance(item, int) and not isinstance(item, bool) for item in items):
        return None
    return '"' + ",".join(str(item) for item in items) + '"'


def as_section(key: KeyIssue) -> Fix | None:
    """A section in the place of what stands for one; nothing in the place of null."""
    if key.value is None:
        return key.delete("remove the empty section", safe=False)
    inside, section = None, key.issue.section
    if key.path == ("deepspeed_config",) and isinstance(key.value, str) and key.value.endswith(".json"):
        inside = f"{{deepspeed_config_file: {key.value}}}"
    elif isinstance(key.value, bool) and section is not None and section.key("enabled") is not None:
        inside = f'{{"enabled": {show(key.value)}}}'
    return key.replace(inside, "write a section", safe=False) if inside is not None else None


def strict_json(file: SourceFile, problems: list[Problem]) -> Fix | None:
    """The file in strict JSON; None where it holds something for which that takes a guess."""
    edits = [_strict_edit(file, problem) for problem in problems]
    if any(edit is None for edit in edits):
        return None
    comments = any(problem.form == "comment" for problem in problems)
    why = "write strict JSON" + (", without the comments" if comments else "")
    return Fix(why, tuple((file, edit) for edit in edits if edit is not None), safe=not comments)


def _strict_edit(file: SourceFile, problem: Problem) -> Edit | None:
    text, (start, end) = file.source.text, problem.span
    if problem.form == "trailing comma":
        return Edit(problem.span, "")
    if problem.form == "bare key":
        return Edit(problem.span, json.dumps(text[start:end]))
    if problem.form == "single quotes" and "\\" not in text[start:end]:
        return Edit(problem.span, json.dumps(text[start + 1 : end - 1], ensure_ascii=False))
    if problem.form != "comment":
        return None
    while start and text[start - 1] in " \t":
        start -= 1
    alone = (start == 0 or text[start - 1] == "\n") and text[end : end + 2].lstrip("\r")[:1] == "\n"
    return Edit(Span(start, text.index("\n", end) + 1 if alone else end), "")
