"""Names that older releases of a library had and that cannot be imported from the newest (`tools/facts/lost_names.py`,
which imported what is left of each module and asked it)."""

from __future__ import annotations

from zerocfg.catalog.history import lost_names

LIBRARIES = frozenset(("accelerate", "transformers", "trl"))


def is_lost(module: str, name: str) -> bool:
    """Whether the newest release of a library certainly lacks a name that some release before had in a module; of a
    module that is lost any name. An empty name means the module itself."""
    known = lost_names()[module.partition(".")[0]]
    modules: list[str] = known["modules"]
    if any(module == lost or module.startswith(f"{lost}.") for lost in modules):
        return True
    names: dict[str, str] = known["names"]
    return name in names.get(module, "").split()
