"""What becomes of a training argument that a release does not have, so that the training stays as it is.

The new names are facts of the catalog. Here stands what a name alone does not say: which value means the same under
it, which values asked for nothing, and what no edit can keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zerocfg.compare.values import same
from zerocfg.migrate.argument_history import Absent
from zerocfg.run.model import UNKNOWN
from zerocfg.source.node import Path


class _Same:
    """The value stays as it is written."""


SAME = _Same()


@dataclass(frozen=True, slots=True)
class Becomes:
    """The argument stands at ``path`` from now on."""

    path: Path
    value: object = SAME


@dataclass(frozen=True, slots=True)
class Gone:
    """The argument can be left out. ``why``: what makes that the same."""

    why: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """No edit keeps the meaning; the reason."""

    why: str


Outcome = Becomes | Gone | Unclear

_SWITCHES: Mapping[str, tuple[str, object]] = {
    "group_by_length": ("train_sampling_strategy", "group_by_length"),
    "adafactor": ("optim", "adafactor"),
    "include_inputs_for_metrics": ("include_for_metrics", ["inputs"]),
    "tpu_metrics_debug": ("debug", "tpu_metrics_debug"),
}
"""Switches that became a word of another argument."""
_INERT = {
    "overwrite_output_dir": "the Trainer writes to an existing folder in every release",
    "use_mps_device": "the device is found without it",
    "tpu_num_cores": "the launcher decides it",
}
"""Arguments that do not affect training."""
_AS_EVER: Mapping[str, object] = {
    "save_safetensors": True,
    "past_index": -1,
    "ray_scope": "last",
    "label_pad_token_id": -100,
}
"""Defaults that are no plain "off", and that later releases do without being asked."""
_NOT_THE_SAME = frozenset(("sharded_ddp", "push_to_hub_organization", "rpo_alpha", "vllm_device"))
"""Their successors say something else."""
_APEX = frozenset(("fp16_opt_level", "half_precision_backend", "fp16_backend"))


def successor(name: str, value: Any, others: Mapping[str, Any], absent: Absent) -> Outcome:
    """``others``: the values of the other arguments that are written."""
    if name == "warmup_ratio":
        return _warmup(value, others)
    if name == "gradient_checkpointing_use_reentrant" and isinstance(value, bool):
        modern = "activation_checkpointing" in others
        return Becomes(
            ("activation_checkpointing_kwargs" if modern else "gradient_checkpointing_kwargs", "use_reentrant")
        )
    if name in _SWITCHES:
        if value is UNKNOWN:  # under the new name it would be read as a word
            return Unclear(absent.instead)
        new, word = _SWITCHES[name]
        if value in (False, None):
            return Gone("it is switched off")
        taken = others.get(new)
        if taken is not None and taken != word:
            return Unclear(f"`{new}` says {taken!r} beside it")
        return Gone(f"`{new}` says so already") if taken == word else Becomes((new,), word)
    if name in _APEX and value is not UNKNOWN:
        asked = {others.get("half_precision_backend"), others.get("fp16_backend")} | {value}
        return Unclear(absent.instead) if "apex" in asked else Gone("without Apex it changes nothing")
    if name == "logging_dir" and (reason := _no_tensorboard(others)):
        return Gone(reason)
    if name in _INERT:
        return Gone(_INERT[name])
    if value is None and (not absent.defaulted or absent.default is None):
        return Gone("nothing is asked for")
    if (
        absent.renamed_to
        and name not in _NOT_THE_SAME
        and not (name == "push_to_hub_model_id" and "push_to_hub_organization" in others)
    ):
        return _renamed(tuple(absent.renamed_to.split(".")), value, others)
    if absent.defaulted and value is not UNKNOWN and same(value, absent.default) and _off(name, value):
        return Gone("it was the default, and says what every later release does")
    return Unclear(absent.instead or "nothing takes its place")


def _off(name: str, value: object) -> bool:
    """Whether a default asks for nothing that a release could lack. What is on by default may be gone with its name:
    TRL cut prompts at 512 tokens, and does not any more."""
    return value in (None, False, "") or (name in _AS_EVER and same(value, _AS_EVER[name]))


def _renamed(path: Path, value: Any, others: Mapping[str, Any]) -> Outcome:
    if len(path) == 1 and path[0] in others:
        other = others[str(path[0])]
        if value is not UNKNOWN and same(value, other):
            return Gone(f"`{path[0]}` says so already")
        return Unclear(f"`{path[0]}` says {other!r} beside it")
    return Becomes(path)


def _warmup(value: Any, others: Mapping[str, Any]) -> Outcome:
    """Steps win over a ratio; a number of steps below 1 is a fraction from transformers 5 on."""
    steps = others.get("warmup_steps")
    if "warmup_steps" in others and steps is UNKNOWN:
        return Unclear("`warmup_steps`, whose value the files do not tell, may win over it")
    if isinstance(steps, (int, float)) and steps > 0:
        return Gone(f"`warmup_steps` is {steps} and wins over it")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return Unclear("write `warmup_steps`, where a value below 1 is a fraction of all steps")
    if not 0 <= value < 1:
        return Unclear("a `warmup_steps` of 1 or more is a number of steps, not a share of them")
    if "warmup_steps" in others:
        return Becomes(("warmup_steps",), float(value))
    return Becomes(("warmup_steps",))


def _no_tensorboard(others: Mapping[str, Any]) -> str:
    """Why the folder of TensorBoard's logs does not matter; empty where it may."""
    asked = others.get("report_to")
    words = asked if isinstance(asked, list) else [asked]
    if (
        "report_to" in others
        and all(isinstance(word, str) for word in words)
        and not {"all", "tensorboard"} & set(words)
    ):
        return "only TensorBoard uses it, and `report_to` does not ask for that"
    return ""
