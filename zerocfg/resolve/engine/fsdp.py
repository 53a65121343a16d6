"""FSDP settings that zerocfg chooses where no source gives them, and why FSDP is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocfg.models.layers import LAYER_CLASSES
from zerocfg.resolve.plan import Decision, Problem
from zerocfg.run.model import Origin, Run, Setting
from zerocfg.run.stages.admitted import admitted_of
from zerocfg.run.stages.fsdp import ONLY_FIRST, SECTION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocfg.resolve.inputs import Inputs

OUT = "Set `engine: deepspeed` or `engine: ddp`"


def known_everywhere(run: Run, name: str) -> bool:
    """Whether every release of accelerate that a run admits reads this key of `fsdp_config`."""
    return admitted_of(run, "accelerate").always(f"option.{name}")


def choose_fsdp(found: Inputs, source: dict[str, Any]) -> Inputs:
    """The run with what ``source``, the accelerate config, leaves open, as flags of its launcher."""
    problems = (*found.problems, *_refusals(found))
    if problems:
        return replace(found, problems=problems)
    flags, chosen = dict(found.run.flags), dict(found.chosen)
    section = source.get("fsdp_config")
    written = {_spelled(str(key)) for key in section} if isinstance(section, dict) else set()
    for name, (value, reason) in _choices(found, section if isinstance(section, dict) else {}, written).items():
        if name in written or not known_everywhere(found.run, name):
            continue
        flags[name] = Setting(str(value).lower() if isinstance(value, bool) else str(value), _computed(reason))
        chosen[SECTION + name] = Decision(value, f"zerocfg's choice: {reason}", "chosen")
    if source.get("distributed_type") != "FSDP":
        # Beside such a flag the launcher takes nothing but sizes from the file: no parallelism_config, for one.
        flags["use_fsdp"] = Setting(True, _computed("the engine of this run is fsdp"))
    return replace(found, run=replace(found.run, flags=flags), chosen=chosen)


def _refusals(found: Inputs) -> Iterator[Problem]:
    run, profile = found.run, found.profile
    if run.consumer == "deepspeed":
        why = "the consumer is DeepSpeed: a loop around `deepspeed.initialize` does not train with FSDP"
        yield Problem("engine", why, "Set `engine: deepspeed`, or `consumer: accelerate`.")
    if profile is not None and profile.accelerator.vendor == "cpu":
        why = f"{profile.name} has no accelerator: accelerate makes plain data parallelism of FSDP 2 there, and FSDP 1 "
        why += "stops with 'no available devices'"
        yield Problem("engine", why, f"{OUT}, or name other hardware.")
    if found.spec.launcher not in (None, "accelerate"):
        why = f"`launcher: {found.spec.launcher}` hands no fsdp_config to the job"
        yield Problem("launcher", why, "Leave `launcher:` out: accelerate launch starts FSDP.")


def _choices(found: Inputs, section: dict[str, Any], written: set[str]) -> dict[str, tuple[Any, str]]:
    """Every choice of this module by key of `fsdp_config`, including those that the source already gives."""
    first = sorted(written & ONLY_FIRST)
    only_first = bool(first) or not known_everywhere(found.run, "fsdp_version")
    version = section.get("fsdp_version", section.get("version", 1 if only_first else 2))
    why = f"only version 1 reads {first[0]}" if first else "version 2 shards each tensor on its own, and is where new "
    choices: dict[str, tuple[Any, str]] = {
        "fsdp_version": (version, why if first else why + "features go; accelerate's default is 1"),
        "fsdp_auto_wrap_policy": (
            "TRANSFORMER_BASED_WRAP",
            "without a policy the whole model is one unit, gathered at once",
        ),
        "fsdp_state_dict_type": ("FULL_STATE_DICT", _saved(found, str(version))),
    }
    policy = section.get("fsdp_auto_wrap_policy", section.get("auto_wrap_policy", "TRANSFORMER_BASED_WRAP"))
    kind = found.run.model.model_type if found.run.model else None
    if str(policy).upper() == "TRANSFORMER_BASED_WRAP" and kind in LAYER_CLASSES:
        choices["fsdp_transformer_layer_cls_to_wrap"] = (
            LAYER_CLASSES[kind],
            f"the layers of a {kind} model; each is gathered on its own",
        )
    return choices


def _saved(found: Inputs, version: str) -> str:
    default = "SHARDED_STATE_DICT, version 2's default," if version == "2" else "SHARDED_STATE_DICT"
    if found.run.consumer == "accelerate":
        return f"save_state() writes whole weights; with {default} it writes shards for `accelerate merge-weights`"
    return f"the Trainer saves whole weights; with {default} it saves no model.safetensors"


def _spelled(key: str) -> str:
    return key if key.startswith("fsdp") else f"fsdp_{key}"


def _computed(note: str) -> Origin:
    return Origin("computed", note)
