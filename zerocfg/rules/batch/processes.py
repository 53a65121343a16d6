"""ZC2xx: batch sizes and parallel groups that hold for one number of processes only."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import TRAINERS, accelerate_data, deepspeed_data, edited, effective, section
from zerocfg.rules.proof import crashes, shows
from zerocfg.run.batches import MICRO, STEPS, TRAIN
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path

_READERS = (*TRAINERS, "accelerate")
_DS = '{"train_micro_batch_size_per_gpu": 1, %s"zero_optimization": {"stage": 2}}\n'
_TORCHRUN = "torchrun --nproc_per_node 2 train.py --deepspeed_config ds.json\n"


def _two(more: str) -> Example:
    return Example({"ds.json": _DS % more, "train.sh": _TORCHRUN}, consumer="deepspeed")


def _shares(run: Run) -> int | None:
    """`sequence_parallel_size` where it asks for something, and where nothing else brings the groups for it."""
    value = deepspeed_data(run).get("sequence_parallel_size")
    if run.deepspeed is None or not isinstance(value, int) or isinstance(value, bool) or value < 1:
        return None
    return None if "parallelism_config" in accelerate_data(run) else value


@rule(
    "ZC242",
    "sequence-parallel-size-alone",
    Severity.ERROR,
    bad=_two('"sequence_parallel_size": 2, ').finds("error", 'ds.json: "sequence_parallel_size": 2', 2, 2, 2),
    good=_two('"sequence_parallel_size": 2, "data_parallel_size": 1, '),
    proof=shows("init", {"engine.world_size": (2, 1)}, ranks=2),
    fixable=True,
    references=("deepspeed/__init__.py@0.19.8", "deepspeed/runtime/config.py@0.19.8"),
)
def sequence_parallel_size_alone(run: Run) -> Iterator[Finding]:
    """`sequence_parallel_size` without `data_parallel_size` in the DeepSpeed config.

    Sequences are not split: every rank trains on whole ones, with the memory that this takes. Only the bookkeeping
    changes, so that the engine reports half of the samples that it really trains on, or refuses batch sizes that fit.

    What happens: DeepSpeed divides the processes by the key when it checks the batch sizes, and makes groups only
    where both keys are there; no message.

    Fix: adds `data_parallel_size`, the processes divided by it, where the launch line tells how many there are (unsafe:
    sequences are then split, which the model's attention has to support).

    Nothing is said where `compile.passes` names `autosp`, which splits sequences by this key alone.

    When to ignore: the program passes its own groups (`mpu`) to deepspeed.initialize.
    """
    share = _shares(run)
    if share is None or share == 1 or "data_parallel_size" in deepspeed_data(run) or run.deepspeed is None:
        return
    passes = section(run, "compile").get("passes")
    if isinstance(passes, list) and "autosp" in passes:
        return  # the compiler splits the sequences and makes the groups by the key
    world, fix = effective(run, "num_processes"), None
    if run.consumer == "deepspeed" and isinstance(world, int) and world % share == 0:
        number_of = str(world // share)
        fix = edited(
            insert_entry,
            run.deepspeed,
            (),
            "data_parallel_size",
            number_of,
            why=f"split {world} processes into {number_of} groups of {share}",
            safe=False,
            after="sequence_parallel_size",
        )
    yield Finding(
        Location(run.deepspeed, ("sequence_parallel_size",)),
        f"`sequence_parallel_size: {share}` without `data_parallel_size` splits no sequence: it only makes the engine "
        f"count the samples of {share} processes as one",
        f"add `data_parallel_size`: the number of processes divided by {share}"
        + (" (with accelerate: use parallelism_config)" if run.consumer in _READERS else ""),
        fix=fix,
    )


@rule(
    "ZC243",
    "parallel-sizes-miss-processes",
    Severity.ERROR,
    bad=_two('"sequence_parallel_size": 2, "data_parallel_size": 2, ').finds(
        "error", 'ds.json: "data_parallel_size": 2', 2, 2, 4, 2, also=('ds.json: "sequence_parallel_size": 2',)
    ),
    good=_two('"sequence_parallel_size": 2, "data_parallel_size": 1, '),
    proof=crashes("parse", "Mesh should not be bigger than default world size 2, but found 4 ranks", ranks=2),
    fixable=True,
    needs={"launch"},
    references=("deepspeed/__init__.py@0.19.8",),
    versions="deepspeed>=0.18.6",
)
def parallel_sizes_miss_processes(run: Run) -> Iterator[Finding]:
    """`sequence_parallel_size` times `data_parallel_size` is not the number of processes.

    A file that was made for another number of GPUs stops every rank, after the model was loaded.

    What happens: `RuntimeError: Mesh should not be bigger than default world size 2, but found 4 ranks!`; where the
    product is too small the ranks that are left over stop with `IndexError: list index out of range`.

    Fix: writes the `data_parallel_size` that fits (unsafe: the number of processes may be what is wrong).
    """
    share, data, world = _shares(run), deepspeed_data(run).get("data_parallel_size"), effective(run, "num_processes")
    if share is None or run.deepspeed is None or not isinstance(data, int) or isinstance(data, bool) or data < 1:
        return
    if not isinstance(world, int) or world < 1 or share * data == world or run.consumer != "deepspeed":
        return
    path: Path = ("data_parallel_size",)
    fix = None
    if world % share == 0:
        text = str(world // share)
        fix = edited(replace_value, run.deepspeed, path, text, why=f"{world} processes by {share}", safe=False)
    yield Finding(
        Location(run.deepspeed, path),
        f"sequence_parallel_size {share} * data_parallel_size {data} is {share * data}, but {world} processes are "
        "started; DeepSpeed stops when it makes the groups",
        "their product is the number of processes",
        [Location(run.deepspeed, ("sequence_parallel_size",), label="the other factor")],
        fix,
    )


@rule(
    "ZC246",
    "batch-fixes-processes",
    Severity.NOTE,
    bad=Example(
        {
            "ds.json": '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, '
            '"zero_optimization": {"stage": 2}}\n'
        },
        consumer="deepspeed",
    ).finds(
        "note",
        'ds.json: "train_batch_size": 8',
        8,
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
            "ds.json": '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, '
            '"zero_optimization": {"stage": 2}}\n'
        },
        consumer="deepspeed",
    ),
    proof=crashes("parse", "Check batch related parameters"),
    fixable=True,
    references=("deepspeed/runtime/config.py@0.19.8", "deepspeedai/DeepSpeed#6914"),
)
def batch_fixes_processes(run: Run) -> Iterator[Finding]:
    """All three batch sizes are numbers, so that the config runs on one number of processes only.

    Such files are copied from machine to machine, and stop on every one that is not the first. The third number says
    nothing that the other two do not.

    What happens: on any other number of processes `AssertionError: Check batch related parameters. train_batch_size is
    not equal to micro_batch_per_gpu * gradient_acc_step * world_size`.

    Fix: removes `train_batch_size`, which DeepSpeed works out.

    When to ignore: a run that must never start on another number of GPUs; the check is then wanted.
    """
    data = deepspeed_data(run)
    sizes = [data.get(name) for name in (TRAIN, MICRO, STEPS)]
    if run.deepspeed is None or run.consumer in _READERS or "sequence_parallel_size" in data:
        return
    whole = [size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size > 0]
    if len(whole) < 3 or whole[0] % (whole[1] * whole[2]) or isinstance(effective(run, "num_processes"), int):
        return
    count = whole[0] // (whole[1] * whole[2])
    yield Finding(
        Location(run.deepspeed, (TRAIN,)),
        f"train_batch_size {whole[0]} with micro batch {whole[1]} and accumulation {whole[2]} runs on {count} "
        f"process{'es' * (count > 1)} only",
        "leave out train_batch_size: it follows from the other two",
        [Location(run.deepspeed, (name,)) for name in (MICRO, STEPS)],
        edited(delete_entry, run.deepspeed, (TRAIN,), why="let DeepSpeed work it out"),
    )


RULES = (
    sequence_parallel_size_alone,
    parallel_sizes_miss_processes,
    batch_fixes_processes,
)
