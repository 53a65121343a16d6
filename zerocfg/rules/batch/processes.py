"""ZC2xx: batch sizes and parallel groups that hold for one number of processes only."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.batch.sizes import positive
from zerocfg.rules.effects import with_accelerate
from zerocfg.rules.key import Key, accelerate, deepspeed, setting
from zerocfg.rules.subjects import DEEPSPEED_CONFIG
from zerocfg.run.model import Run
from zerocfg.run.stages.batches import MICRO, STEPS, TRAIN

_SHARE, _DATA = "sequence_parallel_size", "data_parallel_size"


def _share(run: Run) -> int:
    """How many processes share a sequence by the DeepSpeed config; 0 where something else brings the groups."""
    return 0 if "parallelism_config" in accelerate(run) else positive(deepspeed(run, _SHARE))


@rule("ZC242", "sequence-parallel-size-alone", Severity.ERROR, WHOLE_RUN)
def sequence_parallel_size_alone(run: Run) -> Iterator[Finding]:
    share, data = _share(run), deepspeed(run, _DATA)
    if share < 2 or data:
        return
    passes = deepspeed(run, "compile", "passes").value
    if isinstance(passes, list) and "autosp" in passes:
        return  # the compiler splits the sequences and makes the groups by the key
    world, fix = setting(run, "num_processes").value, None
    if run.consumer == "deepspeed" and isinstance(world, int) and world % share == 0:
        groups = str(world // share)
        why = f"split {world} processes into {groups} groups of {share}"
        fix = data.set(groups, why, safe=False, after=_SHARE)
    yield deepspeed(run, _SHARE).finding(
        f"`{_SHARE}: {share}` without `{_DATA}` splits no sequence: DeepSpeed makes groups for it only where both are "
        "given",
        f"add `{_DATA}`: the number of processes divided by {share}"
        + (" (with accelerate: use parallelism_config)" if with_accelerate(run) else ""),
        fix=fix,
    )


@rule(
    "ZC243", "parallel-sizes-miss-processes", Severity.ERROR, WHOLE_RUN, needs={"launch"}, versions="deepspeed>=0.18.6"
)
def parallel_sizes_miss_processes(run: Run) -> Iterator[Finding]:
    share, data, world = _share(run), deepspeed(run, _DATA), setting(run, "num_processes").value
    if not share or not positive(data) or not isinstance(world, int) or world < 1 or run.consumer != "deepspeed":
        return
    product = share * positive(data)
    if product == world:
        return
    fits = world % share == 0
    yield data.finding(
        f"{_SHARE} {share} * {_DATA} {data.value} is {product}, but {world} processes are started; DeepSpeed stops "
        "when it makes the groups",
        "their product is the number of processes",
        [deepspeed(run, _SHARE).at(label="the other factor")],
        data.replace(str(world // share), f"{world} processes by {share}", safe=False) if fits else None,
    )


@rule("ZC246", "batch-fixes-processes", Severity.NOTE, DEEPSPEED_CONFIG)
def batch_fixes_processes(ds: Key) -> Iterator[Finding]:
    total, micro, steps = (positive(ds[name]) for name in (TRAIN, MICRO, STEPS))
    if with_accelerate(ds.run) or _SHARE in ds or isinstance(setting(ds.run, "num_processes").value, int):
        return
    if not total or not micro or not steps or total % (micro * steps):
        return
    count = total // (micro * steps)
    yield ds[TRAIN].finding(
        f"train_batch_size {total} with micro batch {micro} and accumulation {steps} runs on {count} "
        f"process{'es' * (count > 1)} only",
        "leave out train_batch_size: it follows from the other two",
        [ds[MICRO], ds[STEPS]],
        ds[TRAIN].delete("let DeepSpeed work it out"),
    )
