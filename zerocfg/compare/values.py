"""Values and their names: when two mean the same, how one is shown, which come first."""

from __future__ import annotations

import json

from zerocfg.catalog.counterparts import settings
from zerocfg.catalog.values import show
from zerocfg.run.model import UNKNOWN


class _Absent:
    """The value of a name that one side does not have."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()
WIDEST = 60
"""Characters of a value that are shown."""

_FIRST = (
    "engine",
    "num_processes",
    "num_machines",
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "mixed_precision",
    "bf16.enabled",
    "fp16.enabled",
    "bf16",
    "fp16",
    "zero_optimization.stage",
    "zero_optimization.offload_optimizer",
    "zero_optimization.offload_param",
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.allgather_bucket_size",
    "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold",
)
"""How many samples on how many ranks, in which precision, sharded how, held where, sent in which pieces."""

_SAID = frozenset(("train_micro_batch_size_per_gpu", "gradient_clipping", "bf16.enabled", "fp16.enabled"))


def echoed(argument: str) -> str | None:
    """The setting that an argument of a trainer only becomes: where that changed, the argument says nothing more."""
    setting = settings("training-arguments").get(argument)
    return setting if setting in _SAID else None


def importance(name: str) -> tuple[int, str]:
    """Sorts names: what decides most first, a section where it is named, the rest by name."""
    for rank, first in enumerate(_FIRST):
        if name == first or name.startswith(f"{first}."):
            return rank, name
    return len(_FIRST), name


def same(item: object, other: object) -> bool:
    """Equal for whoever reads the file: 1 and 1.0 are, true and 1 are not."""
    if isinstance(item, dict) and isinstance(other, dict):
        return item.keys() == other.keys() and all(same(value, other[name]) for name, value in item.items())
    if isinstance(item, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(item) == len(other) and all(map(same, item, other))
    if isinstance(item, bool) or isinstance(other, bool):
        return item is other
    return bool(item is other or item == other or (item != item and other != other))


def shown(value: object) -> str:
    """A value as a line of text shows it."""
    if value is ABSENT:
        return "(not set)"
    if value is UNKNOWN:
        return "unknown"
    if isinstance(value, (dict, list, tuple)):
        text = json.dumps(value, ensure_ascii=False, default=str)
        return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"
    return show(value)


def flat(value: object, prefix: str = "") -> dict[str, object]:
    """Nested mappings by dotted names; an empty mapping is a value."""
    if not isinstance(value, dict) or (not value and prefix):
        return {prefix: value} if prefix else {}
    found: dict[str, object] = {}
    for name, item in value.items():
        found.update(flat(item, f"{prefix}.{name}" if prefix else str(name)))
    return found
