"""Reads the ranks' reports, and validates them against `zerocfg.smoke.worker.report_schema`."""

from __future__ import annotations

import json
import types
from functools import cache
from typing import TYPE_CHECKING, Union, get_args, get_origin, get_type_hints, is_typeddict

from zerocfg.smoke.worker.report_schema import RankReport

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TypeGuard


def read(path: Path) -> RankReport:
    """The report of a rank so far; empty where there is none, or the file is not a report."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if is_report(content) else {}


def is_report(content: object) -> TypeGuard[RankReport]:
    """Whether every known field has its type; others are passed over."""
    return _fits(content, RankReport)


@cache
def _fields(kind: type) -> dict[str, object]:
    return get_type_hints(kind)


def _fits(value: object, kind: object) -> bool:
    if kind is object:
        return True
    if isinstance(kind, type) and is_typeddict(kind):
        fields = _fields(kind)
        return isinstance(value, dict) and all(_fits(item, fields[key]) for key, item in value.items() if key in fields)
    origin, inside = get_origin(kind), get_args(kind)
    if origin is list:
        return isinstance(value, list) and all(_fits(item, inside[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_fits(item, inside[1]) for item in value.values())
    if origin in (Union, types.UnionType):
        return any(_fits(value, item) for item in inside)
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, kind) if isinstance(kind, type) else False
