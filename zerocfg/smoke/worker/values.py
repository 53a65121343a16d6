"""Values of the libraries' objects as JSON holds them."""

from __future__ import annotations

import enum
import math
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}


def plain(value: object) -> object:
    """Numbers, texts, lists and mappings; dtypes as "fp32", an infinite number as "inf"."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    text = str(value)
    return DTYPES.get(text.removeprefix("torch."), text)


def flat(section: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """``{"a": {"b": 1}}`` as ``{"a.b": 1}``."""
    found: dict[str, object] = {}
    for key, value in section.items():
        if isinstance(value, dict):
            found.update(flat(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = plain(value)
    return found


def mapping(value: object) -> dict[str, object]:
    """A section of a config; empty where there is none."""
    return value if isinstance(value, dict) else {}


def real(value: object, otherwise: float) -> float:
    """The number that a setting says, in quotes too; ``otherwise`` for nothing. Raises TypeError or ValueError."""
    if not value:
        return otherwise
    if isinstance(value, (int, float, str)):
        return float(value)
    raise TypeError(f"{value!r} is no number")


def whole(value: object, otherwise: int) -> int:
    """The same of a whole number."""
    if not value:
        return otherwise
    if isinstance(value, (int, float, str)):
        return int(value)
    raise TypeError(f"{value!r} is no number")
