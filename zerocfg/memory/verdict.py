"""Does it fit, and if not, what is the cheapest change that makes it fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from zerocfg.memory.options import Options, TorchOptions, Workload

if TYPE_CHECKING:
    from zerocfg.memory.predict import Prediction

Word = Literal["fits", "tight", "does not fit", "unknown"]
Evaluate = Callable[["Setting"], "Prediction"]

GIB = 1 << 30
SMALL_BUCKET = 50_000_000  # elements; enough to keep a network busy
SMALL_GROUP = 100_000_000  # elements of one optimizer sub group


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to run the job. ``workload`` None: activations are not known."""

    options: Options | TorchOptions
    workload: Workload | None


@dataclass(frozen=True, slots=True)
class Rung:
    """One change: what to do, what it costs in words, and the job after it."""

    what: str
    cost: str
    setting: Setting
    prediction: Prediction
    word: Word


@dataclass(frozen=True, slots=True)
class Ladder:
    """``single``: each change alone, cheapest first. ``together``: the fewest of them, in that order, that make the job
    fit; empty when it fits as it is, or when not even all of them help."""

    single: tuple[Rung, ...]
    together: tuple[Rung, ...]


def judge(prediction: Prediction, capacity: int | None) -> Word:
    """The verdict for a device of ``capacity`` bytes (what the driver reports as its total).

    fits: the high end of what the driver will show is below the capacity. does not fit: not even the low end is. tight:
    the answer lies between, and depends on fragmentation. Without activations only "does not fit" can be said.
    """
    if capacity is None:
        return "unknown"
    if prediction.device.low > capacity:
        return "does not fit"
    if not prediction.complete:
        return "unknown"
    return "fits" if prediction.device.high <= capacity else "tight"


def ladder(setting: Setting, evaluate: Evaluate, capacity: int) -> Ladder:
    """Changes that save memory, and the cheapest way to make the job fit. ``evaluate`` predicts a changed job."""
    single = tuple(
        Rung(what, cost, changed, prediction, judge(prediction, capacity))
        for what, cost, changed in _changes(setting)
        for prediction in [evaluate(changed)]
    )
    if judge(evaluate(setting), capacity) == "fits":
        return Ladder(single, ())
    alone = next((rung for rung in single if rung.word == "fits"), None)
    if alone is not None:
        return Ladder(single, (alone,))
    return Ladder(single, _together(setting, evaluate, capacity))


def _together(setting: Setting, evaluate: Evaluate, capacity: int) -> tuple[Rung, ...]:
    """Climb until it fits, then leave out every rung that was not needed."""
    wanted: list[str] = []
    now, word = setting, judge(evaluate(setting), capacity)
    while word != "fits":
        before = evaluate(now).device.expected
        for what, _, changed in _changes(now):
            if evaluate(changed).device.expected < before:
                wanted.append(what)
                now = changed
                break
        else:
            return ()
        word = judge(evaluate(now), capacity)
    for what in reversed(wanted.copy()):  # the dearest first
        rest = list(wanted)
        rest.remove(what)
        climbed = _climb(setting, rest)
        if climbed is not None and judge(evaluate(climbed[-1][2] if climbed else setting), capacity) == "fits":
            wanted = rest
    steps = _climb(setting, wanted) or []
    found = []
    for what, cost, changed in steps:
        prediction = evaluate(changed)
        found.append(Rung(what, cost, changed, prediction, judge(prediction, capacity)))
    return tuple(found)


def _climb(setting: Setting, wanted: list[str]) -> list[tuple[str, str, Setting]] | None:
    """The changes of these names, one on top of the other; None when one of them is not possible then."""
    steps, now = [], setting
    for name in wanted:
        step = next((step for step in _changes(now) if step[0] == name), None)
        if step is None:
            return None
        steps.append(step)
        now = step[2]
    return steps


def _changes(setting: Setting) -> Iterator[tuple[str, str, Setting]]:
    """Every single change that can be made, cheapest first."""
    options, work = setting.options, setting.workload
    if isinstance(options, Options):
        yield from _free(options, work)
    if work is not None and not work.fused_loss:
        yield (
            "compute the loss without all logits (use_liger_kernel)",
            "none, if the model is supported",
            _with(setting, replace(work, fused_loss=True)),
        )
    if isinstance(options, Options) and options.world_size > 1 and options.stage == 0:
        yield "ZeRO stage 1", "none: the same bytes are sent", Setting(replace(options, stage=1), work)
    if work is not None and not work.gradient_checkpointing:
        yield (
            "gradient checkpointing",
            "about a third more compute",
            _with(setting, replace(work, gradient_checkpointing=True)),
        )
    if work is not None and work.micro_batch > 1:
        half = max(size for size in range(1, work.micro_batch) if work.micro_batch % size == 0)
        steps = options.gradient_accumulation_steps * work.micro_batch // half
        yield (
            f"micro batch {half}, {steps} accumulation steps",
            "smaller matrices, and more messages at stage 2 and 3",
            Setting(replace(options, gradient_accumulation_steps=steps), replace(work, micro_batch=half)),
        )
    if isinstance(options, Options):
        yield from _more_sharding(options, work)
    if work is not None and work.sequence_length > 512:
        half = work.sequence_length // 2
        yield f"sequences of {half} tokens", "another training", _with(setting, replace(work, sequence_length=half))


def _with(setting: Setting, work: Workload) -> Setting:
    return Setting(setting.options, work)


def _free(options: Options, work: Workload | None) -> Iterator[tuple[str, str, Setting]]:
    if options.stage > 0 and options.reduce_bucket_size > SMALL_BUCKET:
        smaller = replace(options, reduce_bucket_size=SMALL_BUCKET)
        yield f"reduce_bucket_size {SMALL_BUCKET}", "none that is measurable", Setting(smaller, work)
    if options.stage in (1, 2) and options.overlaps:
        yield "overlap_comm false", "reduction waits for backward", Setting(replace(options, overlap_comm=False), work)
    if options.stage == 3 and options.offload_optimizer == "none" and options.sub_group_size > SMALL_GROUP:
        smaller = replace(options, sub_group_size=SMALL_GROUP)
        yield f"sub_group_size {SMALL_GROUP}", "a few more kernels a step", Setting(smaller, work)


def _more_sharding(options: Options, work: Workload | None) -> Iterator[tuple[str, str, Setting]]:
    several, steps = options.world_size > 1, options.gradient_accumulation_steps
    if several and options.stage < 2:
        cost = "none" if steps == 1 else f"{(steps + 1) / 2:g} times the bytes on the wire"
        yield "ZeRO stage 2", cost, Setting(replace(options, stage=2), work)
    if several and options.stage < 3:
        cost = f"{1.5 * steps:g} times the bytes on the wire of stage 1"
        yield "ZeRO stage 3", cost, Setting(replace(options, stage=3), work)
    if options.offload_optimizer == "none":
        stage = max(options.stage, 2)
        offloaded = replace(options, stage=stage, offload_optimizer="cpu")
        yield (
            f"the optimizer on the host (stage {stage})",
            "each step waits for the processors",
            Setting(offloaded, work),
        )
    if options.offload_param == "none":
        both = replace(
            options,
            stage=3,
            offload_optimizer="cpu" if options.offload_optimizer == "none" else options.offload_optimizer,
            offload_param="cpu",
        )
        yield "optimizer and parameters on the host (stage 3)", "each layer waits for its weights", Setting(both, work)
