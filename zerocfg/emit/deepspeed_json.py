"""The DeepSpeed JSON of a plan: strict JSON, no ``auto``, a fixed order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zerocfg.resolve.plan import Plan

_ORDER = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "bf16",
    "fp16",
    "optimizer",
    "scheduler",
    "zero_optimization",
    "stage",
    "enabled",
    "type",
    "params",
    "device",
    "nvme_path",
    "offload_optimizer",
    "offload_param",
    "overlap_comm",
    "contiguous_gradients",
    "reduce_scatter",
    "reduce_bucket_size",
    "allgather_bucket_size",
    "sub_group_size",
)
_RANK = {name: rank for rank, name in enumerate(_ORDER)}


def ds_config(plan: Plan) -> dict[str, Any]:
    """The config as nested mappings."""
    config: dict[str, Any] = {}
    for name in plan.deepspeed:
        *parents, leaf = name.split(".")
        section = config
        for parent in parents:
            section = section.setdefault(parent, {})
        section[leaf] = plan.settings[name].value
    return _sorted(config)


def render(plan: Plan) -> str:
    return json.dumps(ds_config(plan), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _sorted(section: dict[str, Any]) -> dict[str, Any]:
    """Batch, precision and ZeRO first, as people look for them; the rest by name."""
    names = sorted(section, key=lambda name: (_RANK.get(name, len(_RANK)), name))
    return {name: _sorted(section[name]) if isinstance(section[name], dict) else section[name] for name in names}
