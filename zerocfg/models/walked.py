"""What the newest walked release of a library says of a key (``schemas/releases``, written by ``make facts``)."""

from __future__ import annotations

from typing import Any

from pydantic_core import PydanticUndefined

from zerocfg.catalog.history import histories


def walked(library: str, name: str) -> dict[str, Any]:
    """The facts about a key, by its dotted name. LookupError where the newest release has no such key."""
    known = histories(library)
    facts = known.today(name)
    if facts is None:
        raise LookupError(
            f"{library} {known.names[-1]} has no {name} (schemas/releases/{library}.json): walk the release that has "
            "it (`make follow-release`), or write `key(..., default=...)`"
        )
    return facts


def walked_default(library: str, section: str, name: str) -> Any:
    """The default of a key of a section: `PydanticUndefined` where the library requires the key, None where it asks a
    mapping for it and names no default.

    LookupError where the default is no plain value, or is made anew for each object.
    """
    dotted = f"{section}.{name}" if section else name
    facts = walked(library, dotted)
    if "required" in facts:
        return PydanticUndefined
    default = facts.get("default")
    if "computed" in facts or (isinstance(default, dict) and "python" in default):
        raise LookupError(
            f"the walk knows no default of {dotted} of {library} ({facts}): write `key(..., default=...)`"
        )
    return default


def walked_keys(library: str, section: str) -> dict[str, dict[str, Any]]:
    """The facts about each key of a section, by its name there; "" is the outermost section.

    LookupError where the newest release has none.
    """
    known, before = histories(library), f"{section}." if section else ""
    inner = [name.removeprefix(before) for name in known.raw if name.startswith(before)]
    direct = [name for name in inner if "." not in name and name != "*"]
    found = {name: facts for name in direct if (facts := known.today(before + name)) is not None}
    if not found:
        raise LookupError(f"{library} {known.names[-1]} has no keys of {section} (schemas/releases/{library}.json)")
    return found
