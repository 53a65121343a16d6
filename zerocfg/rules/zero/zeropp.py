"""ZC4xx: ZeRO++, which sends less between machines: secondary shards (hpZ), quantised weights and gradients."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.versions import admits
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.effects import effective_value, section, stage_of
from zerocfg.rules.fixes import edited, put, without
from zerocfg.run.model import Run
from zerocfg.run.stages.engine import number, truth
from zerocfg.source.edit import replace_value
from zerocfg.source.node import Path

_ZERO = "zero_optimization"
_HPZ: Path = (_ZERO, "zero_hpz_partition_size")
_QUANTISED = ("zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients")


def _secondary(run: Run) -> int:
    """Ranks that share a secondary copy of the parameters; 1 and less is none."""
    size = number(section(run, _ZERO).get("zero_hpz_partition_size"))
    return size if isinstance(size, int) and run.deepspeed is not None else 1


def _ranks(run: Run) -> int | None:
    """The ranks of the job, where they are known."""
    count = effective_value(run, "num_processes")
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else None


@rule("ZC426", "zeropp-below-stage-3", Severity.ERROR)
def zeropp_below_stage_3(run: Run) -> Iterator[Finding]:
    stage, zero = stage_of(run), section(run, _ZERO)
    if run.deepspeed is None or stage not in (0, 1, 2):
        return
    paths: list[Path] = [(_ZERO, name) for name in _QUANTISED if zero.get(name) != "auto" and truth(zero.get(name))]
    if _secondary(run) > 1:
        paths.insert(0, _HPZ)
    if not paths:
        return
    names = " and ".join(f"`{path[-1]}`" for path in paths)
    yield Finding(
        Location(run.deepspeed, paths[0]),
        f"{names}: ZeRO++ works at stage 3 only; at stage {stage} DeepSpeed silently leaves it out",
        "use stage 3, or remove",
        [Location(run.deepspeed, path, label="left out too") for path in paths[1:]],
        without(run.deepspeed, paths, "remove the keys of ZeRO++"),
    )


@rule("ZC427", "secondary-shards-do-not-divide", Severity.ERROR, needs={"launch"})
def secondary_shards_do_not_divide(run: Run) -> Iterator[Finding]:
    size, ranks = _secondary(run), _ranks(run)
    if run.deepspeed is None or ranks is None or stage_of(run) != 3 or size <= 1 or size > ranks or ranks % size == 0:
        return
    fitting = max(one for one in range(1, size) if ranks % one == 0)
    yield Finding(
        Location(run.deepspeed, _HPZ),
        f"`zero_hpz_partition_size` {size} does not divide the {ranks} ranks; DeepSpeed stops when the engine is built",
        "write the number of accelerators of one machine",
        fix=edited(replace_value, run.deepspeed, _HPZ, str(fitting), why=f"write {fitting}", safe=False),
    )


@rule("ZC428", "secondary-shards-over-all-ranks", Severity.NOTE, needs={"launch"})
def secondary_shards_over_all_ranks(run: Run) -> Iterator[Finding]:
    size, ranks = _secondary(run), _ranks(run)
    if run.deepspeed is None or ranks is None or stage_of(run) != 3 or size <= 1 or size < ranks:
        return
    yield Finding(
        Location(run.deepspeed, _HPZ),
        f"`zero_hpz_partition_size` {size} spans all {ranks} ranks: a second copy of the shards that saves no traffic",
        "remove it on one machine; on several, write the accelerators of one",
        fix=without(run.deepspeed, [_HPZ], "remove the key"),
    )


@rule("ZC429", "quantised-gradients-without-reduce-scatter", Severity.ERROR)
def quantised_gradients_without_reduce_scatter(run: Run) -> Iterator[Finding]:
    zero, path = section(run, _ZERO), (_ZERO, "zero_quantized_gradients")
    scatter = zero.get("reduce_scatter", True)
    if run.deepspeed is None or stage_of(run) != 3 or zero.get(path[1]) == "auto" or not truth(zero.get(path[1])):
        return
    if scatter is None or scatter == "auto" or truth(scatter):
        return
    yield Finding(
        Location(run.deepspeed, path),
        "`zero_quantized_gradients` needs `reduce_scatter`, which is off; DeepSpeed stops when the engine is built",
        'write "reduce_scatter": true',
        [Location(run.deepspeed, (_ZERO, "reduce_scatter"), label="switched off here")],
        put(run.deepspeed, (_ZERO, "reduce_scatter"), "true", why="switch reduce_scatter on"),
    )


@rule("ZC430", "secondary-shards-of-old-release", Severity.WARNING, needs={"versions"}, versions="deepspeed<0.18.3")
def secondary_shards_of_old_release(run: Run) -> Iterator[Finding]:
    declared = run.versions.get("deepspeed")
    if run.deepspeed is None or stage_of(run) != 3 or _secondary(run) <= 1 or not admits(declared, below="0.18.3"):
        return
    yield Finding(
        Location(run.deepspeed, _HPZ),
        f"`zero_hpz_partition_size` with DeepSpeed {declared}: before 0.18.3 the second copy of the parameters may be "
        "out of date after loading",
        "use 0.18.3 or later, or remove the key",
        fix=without(run.deepspeed, [_HPZ], "remove the key", safe=False),
    )
