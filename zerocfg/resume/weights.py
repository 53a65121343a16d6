"""Weights in safetensors files: whole or not, and of which types, from the headers alone.

The format: 8 bytes with the length of a JSON header, little endian; the header; the tensors. The header gives each
tensor's dtype, shape and place.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zerocfg.budgets import HEADER_BYTES, INDEX_BYTES, TENSOR_ELEMENTS
from zerocfg.resume.torch_file import UnreadableError, note_damage
from zerocfg.source import disk

if TYPE_CHECKING:
    from pathlib import Path

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
OTHERS = ("pytorch_model.bin", "pytorch_model.bin.index.json", "adapter_model.safetensors", "adapter_model.bin")


@dataclass(slots=True)
class Weights:
    """``tensors`` and ``elements`` are counts, ``dtypes`` counts tensors by dtype as safetensors spells it.

    ``empty`` are tensors without elements: what ZeRO-3 saves where nothing gathers the weights.
    """

    files: list[str]
    tensors: int = 0
    elements: int = 0
    dtypes: Counter[str] = field(default_factory=Counter)
    empty: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        return not (self.missing or self.damaged or self.empty)


def read_weights(folder: Path) -> Weights | None:
    """The weights in a folder, as the Trainer looks for them; None where there are none."""
    if (folder / SINGLE).is_file():
        found = Weights([SINGLE])
    elif (folder / INDEX).is_file():
        found = Weights([INDEX])
        try:
            named = read_json(folder / INDEX).get("weight_map")
        except UnreadableError as error:
            found.damaged[INDEX] = str(error)
            return found
        names = sorted({str(item) for item in named.values()}) if isinstance(named, dict) else []
        found.missing = [name for name in names if "/" in name or not is_file(folder / name)]
        found.files = [name for name in names if name not in found.missing]
    else:
        other = [name for name in OTHERS if (folder / name).is_file()]
        found = Weights(other)
        for name in other:
            if name.endswith(".bin"):
                note_damage(folder / name, found.damaged)
        return found if other else None
    for name in found.files:
        try:
            _add(found, folder / name)
        except UnreadableError as error:
            found.damaged[name] = str(error)
        except OSError as error:
            found.damaged[name] = f"cannot be read: {error.strerror or error}"
    return found


def _add(found: Weights, path: Path) -> None:
    for name, entry in header(path).items():
        if name == "__metadata__" or not isinstance(entry, dict):
            continue
        shape = entry.get("shape")
        if not isinstance(shape, list) or not all(isinstance(size, int) for size in shape):
            raise UnreadableError(f"has no shape for {name[:80]}")
        found.tensors += 1
        found.elements += _elements(name, shape)
        found.dtypes[str(entry.get("dtype"))] += 1
        if 0 in shape:
            found.empty.append(name)


def _elements(name: str, shape: list[int]) -> int:
    """Of one tensor. Raises UnreadableError for more than there can be, before their number takes time to compute."""
    if 0 in shape:
        return 0
    count = 1
    for size in shape:
        count *= size
        if abs(count) >= TENSOR_ELEMENTS:
            raise UnreadableError(f"has a shape of more than 2^63 elements for {name[:80]}")
    return count


def header(path: Path) -> dict[str, object]:
    """The header of a safetensors file. Raises UnreadableError where it is damaged or the file cut off, or OSError."""
    size = path.stat().st_size
    with disk.opened(path) as file:
        first = file.read(8)
        if len(first) < 8:
            raise UnreadableError("is cut off: shorter than a header")
        (length,) = struct.unpack("<Q", first)
        if length > min(HEADER_BYTES, size - 8):
            raise UnreadableError("is cut off, or no safetensors file: its header would be longer than the file")
        found = _parse(file.read(length))
    ends = [entry["data_offsets"][1] for entry in found.values() if _placed(entry)]
    if max(ends, default=0) + 8 + length > size:
        raise UnreadableError(f"is cut off: {size} bytes of {max(ends) + 8 + length}")
    return found


def _placed(entry: object) -> bool:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    return isinstance(offsets, list) and len(offsets) == 2 and all(isinstance(offset, int) for offset in offsets)


def is_file(path: Path) -> bool:
    """False also where the name is none that a file system takes: it was read from a file."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def read_json(path: Path) -> dict[str, object]:
    """A JSON object in a file. Raises UnreadableError."""
    try:
        if not path.is_file():
            raise UnreadableError("is no regular file")
        if path.stat().st_size > INDEX_BYTES:
            raise UnreadableError("is too large for what it should be")
        return _parse(disk.whole(path, INDEX_BYTES))
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror or error}") from None


def _parse(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"holds no JSON ({error})") from None
    if not isinstance(found, dict):
        raise UnreadableError("holds JSON, but no object")
    return found
