"""Values that follow from the stage and the offload of a plan: what the libraries would choose silently, or badly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocfg.resolve.plan import Decision
from zerocfg.resolve.search.candidates import is_named, is_set
from zerocfg.resolve.search.choice import GATHER, STAGE
from zerocfg.run.config import VERSIONS
from zerocfg.run.model import Effective, Run
from zerocfg.run.origins import origin_label
from zerocfg.run.stages.parser import parser_of

if TYPE_CHECKING:
    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.models.model_facts import ModelFacts

LEAVES = "zero_optimization.leaf_module.classes"
MOE_NAMES = "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES"


def gather_weights(effective: Effective, stage: Any, consumer: str | None) -> dict[str, Decision]:
    """With ZeRO-3, whole weights in the checkpoint unless the author refused them."""
    setting = effective.get(GATHER)
    if stage != 3 or setting is None or setting.value is not False or is_set(setting):
        return {}
    who = {"deepspeed": "DeepSpeed", "accelerate": "accelerate"}.get(str(consumer), "the Trainer")
    left = f'{who} would read "auto" as false' if setting.overridden else "nobody sets it, and its default is false"
    reason = f"zerocfg's choice: {left}, and the saved model would hold no weights"
    return {GATHER: Decision(True, reason, "chosen", inputs={STAGE: stage})}


def leaf_modules(effective: Effective, run: Run, stage: Any, facts: ModelFacts) -> dict[str, Decision]:
    """With ZeRO-3, blocks of experts are gathered as a whole: ranks that visit different experts would wait for ever.

    DeepSpeed knows some of them (deepspeed/runtime/zero/leaf_module_config.py), and stops at the key before 0.18.0.
    """
    key = parser_of(run).releases.newest(LEAVES)
    if key is None:
        return {}
    named = effective.value(LEAVES)
    listed = named if isinstance(named, list) and named else key["default"]  # what is no list DeepSpeed refuses
    known = {name.rpartition(".")[2] for name in listed if isinstance(name, str)}
    missing = [name for name in facts.leaf_modules if name not in known]
    exported = effective.environment.get(MOE_NAMES)
    if stage != 3 or not missing or is_named(effective, LEAVES) or (exported is not None and exported.value):
        return {}
    reason = f"zerocfg's choice: the experts of {facts.model_type}, which a rank must not gather one by one"
    inputs = {"model_type": facts.model_type}
    return {LEAVES: Decision([*facts.leaf_modules], reason, "chosen", inputs=inputs)}


def pinned_memory(
    effective: Effective, run: Run, profile: HardwareProfile | None, notes: list[str]
) -> dict[str, Decision]:
    """Whether offload buffers are page-locked; stated, because the default changed with DeepSpeed 0.19.5."""
    found: dict[str, Decision] = {}
    release = run.versions.get("deepspeed", VERSIONS["deepspeed"])
    for part in ("offload_optimizer", "offload_param"):
        device = effective.value(f"zero_optimization.{part}.device", "none")
        name = f"zero_optimization.{part}.pin_memory"
        if device not in ("cpu", "nvme"):
            continue
        memory, room = run.memory, profile.host.planning_gib if profile and profile.host else None
        needed, lost = (memory.host_states_gib, memory.pinned_rounding_gib) if memory else (None, 0.0)
        if not is_set(effective.get(name)) and room and needed and needed > room >= needed - lost:
            reason = (
                f"zerocfg's choice: page-locked blocks are rounded up to powers of two, {needed:.0f} GiB of a node's "
            )
            found[name] = Decision(
                False, f"{reason}{room:.0f} GiB; without it {needed - lost:.0f} GiB", "chosen", inputs={"ram_gib": room}
            )
            pinned = False
        elif not is_set(effective.get(name)):
            default = parser_of(run).newest(name)
            reason = f"{origin_label(default.origin)}, stated because it changed in 0.19.5"
            found[name] = Decision(default.value, reason, "default", inputs={"deepspeed": release})
            pinned = default.value
        else:
            pinned = bool(effective.value(name))
        limit = profile.host.memlock if profile and profile.host else None
        if pinned and isinstance(limit, int):
            notes.append(
                f"{part} is page-locked in host memory, and this machine lets a process lock "
                f" {limit / 2**30:.2f} GiB (ulimit -l); CUDA's own pinned memory is not counted there"
            )
    return found
