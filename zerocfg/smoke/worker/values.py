"""Values of the libraries' objects as JSON holds them."""

from __future__ import annotations

import enum
import math
from pathlib import Path
from typing import Any

DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}


def plain(value: Any) -> Any:
    """Numbers, texts, lists and mappings; dtypes as "fp32", an infinite number as "inf"."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one) for one in value]
    if isinstance(value, Path):
        return str(value)
    text = str(value)
    return DTYPES.get(text.removeprefix("torch."), text)


def flat(section: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"a": {"b": 1}}`` as ``{"a.b": 1}``."""
    found: dict[str, Any] = {}
    for key, value in section.items():
        if isinstance(value, dict):
            found.update(flat(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = plain(value)
    return found
