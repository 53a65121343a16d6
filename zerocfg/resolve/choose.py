"""What zerocfg decides: what the author left open and the libraries would decide silently, or badly."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocfg.memory.formula import by_formula
from zerocfg.memory.outside import GIB
from zerocfg.memory.predict import predict
from zerocfg.memory.verdict import judge
from zerocfg.resolve.plan import Decision, Problem
from zerocfg.resolve.setup import Setup, setup_of
from zerocfg.run.config import VERSIONS
from zerocfg.run.effective import compute
from zerocfg.run.model import UNKNOWN, Effective, Origin, Run, Setting, SourceFile
from zerocfg.source.node import Entry, Mapping, Scalar

if TYPE_CHECKING:
    from zerocfg.memory.terms import Timeline
    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.models.model_facts import ModelFacts
    from zerocfg.resolve.inputs import Inputs

STAGE = "zero_optimization.stage"
SAFE_SHARE = 0.9  # of a device; the rest is the CUDA context, communication buffers and fragmentation
FOR_STATES = 0.75  # of that, where activations are not known
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
    """The smallest ZeRO stage that fits, with activations where they are known, else with room for them.

    From what communicates least to what needs least memory. Raises ValueError with the reason why there is none.
    """
    profile, facts = inputs.profile, inputs.facts
    if profile is None:
        raise ValueError("without `hardware:` zerocfg cannot choose one")
    device = profile.accelerator
    memory = device.planning_gib
    if memory is None:
        raise ValueError(f"the memory of {profile.name} is not known, so zerocfg cannot choose one")
    config = inputs.model_file.data() if inputs.model_file else None
    needs = 0
    for stage in _candidates(effective):
        setup = _setup(inputs, effective, stage, profile.world_size)
        found = predict(facts, setup.options, _activations(setup, facts, config), device)
        needs = found.device.high if found.complete else found.allocated.low
        if found.complete and judge(found, int(memory * GIB)) == "fits":
            about = f"takes up to {needs / GIB:.1f} GiB"
        elif not found.complete and needs <= memory * GIB * SAFE_SHARE * FOR_STATES:
            about = f"whose states ({needs / GIB:.1f} GiB a rank) leave a quarter to activations"
        else:
            continue
        reason = f"zerocfg's choice: the smallest stage that {about} of {device.name}'s {memory:.0f} GiB"
        return Decision(stage, reason.replace("that whose", "whose"), "chosen")
    raise ValueError(
        f"a rank needs {needs / GIB:.1f} GiB of {device.name}'s {memory:.0f} GiB even at stage 3; "
        "offload the optimizer, or use more devices (zerocfg plan shows what helps)"
    )


def _setup(inputs: Inputs, effective: Effective, stage: int, ranks: int) -> Setup:
    """The run as it would be with this stage; what is not known yet is left to the engine's defaults."""

    def value(name: str) -> Any:
        known = stage if name == STAGE else effective.value(name)
        return None if known is UNKNOWN else known

    recipe = inputs.run.recipe.data() if inputs.run.recipe else None
    written = {name: setting.value for name, setting in inputs.run.arguments.items()}
    return setup_of(value, {**(recipe if isinstance(recipe, dict) else {}), **written}, inputs.spec, ranks)


def _activations(setup: Setup, facts: ModelFacts, config: Any) -> Timeline | None:
    """By the closed formula; None where it does not apply."""
    if setup.workload is None:
        return None
    try:
        return by_formula(facts, setup.workload, setup.precision, config if isinstance(config, dict) else None)
    except ValueError:
        return None


def _candidates(effective: Effective) -> tuple[int, ...]:
    optimizer = effective.value("zero_optimization.offload_optimizer.device", "none")
    parameters = effective.value("zero_optimization.offload_param.device", "none")
    if parameters != "none" or optimizer == "nvme":
        return (3,)
    return (2, 3) if optimizer == "cpu" else (1, 2, 3)


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
