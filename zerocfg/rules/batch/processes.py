"""ZC2xx: batch sizes and parallel groups that hold for one number of processes only."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.effects import WITH_ACCELERATE, accelerate_data, deepspeed_data, effective_value, section
from zerocfg.rules.fixes import edited
from zerocfg.run.model import Run
from zerocfg.run.stages.batches import MICRO, STEPS, TRAIN
from zerocfg.source.edit import delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path


def _shares(run: Run) -> int | None:
    """`sequence_parallel_size` where it asks for something, and where nothing else brings the groups for it."""
    value = deepspeed_data(run).get("sequence_parallel_size")
    if run.deepspeed is None or not isinstance(value, int) or isinstance(value, bool) or value < 1:
        return None
    return None if "parallelism_config" in accelerate_data(run) else value


@rule("ZC242", "sequence-parallel-size-alone", Severity.ERROR)
def sequence_parallel_size_alone(run: Run) -> Iterator[Finding]:
    share = _shares(run)
    if share is None or share == 1 or "data_parallel_size" in deepspeed_data(run) or run.deepspeed is None:
        return
    passes = section(run, "compile").get("passes")
    if isinstance(passes, list) and "autosp" in passes:
        return  # the compiler splits the sequences and makes the groups by the key
    world, fix = effective_value(run, "num_processes"), None
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
        f"`sequence_parallel_size: {share}` without `data_parallel_size` splits no sequence: DeepSpeed makes groups "
        "for it only where both are given",
        f"add `data_parallel_size`: the number of processes divided by {share}"
        + (" (with accelerate: use parallelism_config)" if run.consumer in WITH_ACCELERATE else ""),
        fix=fix,
    )


@rule("ZC243", "parallel-sizes-miss-processes", Severity.ERROR, needs={"launch"}, versions="deepspeed>=0.18.6")
def parallel_sizes_miss_processes(run: Run) -> Iterator[Finding]:
    share, data, world = (
        _shares(run),
        deepspeed_data(run).get("data_parallel_size"),
        effective_value(run, "num_processes"),
    )
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


@rule("ZC246", "batch-fixes-processes", Severity.NOTE)
def batch_fixes_processes(run: Run) -> Iterator[Finding]:
    data = deepspeed_data(run)
    sizes = [data.get(name) for name in (TRAIN, MICRO, STEPS)]
    if run.deepspeed is None or run.consumer in WITH_ACCELERATE or "sequence_parallel_size" in data:
        return
    whole = [size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size > 0]
    if len(whole) < 3 or whole[0] % (whole[1] * whole[2]) or isinstance(effective_value(run, "num_processes"), int):
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
