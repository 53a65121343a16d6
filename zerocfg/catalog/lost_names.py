"""Names that older releases of a library had and that cannot be imported from the newest (`tools/facts/lost_names.py`,
which imported what is left of each module and asked it)."""

from __future__ import annotations

import json
from functools import cache
from typing import TypedDict

from zerocfg.catalog.schema import schema_folder

LIBRARIES = frozenset(("accelerate", "transformers", "trl"))


class _Lost(TypedDict):
    """``modules``: the outermost that the newest release lacks; ``names``: by module that it has."""

    newest: str
    modules: list[str]
    names: dict[str, str]


def is_lost(module: str, name: str) -> bool:
    """Whether the newest release of a library certainly lacks a name that some release before had in a module; of a
    module that is lost any name. An empty name stands for the module itself."""
    known = _lost_names()[module.partition(".")[0]]
    if any(module == lost or module.startswith(f"{lost}.") for lost in known["modules"]):
        return True
    return name in known["names"].get(module, "").split()


@cache
def _lost_names() -> dict[str, _Lost]:
    path = schema_folder() / "releases" / "lost-names.json"
    raw: dict[str, _Lost] = json.loads(path.read_text(encoding="utf-8"))
    return raw
