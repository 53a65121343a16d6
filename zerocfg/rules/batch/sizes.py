"""ZC2xx: batch sizes, gradient accumulation and whatever else the Trainer and the engine must agree about."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import TRAINERS, WITH_ACCELERATE, changed_before, deepspeed_data, describe_origin, tuned
from zerocfg.rules.failures import failures, primary_location
from zerocfg.rules.fixes import edited, giving, replace_at
from zerocfg.run.model import Difference, Run
from zerocfg.run.stages.batches import MICRO, TRAIN
from zerocfg.source.edit import delete_entry, insert_entry

_STEPS = "gradient_accumulation_steps"
_PRECISION = ("fp16.enabled", "bf16.enabled")
_OWN_BATCH = (*_PRECISION, _STEPS)


def mismatches(run: Run) -> Iterator[Difference]:
    """What the Trainer refuses at train()."""
    for failure in failures(run, "ZC201"):
        yield from failure.differences


def disagreement(run: Run, one: Difference) -> Finding:
    """A difference, at the place of the DeepSpeed side."""
    ds, hf = one.written.origin, one.asked.origin
    location, related = primary_location(run, (ds, hf))
    return Finding(
        location,
        f"`{one.key}` is {show(one.written.value)} ({describe_origin(ds)}) but the Trainer's `{one.argument}` is "
        f"{show(one.asked.value)} ({describe_origin(hf)}); train() stops at the difference, after the model was loaded",
        'write "auto": the Trainer then fills in its own value, which is kept in one place only',
        related,
        giving(replace_at(ds, '"auto"', 'let the Trainer fill it in: "auto"', safe=False), one.key, one.asked.value),
    )


@rule("ZC201", "accumulation-disagrees", Severity.ERROR, consumers=TRAINERS)
def accumulation_disagrees(run: Run) -> Iterator[Finding]:
    for one in mismatches(run):
        if one.key != _STEPS:
            continue
        finding = disagreement(run, one)
        if one.written.origin.kind == "computed" and run.deepspeed is not None:
            finding.related = [finding.location, *finding.related]
            finding.location = Location(run.deepspeed)
            finding.message = (
                f"{run.deepspeed.name} has no `{_STEPS}`, for which accelerate puts {show(one.written.value)}, but "
                f"the Trainer's is {show(one.asked.value)} ({describe_origin(one.asked.origin)}); train() stops "
                "at the difference"
            )
            finding.help = f'add `"{_STEPS}": "auto"` to {run.deepspeed.name}'
            added = edited(insert_entry, run.deepspeed, (), _STEPS, '"auto"', why="let the Trainer fill it in")
            finding.fix = giving(added, _STEPS, one.asked.value)
        yield finding


@rule("ZC202", "disagrees-with-trainer", Severity.ERROR, consumers=TRAINERS)
def disagrees_with_trainer(run: Run) -> Iterator[Finding]:
    for one in mismatches(run):
        if one.key not in _OWN_BATCH:
            yield disagreement(run, one)


def lacks_accumulation(run: Run) -> bool:
    """Whether accelerate puts an accumulation of 1 into the Trainer's DeepSpeed config."""
    data = deepspeed_data(run)
    return run.consumer in TRAINERS and run.deepspeed_route == "trainer" and bool(data) and _STEPS not in data


def _batch_help(run: Run) -> str:
    if run.consumer in TRAINERS:
        return 'write "auto" for all three and set per_device_train_batch_size and gradient_accumulation_steps'
    return "leave out train_batch_size: it follows from the other two and the number of processes"


@rule("ZC203", "batch-product", Severity.ERROR)
def batch_product(run: Run) -> Iterator[Finding]:
    for failure in failures(run, "ZC203"):
        if lacks_accumulation(run):
            continue  # ZC206 knows the reason
        location, related = primary_location(run, failure.places)
        train, *factors = failure.about
        sizes = f"{train} != {' * '.join(factors)}"
        yield Finding(
            location,
            f"train_batch_size is not micro batch * accumulation * processes: {sizes}; DeepSpeed stops at it",
            _batch_help(run),
            related,
            _without_total(run),
        )
    if not any(True for _ in failures(run, "ZC201", "ZC203", "ZC204")):
        yield from _never_fits(run)


def _without_total(run: Run) -> Fix | None:
    """train_batch_size left out, where the other two are numbers and nobody compares it."""
    data = deepspeed_data(run)
    if run.consumer in TRAINERS or not all(_whole(data.get(name)) for name in (TRAIN, MICRO, _STEPS)):
        return None
    return edited(delete_entry, run.deepspeed, (TRAIN,), why="it follows from the other two", safe=False)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _never_fits(run: Run) -> Iterator[Finding]:
    """Sizes that fit no number of processes at all."""
    data = deepspeed_data(run)
    if run.deepspeed is None or "sequence_parallel_size" in data or not _whole(data.get(TRAIN)):
        return
    others = [name for name in (MICRO, _STEPS) if data.get(name) is not None]
    if not others or not all(_whole(data[name]) for name in others):
        return
    total, product = data[TRAIN], prod(data[name] for name in others)
    if total % product and (total > product or others != [MICRO]):  # else ZC204 says it
        yield Finding(
            Location(run.deepspeed, (TRAIN,)),
            f"train_batch_size {total} is no multiple of {' * '.join(others)}, "
            f"{' * '.join(str(data[name]) for name in others)}: "
            "DeepSpeed stops at it, whatever the number of processes",
            _batch_help(run),
            [Location(run.deepspeed, (name,)) for name in others],
            _without_total(run),
        )


@rule("ZC204", "batch-zero", Severity.ERROR)
def batch_zero(run: Run) -> Iterator[Finding]:
    for failure in failures(run, "ZC204"):
        location, related = primary_location(run, failure.places)
        yield Finding(location, f"{failure.message}; DeepSpeed stops at it", _batch_help(run), related, _smaller(run))
    data = deepspeed_data(run)
    total, micro = data.get("train_batch_size"), data.get("train_micro_batch_size_per_gpu")
    if run.consumer is None and run.deepspeed is not None and (total is False or micro is False):
        name = MICRO if micro is False else TRAIN
        yield Finding(
            Location(run.deepspeed, (name,)),
            f"{name} is false, which counts as 0: DeepSpeed stops at it, and the Trainer at the difference",
            _batch_help(run),
        )
    if any(True for _ in failures(run, "ZC204", "ZC201", "ZC203")) or run.deepspeed is None:
        return
    if (
        isinstance(total, int)
        and isinstance(micro, int)
        and 0 <= total < micro
        and not isinstance(total, bool)
        and "gradient_accumulation_steps" not in data
    ):
        yield Finding(
            Location(run.deepspeed, ("train_batch_size",)),
            f"train_batch_size {total} is less than one micro batch of {micro}: the accumulation that DeepSpeed "
            "works out is "
            "0, at which it stops, whatever the number of processes",
            _batch_help(run),
            [Location(run.deepspeed, (MICRO,), label="the micro batch")],
            _smaller(run),
        )


def _smaller(run: Run) -> Fix | None:
    """train_batch_size left out where it is less than one micro batch."""
    data = deepspeed_data(run)
    total, micro = data.get(TRAIN), data.get(MICRO)
    if run.consumer in TRAINERS or not isinstance(total, int) or not isinstance(micro, int) or not 0 <= total < micro:
        return None
    return edited(delete_entry, run.deepspeed, (TRAIN,), why="let it follow from the micro batch", safe=False)


@rule("ZC205", "batch-missing", Severity.ERROR)
def batch_missing(run: Run) -> Iterator[Finding]:
    if tuned(run) or changed_before(run):
        return
    if run.consumer is None and run.deepspeed is not None:
        keys = deepspeed_data(run)
        if keys and all(keys.get(name) is None for name in (TRAIN, MICRO)):
            there = next((name for name in (MICRO, TRAIN) if name in keys), None)
            yield Finding(
                Location(run.deepspeed, (there,) if there else ()),
                (f"`{there}` is null and counts as absent" if there else f"neither {TRAIN} nor {MICRO} is there")
                + "; DeepSpeed stops unless the program adds one",
                'add `train_micro_batch_size_per_gpu`: a number, or "auto" for the Trainer and accelerate',
            )
    for failure in failures(run, "ZC205"):
        location, related = primary_location(run, failure.places)
        auto = run.consumer in WITH_ACCELERATE
        value = '"auto"' if auto else "the batch size of one process"
        yield Finding(
            Location(run.deepspeed) if run.deepspeed is not None else location,
            "neither train_batch_size nor train_micro_batch_size_per_gpu is there; DeepSpeed stops",
            f"add `train_micro_batch_size_per_gpu`: {value}",
            related,
            edited(insert_entry, run.deepspeed, (), MICRO, '"auto"', why="let the caller fill it in") if auto else None,
        )
