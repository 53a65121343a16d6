"""The DeepSpeed JSON of a plan: strict JSON, no ``auto``, a fixed order; and its twin with reasons, for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from zerocfg.emit.values import one_line, typed
from zerocfg.models.deepspeed import DeepSpeedConfig
from zerocfg.run.config import VERSIONS
from zerocfg.run.stages.admitted import AdmittedKeys, admitted_keys

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


def ds_config(plan: Plan) -> dict[str, object]:
    """The config as nested mappings, by way of its typed model, which is that of the newest known release.

    What the plan's release reads otherwise is as planned: lint judges it by that release when the file is read back.
    """
    config: dict[str, Any] = {}
    for name in plan.deepspeed:
        *parents, leaf = name.split(".")
        section = config
        for parent in parents:
            section = section.setdefault(parent, {})
        section[leaf] = plan.settings[name].value
    for name in plan.empty:
        section = config
        for part in name.split("."):
            section = section.setdefault(part, {})
    admitted = admitted_keys("deepspeed", plan.versions.get("deepspeed", VERSIONS["deepspeed"]))
    of_today, changed = _parted(config, "", admitted)
    return _sorted(_merged(typed(DeepSpeedConfig, of_today), changed))


def _parted(section: dict[str, Any], prefix: str, admitted: AdmittedKeys) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys that today's release reads as the plan's does, and the others."""
    of_today: dict[str, Any] = {}
    changed: dict[str, Any] = {}
    section_changed = admitted.changed_later(f"{prefix}*")
    for key, value in section.items():
        name = prefix + key
        if isinstance(value, dict) and admitted.today(f"{name}.*") is not None:
            of_today[key], inner = _parted(value, f"{name}.", admitted)
            if inner:
                changed[key] = inner
        else:
            (changed if section_changed or admitted.changed_later(name) else of_today)[key] = value
    return of_today, changed


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    both = {key: _merged(first[key], second[key]) for key in first.keys() & second.keys()}
    return {**first, **second, **both}


def render(plan: Plan) -> str:
    return json.dumps(ds_config(plan), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def render_commented(plan: Plan) -> str:
    """The same config as Hjson, which DeepSpeed reads as well: each value with its reason behind it.

    accelerate and the Trainer read strict JSON, so no emitted file names this one.
    """
    head = [
        f"# DeepSpeed config of the run {plan.name}, each value with its reason. The job reads ds_config.json.",
        "# zerocfg: ignore-file for people; what is written here is judged in ds_config.json",
    ]
    lines = [*head, "{", *_commented(plan, ds_config(plan), "", "  "), "}"]
    return "\n".join(lines) + "\n"


def _commented(plan: Plan, section: dict[str, object], prefix: str, indent: str) -> list[str]:
    lines = []
    for index, (key, value) in enumerate(section.items()):
        comma = "," if index < len(section) - 1 else ""
        name = json.dumps(key, ensure_ascii=False)
        planned = prefix + key in plan.settings and prefix + key in plan.deepspeed
        if isinstance(value, dict) and value and not planned:
            inside = _commented(plan, value, f"{prefix}{key}.", indent + "  ")
            lines += [f"{indent}{name}: {{", *inside, f"{indent}}}{comma}"]
            continue
        text = f"{indent}{name}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}{comma}"
        reason = one_line(plan.settings[prefix + key].reason) if planned else ""
        lines.append(f"{text}  # {reason}" if reason else text)
    return lines


def _sorted(section: dict[str, Any]) -> dict[str, object]:
    """Batch, precision and ZeRO first, as people look for them; the rest by name."""
    names = sorted(section, key=lambda name: (_RANK.get(name, len(_RANK)), name))
    return {name: _sorted(section[name]) if isinstance(section[name], dict) else section[name] for name in names}
