"""ZC2xx: batch sizes, gradient accumulation and whatever else the Trainer and the engine must agree about."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import (
    TRAINERS,
    anchor,
    deepspeed_data,
    failures,
    replace_at,
    words,
)
from zerocfg.rules.proof import crashes
from zerocfg.run.engine import MICRO, TRAIN
from zerocfg.run.model import Origin, Run

_LINE = re.compile(r"- ds (?P<name>\S+)=(?P<written>.*) vs hf (?P<argument>.*?)=(?P<value>.*)")
_STEPS = "gradient_accumulation_steps"
_PRECISION = ("fp16.enabled", "bf16.enabled")
_OWN_BATCH = (*_PRECISION, _STEPS)

_LAUNCH = "accelerate launch --config_file accelerate.yaml train.py --config recipe.yaml\n"
_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n"
_YAML = (
    "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  zero_stage: 2\n"
    "  gradient_accumulation_steps: %s\n"
)
_AS_WRITTEN = {"True": "true", "False": "false", "None": "null"}
_SIZES = '{"train_batch_size": %s, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1}\n'
_DS = '{"train_micro_batch_size_per_gpu": "auto", %s"zero_optimization": {"stage": 2}}\n'
_TRAINER = {"recipe.yaml": _RECIPE + "deepspeed: ds.json\n"}


def mismatches(run: Run) -> Iterator[tuple[str, str, str, str, Origin, Origin]]:
    """What the Trainer refuses at train(): (DeepSpeed key, its value, argument, its value, both origins)."""
    for failure in failures(run, "ZC201"):
        lines = [match for line in failure.message.splitlines() if (match := _LINE.match(line))]
        for at, match in enumerate(lines):
            written, value = failure.places[2 * at : 2 * at + 2]
            both = (_AS_WRITTEN.get(text, text) for text in (match["written"], match["value"]))
            yield match["name"], next(both), match["argument"], next(both), written, value


def disagreement(
    run: Run, name: str, written: str, argument: str, value: str, places: tuple[Origin, Origin]
) -> Finding:
    """One line of the Trainer's error, with both places."""
    ds, hf = places
    location, related = anchor(run, places)
    return Finding(
        location,
        f"`{name}` is {written} ({words(ds)}) but the Trainer's `{argument}` is {value} ({words(hf)}); "
        "train() stops at the difference, after the model was loaded",
        'write "auto": the Trainer then fills in its own value, which is kept in one place only',
        related,
        replace_at(ds, '"auto"', 'let the Trainer fill it in: "auto"', safe=False),
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

    What happens: neither value wins. `train()` stops, after the model was loaded and the data prepared, with
    `ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values: - ds
    gradient_accumulation_steps=4 vs hf gradient_accumulation_steps=1`. A DeepSpeed file that lacks the key counts
    as 1 when the accelerate config names it.

    Write "auto" on the DeepSpeed side and keep the number in the training arguments.
    """
    for name, written, argument, value, *places in mismatches(run):
        if name != _STEPS:
            continue
        finding = disagreement(run, name, written, argument, value, (places[0], places[1]))
        if places[0].kind == "computed" and run.deepspeed is not None:
            finding.location = Location(run.deepspeed)
            finding.message = (
                f"{run.deepspeed.name} has no `{_STEPS}`, for which accelerate puts {written}, but the Trainer's "
                f"is {value} "
                f"({words(places[1])}); train() stops at the difference"
            )
            finding.help = f'add `"{_STEPS}": "auto"` to {run.deepspeed.name}'
        yield finding


@rule(
    "ZC202",
    "disagrees-with-trainer",
    Severity.ERROR,
    bad=Example(
        {**_TRAINER, "ds.json": _DS % '"gradient_accumulation_steps": "auto", "gradient_clipping": 0.5, '},
        consumer="transformers",
    ),
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

    What happens: the Trainer compares batch sizes, clipping, learning rate, betas, epsilon, weight decay and the
    scheduler's steps, and stops in `train()` with `Please correct the following DeepSpeed config values that
    mismatch TrainingArguments values`, after the model was loaded. An argument that nobody wrote counts with its
    default: `"gradient_clipping": 0.5` differs from `max_grad_norm`, which is 1.0.
    """
    for name, written, argument, value, *places in mismatches(run):
        if name not in _OWN_BATCH:
            yield disagreement(run, name, written, argument, value, (places[0], places[1]))


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
    ),
    good=Example(
        {
            "ds.json": _SIZES % 8,
            "train.sh": "torchrun --nproc_per_node 2 train.py --deepspeed_config ds.json\n",
        },
        consumer="deepspeed",
    ),
    proof=crashes("parse", "Check batch related parameters", ranks=2),
)
def batch_product(run: Run) -> Iterator[Finding]:
    """The three batch sizes do not fit the number of processes.

    What happens: DeepSpeed checks train_batch_size = micro batch * accumulation * processes and stops with
    `AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu *
    gradient_acc_step * world_size`. Such a file works on one number of GPUs only.
    """
    for failure in failures(run, "ZC203"):
        if _accumulation_absent(run):
            continue  # ZC206 knows the reason
        location, related = anchor(run, failure.places)
        sizes = failure.message.rpartition("world_size ")[2]
        yield Finding(
            location,
            f"train_batch_size is not micro batch * accumulation * processes: {sizes}; DeepSpeed stops at it",
            _batch_help(run),
            related,
        )
    if not any(True for _ in failures(run, "ZC201", "ZC203", "ZC204")):
        yield from _never_fits(run)


def _never_fits(run: Run) -> Iterator[Finding]:
    """Sizes that fit no number of processes at all."""
    data = deepspeed_data(run)
    sizes = [data.get(name) for name in (TRAIN, MICRO, _STEPS)]
    if run.deepspeed is None or "sequence_parallel_size" in data:
        return
    whole = [size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size > 0]
    if len(whole) == 3 and whole[0] % (whole[1] * whole[2]):
        yield Finding(
            Location(run.deepspeed, (TRAIN,)),
            f"train_batch_size {whole[0]} is no multiple of micro batch * accumulation, {whole[1]} * {whole[2]}: "
            "DeepSpeed stops at it, whatever the number of processes",
            _batch_help(run),
            [Location(run.deepspeed, (name,)) for name in (MICRO, _STEPS)],
        )


@rule(
    "ZC204",
    "batch-zero",
    Severity.ERROR,
    bad=Example({"ds.json": '{"train_batch_size": 2, "train_micro_batch_size_per_gpu": 4}\n'}, consumer="deepspeed"),
    good=Example({"ds.json": '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4}\n'}, consumer="deepspeed"),
    proof=crashes("parse", "Gradient accumulation steps: 0 has to be greater than 0"),
)
def batch_zero(run: Run) -> Iterator[Finding]:
    """A batch size is 0, or becomes 0 when DeepSpeed divides.

    What happens: DeepSpeed fills the missing one of the three sizes by whole division; a train_batch_size below
    micro batch * processes leaves 0: `AssertionError: Gradient accumulation steps: 0 has to be greater than 0`.
    """
    for failure in failures(run, "ZC204"):
        location, related = anchor(run, failure.places)
        yield Finding(location, f"{failure.message}; DeepSpeed stops at it", _batch_help(run), related)
    data = deepspeed_data(run)
    total, micro = data.get("train_batch_size"), data.get("train_micro_batch_size_per_gpu")
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
            [Location(run.deepspeed, ("train_micro_batch_size_per_gpu",), label="the micro batch")],
        )


@rule(
    "ZC205",
    "batch-missing",
    Severity.ERROR,
    bad=Example(
        {"ds.json": '{"gradient_accumulation_steps": 2, "zero_optimization": {"stage": 2}}\n'},
        consumer="deepspeed",
    ),
    good=Example(
        {"ds.json": '{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2}\n'},
        consumer="deepspeed",
    ),
    proof=crashes("parse", "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided"),
)
def batch_missing(run: Run) -> Iterator[Finding]:
    """The DeepSpeed config names neither train_batch_size nor train_micro_batch_size_per_gpu.

    What happens: `AssertionError: Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided`,
    also under the Trainer and accelerate, which fill in an "auto" but add no key.
    """
    if run.consumer is None and run.deepspeed is not None:
        keys = deepspeed_data(run)
        if keys and not keys.keys() & {"train_batch_size", "train_micro_batch_size_per_gpu"}:
            yield Finding(
                Location(run.deepspeed),
                "neither train_batch_size nor train_micro_batch_size_per_gpu is there; DeepSpeed stops unless "
                "the program adds one",
                'add `train_micro_batch_size_per_gpu`: a number, or "auto" for the Trainer and accelerate',
            )
    for failure in failures(run, "ZC205"):
        location, related = anchor(run, failure.places)
        auto = run.consumer in ("transformers", "trl", "accelerate")
        value = '"auto"' if auto else "the batch size of one process"
        yield Finding(
            Location(run.deepspeed) if run.deepspeed is not None else location,
            "neither train_batch_size nor train_micro_batch_size_per_gpu is there; DeepSpeed stops",
            f"add `train_micro_batch_size_per_gpu`: {value}",
            related,
        )


def _accumulation_absent(run: Run) -> bool:
    data = deepspeed_data(run)
    return run.consumer in TRAINERS and run.deepspeed_route == "trainer" and bool(data) and _STEPS not in data


@rule(
    "ZC206",
    "accumulation-absent",
    Severity.ERROR,
    bad=Example(
        {
            "recipe.yaml": _RECIPE + "deepspeed: ds.json\ngradient_accumulation_steps: 4\n",
            "ds.json": _DS % '"train_batch_size": "auto", ',
        },
        consumer="transformers",
    ),
    good=Example(
        {
            "recipe.yaml": _RECIPE + "deepspeed: ds.json\ngradient_accumulation_steps: 4\n",
            "ds.json": _DS % '"train_batch_size": "auto", "gradient_accumulation_steps": "auto", ',
        },
        consumer="transformers",
    ),
    proof=crashes("parse", "Check batch related parameters"),
    consumers=TRAINERS,
)
def accumulation_absent(run: Run) -> Iterator[Finding]:
    """The Trainer accumulates gradients but the DeepSpeed config does not mention it.

    What happens: the Trainer fills train_batch_size with processes * micro batch * accumulation, while accelerate
    adds an accumulation of 1 to a file without the key; DeepSpeed then refuses the product: `Check batch related
    parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 32 != 8 * 1 *
    1`.
    """
    if not _accumulation_absent(run) or run.deepspeed is None:
        return
    steps = _trainer_value(run, _STEPS)
    if deepspeed_data(run).get("train_batch_size") != "auto" or steps is None or steps[0] == 1:
        return
    value, place = steps
    location, related = anchor(run, [place])
    yield Finding(
        Location(run.deepspeed),
        f"{run.deepspeed.name} has no `{_STEPS}` and counts as 1, but the Trainer's is {show(value)} "
        f"({words(place)}); "
        "DeepSpeed refuses the batch sizes that come of it",
        f'add `"{_STEPS}": "auto"` to {run.deepspeed.name}',
        [location, *related],
    )


def _trainer_value(run: Run, name: str) -> tuple[object, Origin] | None:
    """A number that the recipe or the command line gives to the Trainer."""
    from zerocfg.run.arguments import arguments_of

    setting = arguments_of(run).values.get(name)
    if setting is None or not isinstance(setting.value, (int, float)):
        return None
    return setting.value, setting.origin


RULES = (
    accumulation_disagrees,
    disagrees_with_trainer,
    batch_product,
    batch_zero,
    batch_missing,
    accumulation_absent,
)
