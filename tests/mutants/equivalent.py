"""Faults that change nothing, each with the reason: `equivalent/*.yaml`, one file a package or family.

- where: zerocfg/catalog/suggest.py::closest
  change: len(word) <= 80 -> len(word) < 80
  why: ...
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

FOLDER = Path(__file__).parent / "equivalent"


@cache
def listed() -> dict[tuple[str, str], str]:
    """The reason by place and change."""
    found: dict[tuple[str, str], str] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8")) or ():
            key = entry["where"], entry["change"]
            if key in found or not entry["why"].strip():
                raise ValueError(f"{path.name}: {key} is listed twice, or without a reason")
            found[key] = entry["why"].strip()
    return found
