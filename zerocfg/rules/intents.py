"""What an edit of a config file means to set."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from zerocfg.rules.api import Intent
from zerocfg.run.namespace import spelled
from zerocfg.source.edit import insert_entry, replace_value
from zerocfg.source.node import dotted

if TYPE_CHECKING:
    from zerocfg.run.model import SourceFile
    from zerocfg.source.edit import Edit
    from zerocfg.source.node import Path


def meant(edit: Callable[..., list[Edit]], file: SourceFile, path: Path, values: Sequence[str]) -> tuple[Intent, ...]:
    """What an edit of `zerocfg.source.edit` means to set, where it writes one value. An "auto" is for others to fill
    in, and another name alone says what its author said."""
    if not values or edit not in (replace_value, insert_entry):
        return ()
    key, value = path if edit is replace_value else (*path, values[0]), _read(file, values[-1])
    if value is None or value == "auto" or isinstance(value, (dict, list)):
        return ()
    if file.kind == "deepspeed":
        return (Intent(dotted(key), value),)
    if file.kind == "accelerate" and len(key) <= 2:
        return (Intent(str(key[0]) if len(key) == 1 else spelled(str(key[0]), str(key[1])), value, "option"),)
    if file.kind == "recipe":
        inline = key[0] == "deepspeed"
        if inline or len(key) == 1:
            return (Intent(dotted(key[1:]), value) if inline else Intent(str(key[0]), value, "argument"),)
    return ()


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
