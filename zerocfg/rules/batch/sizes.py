"""ZC2xx: batch sizes, gradient accumulation and whatever else the Trainer and the engine must agree about."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from zerocfg.catalog.values import show
from zerocfg.rules.api import Example, Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import (
    TRAINERS,
    anchor,
    changed_before,
    deepspeed_data,
    edited,
    failures,
    giving,
    replace_at,
    tuned,
    words,
)
from zerocfg.rules.proof import crashes
from zerocfg.run.batches import MICRO, TRAIN
from zerocfg.run.model import Difference, Run
from zerocfg.source.edit import delete_entry, insert_entry

_STEPS = "gradient_accumulation_steps"
_PRECISION = ("fp16.enabled", "bf16.enabled")
_OWN_BATCH = (*_PRECISION, _STEPS)

_LAUNCH = "accelerate launch --config_file accelerate.yaml train.py --config recipe.yaml\n"
_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n"
_YAML = (
    "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  zero_stage: 2\n"
    "  gradient_accumulation_steps: %s\n"
)
_SIZES = '{"train_batch_size": %s, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1}\n'
_DS = '{"train_micro_batch_size_per_gpu": "auto", %s"zero_optimization": {"stage": 2}}\n'
_NO_BATCH = '{%s"gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 2}}\n'
_FILE = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
_TRAINER = {"recipe.yaml": _RECIPE + "deepspeed: ds.json\n"}


def mismatches(run: Run) -> Iterator[Difference]:
    """What the Trainer refuses at train()."""
    for failure in failures(run, "ZC201"):
        yield from failure.differences


def disagreement(run: Run, one: Difference) -> Finding:
    """A difference, at the place of the DeepSpeed side."""
    ds, hf = one.written.origin, one.asked.origin
    location, related = anchor(run, (ds, hf))
    return Finding(
        location,
        f"`{one.key}` is {show(one.written.value)} ({words(ds)}) but the Trainer's `{one.argument}` is "
        f"{show(one.asked.value)} ({words(hf)}); train() stops at the difference, after the model was loaded",
        'write "auto": the Trainer then fills in its own value, which is kept in one place only',
        related,
        giving(replace_at(ds, '"auto"', 'let the Trainer fill it in: "auto"', safe=False), one.key, one.asked.value),
    )


@rule(
    "ZC201",
    "accumulation-disagrees",
    Severity.ERROR,
    bad=Example(
        {
            "accelerate.yaml": _YAML % 4,
            "recipe.yaml": _RECIPE + "gradient_accumulation_steps: 2\n",
            "train.sh": _LAUNCH,
        },
        consumer="transformers",
    ).finds(
        "error",
        "accelerate.yaml: gradient_accumulation_steps: 4",
        4,
        2,
        also=("recipe.yaml: gradient_accumulation_steps: 2",),
    ),
    good=Example(
        {
            "accelerate.yaml": _YAML % 2,
            "recipe.yaml": _RECIPE + "gradient_accumulation_steps: 2\n",
            "train.sh": _LAUNCH,
        },
        consumer="transformers",
    ),
    proof=crashes("init", "ds gradient_accumulation_steps=4 vs hf gradient_accumulation_steps=2"),
    consumers=TRAINERS,
    fixable=True,
)
def accumulation_disagrees(run: Run) -> Iterator[Finding]:
    """Gradient accumulation differs between the DeepSpeed side and the training arguments.

    The number stands in two files that are edited at different times, and the difference is noticed late: the queue,
    the download and the model's load are paid for first.

    What happens: neither value wins. `train()` stops with `ValueError: Please correct the following DeepSpeed config
    values that mismatch TrainingArguments values: - ds gradient_accumulation_steps=4 vs hf
    gradient_accumulation_steps=1`. A DeepSpeed file that lacks the key counts as 1 when the accelerate config names it.

    Fix: writes "auto" on the DeepSpeed side, so that the training arguments decide (unsafe: the other number may be the
    one that is meant). A key that is absent is added as "auto".
    """
    for one in mismatches(run):
        if one.key != _STEPS:
            continue
        finding = disagreement(run, one)
        if one.written.origin.kind == "computed" and run.deepspeed is not None:
            finding.related = [finding.location, *finding.related]
            finding.location = Location(run.deepspeed)
            finding.message = (
                f"{run.deepspeed.name} has no `{_STEPS}`, for which accelerate puts {show(one.written.value)}, but the "
                f"Trainer's is {show(one.asked.value)} ({words(one.asked.origin)}); train() stops at the difference"
            )
            finding.help = f'add `"{_STEPS}": "auto"` to {run.deepspeed.name}'
            added = edited(insert_entry, run.deepspeed, (), _STEPS, '"auto"', why="let the Trainer fill it in")
            finding.fix = giving(added, _STEPS, one.asked.value)
        yield finding


@rule(
    "ZC202",
    "disagrees-with-trainer",
    Severity.ERROR,
    bad=Example(
        {**_TRAINER, "ds.json": _DS % '"gradient_accumulation_steps": "auto", "gradient_clipping": 0.5, '},
        consumer="transformers",
    ).finds("error", 'ds.json: "gradient_clipping": 0.5', "0.5", "1.0", "5.23.0"),
    good=Example(
        {**_TRAINER, "ds.json": _DS % '"gradient_accumulation_steps": "auto", "gradient_clipping": "auto", '},
        consumer="transformers",
    ),
    proof=crashes("init", "ds gradient_clipping=0.5 vs hf max_grad_norm=1.0"),
    consumers=TRAINERS,
    fixable=True,
)
def disagrees_with_trainer(run: Run) -> Iterator[Finding]:
    """A number of the DeepSpeed config differs from the training argument of the same meaning.

    Two sources for one number are a trap that springs late: nothing is compared before the model was loaded and the
    data prepared, and one of the two is often a default that nobody wrote.

    What happens: the Trainer compares batch sizes, clipping, learning rate, betas, epsilon, weight decay and the
    scheduler's steps, and stops in `train()` with `Please correct the following DeepSpeed config values that mismatch
    TrainingArguments values`. `"gradient_clipping": 0.5` differs from `max_grad_norm`, which is 1.0 by default.

    Fix: writes "auto" into the DeepSpeed config, so that the training argument decides (unsafe: the number of the
    DeepSpeed config may be the one that is meant).
    """
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


@rule(
    "ZC203",
    "batch-product",
    Severity.ERROR,
    bad=Example(
        {
            "ds.json": _SIZES % 9,
            "train.sh": "torchrun --nproc_per_node 2 train.py --deepspeed_config ds.json\n",
        },
        consumer="deepspeed",
    ).finds(
        "error",
        'ds.json: "train_batch_size": 9',
        9,
        4,
        1,
        2,
        also=(
            'ds.json: "train_micro_batch_size_per_gpu": 4',
            'ds.json: "gradient_accumulation_steps": 1',
        ),
    ),
    good=Example(
        {
            "ds.json": _SIZES % 8,
            "train.sh": "torchrun --nproc_per_node 2 train.py --deepspeed_config ds.json\n",
        },
        consumer="deepspeed",
    ),
    proof=crashes("parse", "Check batch related parameters", ranks=2),
    fixable=True,
    references=("deepspeed/runtime/config.py@0.19.8", "deepspeedai/DeepSpeed#6914"),
)
def batch_product(run: Run) -> Iterator[Finding]:
    """The three batch sizes do not fit the number of processes.

    Three numbers that have to agree with a fourth, which stands in another place, break whenever the job moves to
    another machine.

    What happens: DeepSpeed checks train_batch_size = micro batch * accumulation * processes and stops with
    `AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu *
    gradient_acc_step * world_size`. Of two sizes it works out the third by whole division, and checks the same product.

    Fix: removes train_batch_size where the other two are numbers: it follows from them (unsafe: it may be the one that
    is meant).
    """
    for failure in failures(run, "ZC203"):
        if lacks_accumulation(run):
            continue  # ZC206 knows the reason
        location, related = anchor(run, failure.places)
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


@rule(
    "ZC204",
    "batch-zero",
    Severity.ERROR,
    bad=Example(
        {"ds.json": '{"train_batch_size": 2, "train_micro_batch_size_per_gpu": 4}\n'}, consumer="deepspeed"
    ).finds("error", 'ds.json: "train_batch_size": 2', 2, 4, 0, also=('ds.json: "train_micro_batch_size_per_gpu": 4',)),
    good=Example({"ds.json": '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4}\n'}, consumer="deepspeed"),
    proof=crashes("parse", "Gradient accumulation steps: 0 has to be greater than 0"),
    fixable=True,
    references=("deepspeed/runtime/config.py@0.19.8",),
)
def batch_zero(run: Run) -> Iterator[Finding]:
    """A batch size is 0, or becomes 0 when DeepSpeed divides.

    The 0 is nowhere in the file: it appears when a config for few GPUs meets many, and the message names a key that
    nobody wrote.

    What happens: DeepSpeed fills the missing one of the three sizes by whole division; a train_batch_size below
    micro batch * processes leaves 0: `AssertionError: Gradient accumulation steps: 0 has to be greater than 0`.

    Fix: removes a train_batch_size that is smaller than one micro batch (unsafe: the micro batch may be what is wrong).
    """
    for failure in failures(run, "ZC204"):
        location, related = anchor(run, failure.places)
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


@rule(
    "ZC205",
    "batch-missing",
    Severity.ERROR,
    bad=(
        Example({**_TRAINER, "ds.json": _NO_BATCH % ""}, consumer="transformers").finds("error", "ds.json"),
        Example({"accelerate.yaml": _FILE, "ds.json": _NO_BATCH % ""}, consumer="accelerate").finds("error", "ds.json"),
    ),
    good=(
        Example(
            {**_TRAINER, "ds.json": _NO_BATCH % '"train_micro_batch_size_per_gpu": "auto", '}, consumer="transformers"
        ),
        Example(
            {"ds.json": '{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2}\n'},
            consumer="deepspeed",
        ),
    ),
    proof=crashes("parse", "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided"),
    fixable=True,
    references=("deepspeed/runtime/config.py@0.19.8",),
)
def batch_missing(run: Run) -> Iterator[Finding]:
    """The DeepSpeed config names neither train_batch_size nor train_micro_batch_size_per_gpu.

    The batch size is in the training arguments, so the DeepSpeed config seems complete without; it is not, and the job
    ends when the engine is built.

    What happens: `AssertionError: Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided`,
    also under the Trainer and accelerate, which fill in an "auto" but add no key.

    Fix: adds `"train_micro_batch_size_per_gpu": "auto"` where the Trainer or accelerate fill it.
    """
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
        location, related = anchor(run, failure.places)
        auto = run.consumer in (*TRAINERS, "accelerate")
        value = '"auto"' if auto else "the batch size of one process"
        yield Finding(
            Location(run.deepspeed) if run.deepspeed is not None else location,
            "neither train_batch_size nor train_micro_batch_size_per_gpu is there; DeepSpeed stops",
            f"add `train_micro_batch_size_per_gpu`: {value}",
            related,
            edited(insert_entry, run.deepspeed, (), MICRO, '"auto"', why="let the caller fill it in") if auto else None,
        )


RULES = (
    accumulation_disagrees,
    disagrees_with_trainer,
    batch_product,
    batch_zero,
    batch_missing,
)
