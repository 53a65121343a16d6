"""Names that older releases of a library had and that cannot be imported from the newest (`tools/facts/lost_names.py`,
which imported what is left of each module and asked it)."""

from __future__ import annotations

from functools import lru_cache

from zerocfg.catalog.history import lost_names

LIBRARIES = frozenset(
    ("accelerate", "datasets", "diffusers", "evaluate", "huggingface_hub", "peft", "transformers", "trl")
)


@lru_cache(maxsize=4096)
def lost_since(module: str, name: str) -> str | None:
    """The release from which on a library certainly lacks a name that some release before had in a module; of a module
    that is lost any name. None where the newest may have it. An empty name means the module itself."""
    known = lost_names()[module.partition(".")[0]]
    modules: dict[str, str] = known["modules"]
    for lost, since in modules.items():
        if module == lost or module.startswith(f"{lost}."):
            return since
    names: dict[str, str] = known["names"].get(module, {})
    return next((since for since, every in names.items() if name in every.split()), None)
