"""Does it fit, how likely is that, and what is the cheapest change that makes it fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from zerocfg.memory.options import Options, TorchOptions, Workload
from zerocfg.memory.overhead import Band
from zerocfg.memory.spread import chance_below

if TYPE_CHECKING:
    from zerocfg.memory.predict import Prediction

Word = Literal["fits", "likely", "unlikely", "does not fit", "unknown"]
Evaluate = Callable[["Setting"], "Prediction"]
Judge = Callable[["Prediction"], "Verdict"]
Slowness = Callable[["Setting"], float | None]
Fuses = Callable[[Options | TorchOptions], str]
"""By what the loss of the model can be computed without all logits under an engine (`use_liger_kernel`); "": by nothing
that is known."""

GIB = 1 << 30
SMALL_BUCKET = 50_000_000  # elements; enough to keep a network busy
SHORTER = "sequences of"
AFTER_EACH = "gradients are reduced after every micro batch"
FOR_EACH = "parameters are gathered for every micro batch"
SMALL_GROUP = 100_000_000  # elements of one optimizer sub group
FEW_LIVE = 30_000_000  # elements that ZeRO-3 keeps gathered for their next use
SMALL_PARAMETER = 100_000  # elements; DeepSpeed's default of what ZeRO-3 keeps whole


BY_CHANCE: tuple[Word, ...] = ("fits", "likely", "unlikely", "does not fit")
"""The verdicts on figures, the best first."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``chance``: that the figures stay within what there is, from 0 to 1; None: not known. ``by_host``: the memory of
    the node is what it may not fit into, and not that of the device."""

    word: Word
    chance: float | None = None
    by_host: bool = False

    def __str__(self) -> str:
        return self.word if self.chance is None else f"{self.word}: {percent(self.chance)}"


UNKNOWN = Verdict("unknown")


def percent(chance: float) -> str:
    """A chance in words; nothing is certain."""
    return "<1%" if chance < 0.005 else ">99%" if chance >= 0.995 else f"{chance:.0%}"


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to run the job. ``workload`` None: activations are not known."""

    options: Options | TorchOptions
    workload: Workload | None


@dataclass(frozen=True, slots=True)
class Step:
    """One change that can be made."""

    what: str
    cost: str
    setting: Setting

    @property
    def shorter(self) -> bool:
        """Whether it changes what is learned, and so is no way to make the same job fit."""
        return self.what.startswith(SHORTER)


@dataclass(frozen=True, slots=True)
class Rung:
    """One change: what to do, a description of its cost, and the job after it.

    ``slower`` is the predicted time for a token, as a multiple of that of the job as it is; None: not known.
    """

    what: str
    cost: str
    setting: Setting
    prediction: Prediction
    verdict: Verdict
    slower: float | None = None

    @property
    def word(self) -> Word:
        return self.verdict.word


@dataclass(frozen=True, slots=True)
class Ladder:
    """``single``: each change alone, from free to dear. ``together``: what makes the job fit, the change that costs the
    least time or the fewest that are enough together; empty when it fits as it is, or when not even all help."""

    single: tuple[Rung, ...]
    together: tuple[Rung, ...]


def judge(prediction: Prediction, capacity: int | None, host: Band | None = None, room: int | None = None) -> Verdict:
    """The verdict for a device of ``capacity`` bytes (what the driver reports as its total) and a node's memory.

    ``host`` is what a node needs of its memory and ``room`` what it has; one of them None: the device alone is judged.
    Both have to hold what they are to, so the worse of the two verdicts counts. Without activations, or where the
    device is not known, only "does not fit" is certain.
    """
    within = compare(host, room) if host is not None and room is not None else Verdict("fits", 1.0)
    within = replace(within, by_host=within.word != "fits")
    if capacity is None:
        return within if within.word == "does not fit" else UNKNOWN
    found = worse(compare(prediction.device, capacity), within)
    return found if prediction.complete or found.word == "does not fit" else UNKNOWN


def compare(band: Band, room: int) -> Verdict:
    """fits: the whole band is within ``room`` bytes; likely: what is expected is; unlikely: it is not, but the low end
    is; does not fit: not even that. So one of twenty jobs that "fit" does not, and one that "does not fit" does."""
    chance = chance_below(room, band.expected, band.high)
    if band.low > room:
        return Verdict("does not fit", chance)
    if band.high <= room:
        return Verdict("fits", chance)
    return Verdict("likely" if band.expected <= room else "unlikely", chance)


def worse(one: Verdict, other: Verdict) -> Verdict:
    """The smaller of two chances, which belong to the same errors of the same run more often than to two."""
    return min(one, other, key=lambda verdict: (-BY_CHANCE.index(verdict.word), verdict.chance))


def by_nothing(_: Options | TorchOptions) -> str:
    """Of a model whose loss nothing is known to compute in pieces."""
    return ""


def _by_itself(_: Options | TorchOptions) -> str:
    """Of a job whose loss is in pieces already, whatever does it."""
    return "as it is"


def ladder(
    setting: Setting,
    evaluate: Evaluate,
    judged: Judge,
    slowness: Slowness | None = None,
    fuses: Fuses = by_nothing,
) -> Ladder:
    """Changes that save memory, and the cheapest way to make the job fit.

    ``evaluate`` predicts a changed job, ``judged`` says whether that fits, ``slowness`` how many seconds a token takes.
    """
    own = slowness(setting) if slowness else None
    if setting.workload is not None and setting.workload.fused_loss:
        fuses = _by_itself

    def rung(step: Step) -> Rung:
        prediction = evaluate(step.setting)
        seconds = slowness(step.setting) if slowness and own else None
        slower = seconds / own if seconds and own else None
        return Rung(step.what, step.cost, step.setting, prediction, judged(prediction), slower)

    single = tuple(rung(step) for step in _changes(setting, fuses))
    if judged(evaluate(setting)).word == "fits":
        return Ladder(single, ())
    enough = [one for one in single if one.word == "fits" and not one.what.startswith(SHORTER)]
    if enough:
        return Ladder(single, (min(enough, key=lambda one: one.slower or 1.0),))
    return Ladder(single, tuple(rung(step) for step in _together(setting, evaluate, judged, fuses)))


def workloads(setting: Setting, fuses: Fuses = by_nothing) -> tuple[Workload, ...]:
    """The workloads that :func:`ladder` will most likely ask for: each change alone, and one on top of the other.

    Finding their activations together takes less time than one by one.
    """
    found = {setting.workload: None}
    if setting.workload is not None and setting.workload.fused_loss:
        fuses = _by_itself
    now = setting
    for step in _changes(setting, fuses):
        found[step.setting.workload] = None
    while True:
        steps = (one for one in _changes(now, fuses) if not one.shorter)
        later = next((one for one in steps if one.setting.workload != now.workload), None)
        if later is None:
            break
        now = later.setting
        found[now.workload] = None
    return tuple(work for work in found if work is not None)


def _together(setting: Setting, evaluate: Evaluate, judged: Judge, fuses: Fuses) -> list[Step]:
    """Climb until it fits, then leave out every rung that was not needed, the dearest first."""
    wanted: list[str] = []
    now = setting
    while judged(evaluate(now)).word != "fits":
        before = evaluate(now).device.expected
        steps = (step for step in _changes(now, fuses) if not step.shorter)
        step = next((step for step in steps if evaluate(step.setting).device.expected < before), None)
        if step is None:
            return []
        wanted.append(step.what)
        now = step.setting
    for what in reversed(wanted.copy()):
        rest = [name for name in wanted if name != what]
        climbed = _climb(setting, rest, fuses)
        if climbed and judged(evaluate(climbed[-1].setting)).word == "fits":
            wanted = rest
    return _climb(setting, wanted, fuses) or []


def _climb(setting: Setting, wanted: list[str], fuses: Fuses) -> list[Step] | None:
    """The changes of these names, one on top of the other; None when one of them is not possible then."""
    steps, now = [], setting
    for name in wanted:
        step = next((step for step in _changes(now, fuses) if step.what == name), None)
        if step is None:
            return None
        steps.append(step)
        now = step.setting
    return steps


def _changes(setting: Setting, fuses: Fuses) -> Iterator[Step]:
    """Every single change that can be made, from free to dear."""
    for step in _possible(setting, fuses):
        work = step.setting.workload
        # A loss that is in pieces under one engine may not be so under another.
        if work is None or not work.fused_loss or fuses(step.setting.options):
            yield step


def _possible(setting: Setting, fuses: Fuses) -> Iterator[Step]:
    options, work = setting.options, setting.workload
    if isinstance(options, Options):
        yield from _free(options, work)
    if work is not None and not work.fused_loss and (by := fuses(options)):
        what = f"compute the loss without all logits ({by})"
        yield Step(what, "none; needs the package liger-kernel", Setting(options, replace(work, fused_loss=True)))
    if isinstance(options, Options) and options.world_size > 1 and options.stage == 0:
        yield Step("ZeRO stage 1", "parameters are gathered after each step", Setting(replace(options, stage=1), work))
    if work is not None and not work.gradient_checkpointing:
        kept = replace(work, gradient_checkpointing=True)
        yield Step("gradient checkpointing", "each layer is computed twice", Setting(options, kept))
    if work is not None and work.micro_batch > 1:
        part = max(size for size in range(1, work.micro_batch) if work.micro_batch % size == 0)
        steps = options.gradient_accumulation_steps * work.micro_batch // part
        smaller = Setting(replace(options, gradient_accumulation_steps=steps), replace(work, micro_batch=part))
        yield Step(f"micro batch {part}, {steps} accumulation steps", "smaller matrices, more messages", smaller)
    if isinstance(options, Options):
        yield from _more_sharding(options, work)
    elif options.world_size > 1 and options.kind == "ddp":
        yield from _deepspeed(options, work)
    half = work.sequence_length // 2 if work is not None else 0
    # Of a completion it is `max_completion_length` that could be shorter.
    shortens = work is not None and work.sequence_length > 512 and work.completion is None
    if work is not None and shortens and half >= (work.images.tokens if work.images else 0):
        shorter = Setting(options, replace(work, sequence_length=half))
        yield Step(f"{SHORTER} {half} tokens", "another training", shorter)


def _deepspeed(options: TorchOptions, work: Workload | None) -> Iterator[Step]:
    """The same job with DeepSpeed, which casts the model to the precision of the computation."""
    cast = replace(work, autocast=False) if work is not None else None
    for stage, cost in ((1, "parameters are gathered after each step"), (2, AFTER_EACH), (3, FOR_EACH)):
        engine = Options(
            stage,
            options.world_size,
            options.precision,
            optimizer=options.optimizer,
            gradient_accumulation_steps=options.gradient_accumulation_steps,
        )
        yield Step(f"DeepSpeed, ZeRO stage {stage}", cost, Setting(engine, cast))


def _free(options: Options, work: Workload | None) -> Iterator[Step]:
    if options.stage > 0 and options.reduce_bucket_size > SMALL_BUCKET:
        smaller = Setting(replace(options, reduce_bucket_size=SMALL_BUCKET), work)
        yield Step(f"reduce_bucket_size {SMALL_BUCKET}", "none that is measurable", smaller)
    if options.stage in (1, 2) and options.overlaps:
        alone = Setting(replace(options, overlap_comm=False), work)
        yield Step("overlap_comm false", "reduction waits for backward", alone)
    if options.stage == 3 and options.offload_optimizer == "none" and options.sub_group_size > SMALL_GROUP:
        smaller = Setting(replace(options, sub_group_size=SMALL_GROUP), work)
        yield Step(f"sub_group_size {SMALL_GROUP}", "a few more kernels a step", smaller)
    if options.stage == 3 and min(options.max_live_parameters, options.max_reuse_distance) > FEW_LIVE:
        fewer = Setting(replace(options, max_live_parameters=FEW_LIVE, max_reuse_distance=FEW_LIVE), work)
        what = f"stage3_max_live_parameters and stage3_max_reuse_distance {FEW_LIVE}"
        yield Step(what, "what was kept for backward is gathered again", fewer)
    if options.stage == 3 and options.param_persistence_threshold > SMALL_PARAMETER:
        shared = Setting(replace(options, param_persistence_threshold=SMALL_PARAMETER), work)
        what = f"stage3_param_persistence_threshold {SMALL_PARAMETER}"
        yield Step(what, "more small parameters are gathered", shared)


def _more_sharding(options: Options, work: Workload | None) -> Iterator[Step]:
    several = options.world_size > 1
    if several and options.stage < 2:
        yield Step("ZeRO stage 2", AFTER_EACH, Setting(replace(options, stage=2), work))
    if several and options.stage < 3:
        yield Step("ZeRO stage 3", FOR_EACH, Setting(replace(options, stage=3), work))
    if options.offload_optimizer == "none":
        stage = max(options.stage, 2)
        moved = Setting(replace(options, stage=stage, offload_optimizer="cpu"), work)
        yield Step(f"the optimizer on the host (stage {stage})", "each step waits for the processors", moved)
    if options.offload_param == "none":
        optimizer = "cpu" if options.offload_optimizer == "none" else options.offload_optimizer
        both = Setting(replace(options, stage=3, offload_optimizer=optimizer, offload_param="cpu"), work)
        yield Step("optimizer and parameters on the host (stage 3)", "each layer waits for its weights", both)
