"""What the catalog knows about a place in a file: its schema, the section around it, the key itself."""

from __future__ import annotations

from dataclasses import dataclass

from zerocfg.catalog.schema import Key, Schema, Section, load_schema
from zerocfg.run.model import SourceFile
from zerocfg.run.reader import TRL_KEYS
from zerocfg.source.node import Path


@dataclass(frozen=True)
class Place:
    """The sections that a mapping's keys may come from: one, or for a TRL recipe TRL's own and the Trainer's."""

    sections: tuple[tuple[Section, Schema], ...]

    def key(self, name: str) -> tuple[Key, Schema] | None:
        found = [(key, schema) for section, schema in self.sections if (key := section.key(name)) is not None]
        # What one parser removed another may still read.
        found.sort(key=lambda pair: "removed" in pair[0].facts)
        return found[0] if found else None


def schemas_of(kind: str, data: object) -> tuple[Schema, ...]:
    """The schemas of a file of this kind (`zerocfg.run.kinds`); none for kinds that are not described."""
    keys = set(data) if isinstance(data, dict) else set()
    if kind == "accelerate":
        environment = data.get("compute_environment", "LOCAL_MACHINE") if isinstance(data, dict) else None
        local = environment in (None, "LOCAL_MACHINE")
        return (load_schema("accelerate" if local else "accelerate-sagemaker"),)
    if kind == "recipe":
        names = ("trl", "training-arguments") if TRL_KEYS & keys else ("training-arguments",)
        return tuple(map(load_schema, names))
    return (load_schema(kind),) if kind in ("deepspeed", "spec", "hardware") else ()


def place_in(kind: str, data: object, path: Path) -> Place:
    """The sections at a key path. ``data`` is the plain value of the file, as far as it can be read."""
    found = []
    for schema in schemas_of(kind, data):
        section = _section(schema, data, path)
        if section is not None:
            found.append((section, schema))
    return Place(tuple(found))


def key_at(file: SourceFile, path: Path) -> Key | None:
    """The key at a path of a file."""
    if not path or not isinstance(path[-1], str):
        return None
    found = place_in(file.kind, file.data(), path[:-1]).key(path[-1])
    return found[0] if found else None


def _section(schema: Schema, data: object, path: Path) -> Section | None:
    section: Section | None = schema.root
    entries: Section | None = None
    for part in path:
        inside = data.get(part) if isinstance(data, dict) else None
        if entries is not None:  # a name that the user chose, as that of a run
            section, entries = entries, None
        elif section is None or not isinstance(part, str):
            return None
        else:
            key = section.key(part)
            if key is None:
                return None
            chosen = data.get(key.chooser) if isinstance(data, dict) else None
            section = key.variant(chosen, schema) or key.section(schema)
            entries = key.entries(schema) if section is None else None
        data = inside
    return section
