"""What an edit of a config file means to set."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from zerocfg.rules.api import Intent
from zerocfg.run.stages.namespace import spelled
from zerocfg.source.edit import insert_entry, replace_value
from zerocfg.source.node import dotted

if TYPE_CHECKING:
    from zerocfg.run.model import SourceFile
    from zerocfg.source.edit import Edit
    from zerocfg.source.node import Path


def meant(edit: Callable[..., list[Edit]], file: SourceFile, path: Path, values: Sequence[str]) -> tuple[Intent, ...]:
    """What an edit of `zerocfg.source.edit` means to set, where it writes a value. Another name alone says what its
    author said."""
    if not values or edit not in (replace_value, insert_entry):
        return ()
    return written_at(file, path if edit is replace_value else (*path, values[0]), values[-1])


def written_at(file: SourceFile, path: Path, text: str) -> tuple[Intent, ...]:
    """What a value that is written at a path means to set; a section each of its keys. An "auto" is for others to fill
    in."""
    leaves = _leaves(path, _read(file, text))
    return tuple(intent for key, value in leaves if (intent := _intent(file, key, value)) is not None)


def _leaves(path: Path, value: object) -> Iterator[tuple[Path, object]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves((*path, str(name)), item)
    elif value is not None and value != "auto" and not isinstance(value, list):
        yield path, value


def _intent(file: SourceFile, key: Path, value: object) -> Intent | None:
    names = tuple(map(str, key))
    if file.kind == "deepspeed":
        return Intent(dotted(key), value)
    if file.kind == "accelerate" and len(names) <= 2:
        return Intent(names[0] if len(names) == 1 else spelled(*names), value, "option")
    if file.kind == "recipe" and (names[0] == "deepspeed" or len(names) == 1):
        return Intent(dotted(key[1:]), value) if len(names) > 1 else Intent(names[0], value, "argument")
    return None


def _read(file: SourceFile, text: str) -> object:
    """The value that a text means in the language of a file; None where it means none."""
    if file.document is not None and file.document.format == "yaml":
        import yaml  # a tenth of the time that JSON files alone take

        try:
            return yaml.safe_load(text)
        except yaml.YAMLError:
            return None
    try:
        return json.loads(text)
    except ValueError:
        return None
