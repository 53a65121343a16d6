"""How a key of a config file is declared.

A model is a pydantic class; a key is a field made with :func:`key`. What pydantic cannot say (unit, who fills an
``auto``, since which release, what happens to unknown keys) is kept as data and lands in the compiled schema under
``x-zerocfg``:

on a property
    ``unit``        what the number counts: "elements", "bytes", "GiB", "samples", "steps", "ranks", "seconds", ...
    ``source``      where the fact comes from: "deepspeed/runtime/zero/config.py"
    ``since`` / ``until``   first release that reads the key / first release that no longer does
    ``auto``        who fills a literal ``"auto"``: {"transformers": "per_device_train_batch_size", ...}; a consumer
                    that is absent does not fill it
    ``auto_raw``    what the reading library itself does with an unfilled "auto":
                    "default" (silently its default), "kept" (the string travels on), "error"
    ``aliases``     other spellings that are read as this key
    ``deprecated``  why the key should not be written any more, and what to write instead
    ``renamed_to``  the key that replaced this one (same section unless it holds a dot)
    ``removed``     the key is refused by its presence alone; the text says why
    ``inert``       the key is read by nobody in effect; the text says so
    ``reads``       how the value is read: "lax" (pydantic's lax conversion), "raw" (taken as it is, nothing checks),
                    "int" / "float" / "bool" (converted from the text of an environment variable),
                    "str"
on a section (object)
    ``unknown``     what an unknown key does: "error" or "ignored"
    ``null``        what `section: null` does: "absent" or "error"
    ``library``     the name of the library that reads the section
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

Consumer = Literal["deepspeed", "accelerate", "transformers", "trl"]


class Section(BaseModel):
    """One mapping of a config file.

    Class facts that subclasses set: ``unknown`` (what the library does with an unknown key), ``null`` (what it does
    with ``section: null``), ``source`` (file of the library that reads it).
    """

    model_config = ConfigDict(extra="forbid", populate_by_name=True, defer_build=True, protected_namespaces=())

    unknown: ClassVar[Literal["error", "ignored"]] = "error"
    null: ClassVar[Literal["absent", "error"]] = "error"
    source: ClassVar[str] = ""


def key(
    default: Any = ...,
    doc: str = "",
    *,
    unit: str | None = None,
    source: str | None = None,
    since: str | None = None,
    until: str | None = None,
    auto: dict[str, str] | None = None,
    auto_raw: Literal["default", "kept", "error"] | None = None,
    aliases: tuple[str, ...] = (),
    deprecated: str | None = None,
    renamed_to: str | None = None,
    removed: str | None = None,
    inert: str | None = None,
    reads: Literal["lax", "raw", "int", "float", "bool", "str"] | None = None,
    **field: Any,
) -> Any:
    """Declare one key; ``field`` takes pydantic's own ``ge``, ``gt``, ``le``, ``lt``, ``examples``, ``alias``, ..."""
    facts: dict[str, Any] = {
        "unit": unit,
        "source": source,
        "since": since,
        "until": until,
        "auto": auto,
        "auto_raw": auto_raw,
        "aliases": list(aliases) or None,
        "deprecated": deprecated,
        "renamed_to": renamed_to,
        "removed": removed,
        "inert": inert,
        "reads": reads,
    }
    facts = {name: value for name, value in facts.items() if value is not None}
    if isinstance(default, (dict, list)):
        field["default_factory"] = default.copy
    else:
        field["default"] = default
    return Field(description=doc or None, json_schema_extra={"x-zerocfg": facts} if facts else None, **field)
