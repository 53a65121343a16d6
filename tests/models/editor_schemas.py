"""The schemas for editors beside the compiled ones that they are made from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from zerocfg.catalog.schema import load_schema

FOLDER = Path(__file__).parents[2] / "schemas" / "editor"


@cache
def editor_schema_of(name: str) -> dict[str, Any]:
    """A committed schema for editors."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def sections(name: str) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, compiled form and editor's form of every section."""
    raw, shown = load_schema(name).raw, editor_schema_of(name)
    yield "root", raw, shown if "properties" in shown else shown["definitions"]["Otherwise"]
    for section, compiled in raw["$defs"].items():
        yield section, compiled, shown["definitions"][section]
