"""ZC2xx: batch sizes, gradient accumulation and whatever else the Trainer and the engine must agree about."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from zerocfg.catalog.values import show
from zerocfg.record import record
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Severity, Subject, rule
from zerocfg.rules.effects import TRAINERS, changed_before, describe_origin, tuned, under_trainer, with_accelerate
from zerocfg.rules.failures import failures, reported
from zerocfg.rules.fixes import giving
from zerocfg.rules.key import Key, deepspeed, finding_at, from_origin
from zerocfg.run.model import Difference, Run
from zerocfg.run.stages.batches import MICRO, STEPS, TRAIN

_OWN_RULE = ("fp16.enabled", "bf16.enabled", STEPS)
"""What ZC201 and ZC302 tell."""


def mismatches(run: Run) -> Iterator[Difference]:
    """What the Trainer refuses at train()."""
    for failure in failures(run, "ZC201"):
        yield from failure.differences


@record(frozen=True, slots=True)
class DifferenceOfRun:
    """A setting that the Trainer refuses at train(), because its arguments say otherwise."""

    run: Run
    difference: Difference


EACH_DIFFERENCE = Subject("run", lambda run: (DifferenceOfRun(run, difference) for difference in mismatches(run)))


def disagreement(run: Run, difference: Difference) -> Finding:
    """A difference, at the place of the DeepSpeed side."""
    written, asked = difference.written, difference.asked
    key = from_origin(run, written.origin)
    return finding_at(
        run,
        (key, from_origin(run, asked.origin)),
        f"`{difference.key}` is {show(written.value)} ({describe_origin(written.origin)}) but the Trainer's "
        f"`{difference.argument}` is {show(asked.value)} ({describe_origin(asked.origin)}); train() stops at the "
        "difference, after the model was loaded",
        'write "auto": the Trainer then fills in its own value, which is kept in one place only',
        giving(key.replace('"auto"', 'let the Trainer fill it in: "auto"', safe=False), difference.key, asked.value),
    )


@rule("ZC202", "disagrees-with-trainer", Severity.ERROR, EACH_DIFFERENCE, consumers=TRAINERS)
def disagrees_with_trainer(refused: DifferenceOfRun) -> Iterator[Finding]:
    difference = refused.difference
    if difference.key not in _OWN_RULE:
        yield disagreement(refused.run, difference)


def lacks_accumulation(run: Run) -> bool:
    """Whether accelerate puts an accumulation of 1 into the Trainer's DeepSpeed config."""
    ds = deepspeed(run)
    return under_trainer(run) and run.deepspeed_route == "trainer" and bool(ds.section) and STEPS not in ds


def _batch_help(run: Run) -> str:
    if under_trainer(run):
        return 'write "auto" for all three and set per_device_train_batch_size and gradient_accumulation_steps'
    return "leave out train_batch_size: it follows from the other two and the number of processes"


@rule("ZC203", "batch-product", Severity.ERROR, WHOLE_RUN)
def batch_product(run: Run) -> Iterator[Finding]:
    for failure in failures(run, "ZC203"):
        if lacks_accumulation(run):
            break  # ZC206 knows the reason
        train, *factors = failure.about
        yield reported(
            run,
            failure,
            _batch_help(run),
            message=f"train_batch_size is not micro batch * accumulation * processes: {train} != "
            f"{' * '.join(factors)}; DeepSpeed stops at it",
            fix=_without_total(run),
        )
    if not any(failures(run, "ZC201", "ZC203", "ZC204")):
        yield from _never_fits(run)


def _without_total(run: Run) -> Fix | None:
    """train_batch_size left out, where the other two are numbers and nobody compares it."""
    ds = deepspeed(run)
    if under_trainer(run) or not all(positive(ds[name]) for name in (TRAIN, MICRO, STEPS)):
        return None
    return ds[TRAIN].delete("it follows from the other two", safe=False)


def positive(key: Key) -> int:
    """A size that is written as a number, else 0."""
    return max(key.count or 0, 0)


def _never_fits(run: Run) -> Iterator[Finding]:
    """Sizes that fit no number of processes at all."""
    ds = deepspeed(run)
    total, others = ds[TRAIN], [ds[name] for name in (MICRO, STEPS) if ds.get(name) is not None]
    names, product = [key.name for key in others], prod(map(positive, others))
    if not positive(total) or not others or not product or "sequence_parallel_size" in ds:
        return
    if total.value % product and (total.value > product or names != [MICRO]):  # else ZC204 says it
        yield total.finding(
            f"train_batch_size {total.value} is no multiple of {' * '.join(names)}, "
            f"{' * '.join(str(key.value) for key in others)}: "
            "DeepSpeed stops at it, whatever the number of processes",
            _batch_help(run),
            others,
            _without_total(run),
        )


@rule("ZC204", "batch-zero", Severity.ERROR, WHOLE_RUN)
def batch_zero(run: Run) -> Iterator[Finding]:
    for failure in failures(run, "ZC204"):
        message = f"{failure.message}; DeepSpeed stops at it"
        yield reported(run, failure, _batch_help(run), message=message, fix=_smaller(run))
    ds = deepspeed(run)
    false = next((key for key in (ds[MICRO], ds[TRAIN]) if key.value is False), None)
    if run.consumer is None and false is not None:
        yield false.finding(
            f"{false.name} is false, which counts as 0: DeepSpeed stops at it, and the Trainer at the difference",
            _batch_help(run),
        )
    if any(failures(run, "ZC204", "ZC201", "ZC203")):
        return
    total, micro = ds[TRAIN], ds[MICRO]
    if total.count is not None and _below_micro_batch(run) and STEPS not in ds:
        yield total.finding(
            f"train_batch_size {total.value} is less than one micro batch of {micro.value}: the accumulation that "
            "DeepSpeed works out is 0, at which it stops, whatever the number of processes",
            _batch_help(run),
            [micro.at(label="the micro batch")],
            _smaller(run),
        )


def _below_micro_batch(run: Run) -> bool:
    """Whether train_batch_size, of which false counts as 0, is less than one micro batch."""
    total, micro = deepspeed(run).get(TRAIN), deepspeed(run).get(MICRO)
    return isinstance(total, int) and isinstance(micro, int) and 0 <= total < micro


def _smaller(run: Run) -> Fix | None:
    """train_batch_size left out where it is less than one micro batch."""
    if under_trainer(run) or not _below_micro_batch(run):
        return None
    return deepspeed(run, TRAIN).delete("let it follow from the micro batch", safe=False)


@rule("ZC205", "batch-missing", Severity.ERROR, WHOLE_RUN)
def batch_missing(run: Run) -> Iterator[Finding]:
    if tuned(run) or changed_before(run) or run.elsewhere.sets_batch_size or run.elsewhere.lightning:
        return
    if run.script is not None and run.script.foreign == "lightning":
        return  # its strategy adds the micro batch of the data loader
    ds = deepspeed(run)
    if run.consumer is None and ds.section and ds.get(TRAIN) is None and ds.get(MICRO) is None:
        null = next((ds[name] for name in (MICRO, TRAIN) if name in ds), None)
        yield (null or ds).finding(
            (f"`{null.name}` is null and counts as absent" if null else f"neither {TRAIN} nor {MICRO} is there")
            + "; DeepSpeed stops unless the program adds one",
            'add `train_micro_batch_size_per_gpu`: a number, or "auto" for the Trainer and accelerate',
            severity=Severity.WARNING,  # Lightning adds one, and so may any script
        )
    for failure in failures(run, "ZC205"):
        filled = with_accelerate(run)
        value = '"auto"' if filled else "the batch size of one process"
        finding = reported(
            run,
            failure,
            f"add `train_micro_batch_size_per_gpu`: {value}",
            message="neither train_batch_size nor train_micro_batch_size_per_gpu is there; DeepSpeed stops",
            fix=ds[MICRO].set(value, "let the caller fill it in") if filled else None,
        )
        if run.deepspeed is not None:
            finding.location = ds.at()
        yield finding
