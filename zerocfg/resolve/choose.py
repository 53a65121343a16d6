"""What zerocfg decides: what the author left open and the libraries would decide silently, or badly."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocfg.memory.fit import GIB, SAFE_SHARE
from zerocfg.memory.states import Options, model_states
from zerocfg.resolve.plan import Decision, Problem
from zerocfg.run.config import VERSIONS
from zerocfg.run.effective import compute
from zerocfg.run.model import Effective, Origin, Run, Setting, SourceFile
from zerocfg.source.node import Entry, Mapping, Scalar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.resolve.inputs import Inputs

STAGE = "zero_optimization.stage"
FOR_STATES = 0.75  # of the usable memory; what is left is for activations, which are not counted here
GATHER = "zero_optimization.stage3_gather_16bit_weights_on_model_save"


def _is_set(setting: Setting | None) -> bool:
    return setting is not None and setting.origin.kind in ("file", "flag", "environment")


def open_values(inputs: Inputs) -> tuple[dict[str, Decision], list[Problem]]:
    """Decide what the rest depends on (the ZeRO stage) and put it into the run."""
    if inputs.engine != "deepspeed":
        return {}, []
    before = compute(inputs.run)
    stage = before.get(STAGE)
    if _is_set(stage):
        return {}, []
    try:
        chosen = _smallest_stage(inputs, before)
    except ValueError as error:
        return {}, [Problem(STAGE, f"nobody says which ZeRO stage, and {error}", "Write `stage` into the source.")]
    run = inputs.run
    if run.deepspeed is not None:
        run.deepspeed = with_value(run.deepspeed, ("zero_optimization", "stage"), chosen.value)
    else:
        origin = Origin("computed", chosen.reason)
        run.flags = {**run.flags, "zero_stage": Setting(str(chosen.value), origin)}
    return {STAGE: chosen}, []


def _smallest_stage(inputs: Inputs, effective: Effective) -> Decision:
    """The smallest ZeRO stage whose states leave a part of the device's memory to the activations.

    Raises ValueError with the reason why there is none.
    """
    profile, facts = inputs.profile, inputs.facts
    device = profile.accelerator if profile else None
    if profile is None:
        raise ValueError("without `hardware:` zerocfg cannot choose one")
    memory = device.planning_gib if device else None
    if device is None or memory is None:
        raise ValueError(f"the memory of {profile.name} is not known, so zerocfg cannot choose one")
    room = int(memory * SAFE_SHARE * FOR_STATES * GIB)
    needs = 0
    for options in _candidates(effective, profile.world_size):
        needs = model_states(facts, options).peak("device")
        if needs <= room:
            return Decision(
                options.stage,
                f"zerocfg's choice: the smallest stage whose states ({needs / GIB:.1f} GiB a rank) leave "
                f"a quarter of {device.name}'s {memory:.0f} GiB to activations",
                "chosen",
            )
    raise ValueError(
        f"the states need {needs / GIB:.1f} GiB a rank of {device.name} even at stage 3; "
        "offload the optimizer, or use more devices"
    )


def _candidates(effective: Effective, ranks: int) -> Iterator[Options]:
    """From what communicates least to what needs least; stage 1 costs no more communication than none."""
    optimizer = effective.value("zero_optimization.offload_optimizer.device", "none")
    parameters = effective.value("zero_optimization.offload_param.device", "none")
    stages: tuple[int, ...] = (1, 2, 3)
    if parameters != "none" or optimizer == "nvme":
        stages = (3,)
    elif optimizer == "cpu":
        stages = (2, 3)
    half = effective.value("bf16.enabled") is True or effective.value("fp16.enabled") is True
    bucket = effective.value("zero_optimization.reduce_bucket_size")
    for stage in stages:
        yield Options(
            stage,
            ranks,
            precision="bf16" if half else "fp32",
            offload_optimizer=optimizer,
            offload_param=parameters,
            reduce_bucket_size=bucket if isinstance(bucket, int) else 500_000_000,
        )


def with_value(file: SourceFile, path: tuple[str, ...], value: Any) -> SourceFile:
    """The file with one value set, in memory only; its text stays as it is."""
    assert file.document is not None
    root = deepcopy(file.document.root)
    node = root
    for part in path[:-1]:
        assert isinstance(node, Mapping)
        entry = node.entry(part)
        if entry is None or not isinstance(entry.value, Mapping):
            entry = Entry(part, node.span, Mapping(node.span))
            node.entries.append(entry)
        node = entry.value
    assert isinstance(node, Mapping)
    node.entries = [entry for entry in node.entries if entry.key != path[-1]]
    node.entries.append(Entry(path[-1], node.span, Scalar(value, node.span, str(value))))
    return replace(file, document=replace(file.document, root=root))


def gather_weights(effective: Effective, stage: Any, consumer: str | None) -> dict[str, Decision]:
    """With ZeRO-3, whole weights in the checkpoint unless the author refused them."""
    setting = effective.get(GATHER)
    if stage != 3 or setting is None or setting.value is not False or _is_set(setting):
        return {}
    who = {"deepspeed": "DeepSpeed", "accelerate": "accelerate"}.get(str(consumer), "the Trainer")
    left = f'{who} would read "auto" as false' if setting.overridden else "nobody sets it, and its default is false"
    reason = f"zerocfg's choice: {left}, and the saved model would hold no weights"
    return {GATHER: Decision(True, reason, "chosen")}


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
        if not _is_set(effective.get(name)):
            default = part == "offload_param" or _release(release) >= (0, 19, 5)
            found[name] = Decision(
                default, f"default of deepspeed {release}, stated because it changed in 0.19.5", "default"
            )
            pinned = default
        else:
            pinned = bool(effective.value(name))
        limit = profile.host.memlock if profile and profile.host else None
        if pinned and isinstance(limit, int):
            notes.append(
                f"{part} is page-locked in host memory, and this machine lets a process lock "
                f" {limit / 2**30:.2f} GiB (ulimit -l); CUDA's own pinned memory is not counted there"
            )
    return found


def _release(text: str) -> tuple[int, ...]:
    parts = []
    for part in text.split(".")[:3]:
        digits = "".join(character for character in part if character.isdigit())
        parts.append(int(digits) if digits else 0)
    return tuple(parts)
