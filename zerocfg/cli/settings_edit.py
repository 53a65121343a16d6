"""Putting entries into ``per-file-ignores`` of a TOML file without touching the rest of it.

There is no TOML writer that keeps a file as it is, so text is put in and the result is parsed: it counts only when it
says exactly what was there before and the new entry.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TABLE = "per-file-ignores"


def with_ignores(text: str, table: tuple[str, ...], entries: dict[str, list[str]]) -> str:
    """The text of a settings file with more entries. ``table``: the keys of zerocfg's own table, empty for the top.

    Raises ValueError where the file is written in a way that leaves no room for them.
    """
    for pattern, codes in entries.items():
        for code in codes:
            text = _with(text, table, pattern, code)
    return text


def _with(text: str, table: tuple[str, ...], pattern: str, code: str) -> str:
    before = tomllib.loads(text)
    wanted = deepcopy(before)
    inner: Any = wanted
    for key in (*table, _TABLE):
        inner = inner.setdefault(key, {})
    listed = inner.setdefault(pattern, [])
    if code in listed:
        return text
    listed.append(code)
    for candidate in _candidates(text, table, pattern, code):
        try:
            if _same(tomllib.loads(candidate), wanted):
                return candidate
        except tomllib.TOMLDecodeError:
            continue
    raise ValueError(f'there is no room for "{pattern}" = ["{code}"]')


def _same(found: object, wanted: object) -> bool:
    """Equal, the order within lists of codes aside."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(_same(found[key], wanted[key]) for key in wanted)
    if isinstance(found, list) and isinstance(wanted, list) and all(isinstance(item, str) for item in wanted):
        return sorted(map(str, found)) == sorted(wanted)
    return bool(found == wanted)


def _candidates(text: str, table: tuple[str, ...], pattern: str, code: str) -> Iterator[str]:
    """Ways to put the entry in, the most natural first."""
    end = "\r\n" if "\r\n" in text else "\n"
    key, value = json.dumps(pattern, ensure_ascii=False), json.dumps(code)
    quoted = "|".join((re.escape(key), re.escape(f"'{pattern}'"), re.escape(pattern)))
    for match in re.finditer(rf"(?:{quoted})\s*=\s*\[[^\]#]*(?=\])", text):
        inside = match[0].rpartition("[")[2].rstrip()
        at = match.start() + len(match[0].rstrip())
        yield f"{text[:at]}{' ' if inside.endswith(',') else ', ' if inside else ''}{value}{text[at:]}"
    for match in re.finditer(rf"(?:{quoted})\s*=\s*\[", text):
        yield f"{text[: match.end()]}{value}, {text[match.end() :]}"
    line = f"{key} = [{value}]{end}"
    header = r"\s*\.\s*".join(map(re.escape, (*table, _TABLE)))
    for match in re.finditer(rf"^[ \t]*\[[ \t]*{header}[ \t]*\][^\n]*(?:\n|\Z)", text, re.MULTILINE):
        following = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, match.end())
        body = text[: following.start() if following else len(text)].rstrip()
        for at in (max(len(body), len(match[0].rstrip()) + match.start()), len(match[0].rstrip()) + match.start()):
            yield f"{text[:at]}{end}{line.rstrip()}{text[at:] or end}"
    for match in re.finditer(rf"{_TABLE}[\"']?\s*=\s*\{{", text):
        rest = text[match.end() :]
        yield f"{text[: match.end()]} {key} = [{value}]{'' if rest.lstrip().startswith('}') else ','}{rest}"
    for match in re.finditer(rf"^[ \t]*{_TABLE}\s*\.[^\n]*(?:\n|\Z)", text, re.MULTILINE):
        yield f"{text[: match.start()]}{_TABLE}.{line}{text[match.start() :]}"
    gap = "" if not text.strip() else (end if text.endswith("\n") else end * 2)
    yield f"{text}{gap}[{'.'.join((*table, _TABLE))}]{end}{line}"
