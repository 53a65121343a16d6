"""ZC4xx: ZeRO++, which sends less between machines: secondary shards (hpZ), quantised weights and gradients."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.versions import admits
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import edited, effective, put, section, stage_of, without
from zerocfg.rules.proof import ABSENT, at_least, at_most, cited, crashes, shows
from zerocfg.run.engine import number, truth
from zerocfg.run.model import Run
from zerocfg.source.edit import replace_value
from zerocfg.source.node import Path

_ZERO = "zero_optimization"
_HPZ: Path = (_ZERO, "zero_hpz_partition_size")
_QUANTISED = ("zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients")
_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": %s}}\n'
_LAUNCH = "deepspeed --num_gpus %s train.py --deepspeed_config ds.json\n"


def _secondary(run: Run) -> int:
    """Ranks that share a secondary copy of the parameters; 1 and less is none."""
    size = number(section(run, _ZERO).get("zero_hpz_partition_size"))
    return size if isinstance(size, int) and run.deepspeed is not None else 1


def _ranks(run: Run) -> int | None:
    """The ranks of the job, where they are known."""
    count = effective(run, "num_processes")
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else None


@rule(
    "ZC426",
    "zeropp-below-stage-3",
    Severity.ERROR,
    bad=(
        Example({"ds.json": _DS % '2, "zero_hpz_partition_size": 8'}, consumer="deepspeed").finds(
            "error", 'ds.json: "zero_hpz_partition_size": 8', 3, 2, 3
        ),
        Example(
            {"ds.json": _DS % '2, "zero_quantized_weights": true, "zero_quantized_gradients": true'},
            consumer="deepspeed",
            proof=shows(
                "step",
                {
                    "engine.zero_config.zero_quantized_weights": (True, False),
                    "uses.zero_config.zero_quantized_weights": (0, 0),
                },
            ),
        ).finds(
            "error",
            'ds.json: "zero_quantized_weights": true',
            3,
            2,
            3,
            also=('ds.json: "zero_quantized_gradients": true',),
        ),
    ),
    good=(
        Example({"ds.json": _DS % '3, "zero_hpz_partition_size": 8'}, consumer="deepspeed"),
        Example(
            {"ds.json": _DS % "2"},
            consumer="deepspeed",
            proof=shows(
                "step",
                {
                    "engine.zero_config.zero_quantized_weights": (True, False),
                    "uses.zero_config.zero_quantized_weights": (0, 0),
                },
            ),
        ),
    ),
    proof=shows(
        "init",
        {
            "engine.zero_config.zero_hpz_partition_size": (8, 8),
            "optimizer.zero_hpz_partition_size": (ABSENT, 8),
        },
    ),
    fixable=True,
)
def zeropp_below_stage_3(run: Run) -> Iterator[Finding]:
    """ZeRO++ is switched on at a stage below 3.

    hpZ, quantised weights and quantised gradients shorten what stage 3 sends. Below it the job trains as without them,
    with the traffic that they were meant to save.

    What happens: nothing. The optimizers of the lower stages are not given the keys; at stage 3 a machine without the
    CUDA quantiser would have stopped at the quantised ones.

    Fix: the keys are removed. ZeRO++ itself needs stage 3.

    When to ignore: the file is a template in which only the stage is changed.
    """
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


@rule(
    "ZC427",
    "secondary-shards-do-not-divide",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % '3, "zero_hpz_partition_size": 2', "train.sh": _LAUNCH % 3}).finds(
        "error", 'ds.json: "zero_hpz_partition_size": 2', 2, 3
    ),
    good=Example({"ds.json": _DS % '3, "zero_hpz_partition_size": 3', "train.sh": _LAUNCH % 3}),
    proof=crashes("init", "3 is not divisible by 2", ranks=3),
    needs={"launch"},
    fixable=True,
)
def secondary_shards_do_not_divide(run: Run) -> Iterator[Finding]:
    """`zero_hpz_partition_size` does not divide the number of ranks.

    It is the number of ranks that share a secondary copy, normally the accelerators of one machine; it has to be
    changed with the machine. The job stops after the model was loaded.

    What happens: `AssertionError: 12 is not divisible by 8` when the engine is built. A size above the number of ranks
    is lowered to it.

    Fix: the largest divisor below, so that the groups stay as large as possible.
    """
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


@rule(
    "ZC428",
    "secondary-shards-over-all-ranks",
    Severity.NOTE,
    bad=Example(
        {
            "ds.json": _DS % '3, "reduce_bucket_size": 1000, "zero_hpz_partition_size": 2',
            "train.sh": _LAUNCH % 2,
        }
    ).finds("note", 'ds.json: "zero_hpz_partition_size": 2', 2, 2),
    good=Example({"ds.json": _DS % '3, "reduce_bucket_size": 1000', "train.sh": _LAUNCH % 2}),
    proof=shows(
        "init",
        {
            "optimizer.zero_hpz_partition_size": (2, 1),
            "memory.init.bytes_per_parameter": (at_least(7.5), at_most(7.0)),
        },
        ranks=2,
    ),
    needs={"launch"},
    fixable=True,
)
def secondary_shards_over_all_ranks(run: Run) -> Iterator[Finding]:
    """`zero_hpz_partition_size` is as large as the whole job, or larger.

    hpZ keeps a second sharded copy on each machine, so that gathers need not leave it. Where the group is all ranks,
    the second copy is sharded over the same ranks as the first: twice the parameter memory, and the same gathers.

    What happens: every rank holds its shard of the parameters twice; a size above the number of ranks is silently
    lowered to it.

    Fix: the key is removed.

    When to ignore: the same file is also used on several machines.
    """
    size, ranks = _secondary(run), _ranks(run)
    if run.deepspeed is None or ranks is None or stage_of(run) != 3 or size <= 1 or size < ranks:
        return
    yield Finding(
        Location(run.deepspeed, _HPZ),
        f"`zero_hpz_partition_size` {size} spans all {ranks} ranks: a second copy of the shards that saves no traffic",
        "remove it on one machine; on several, write the accelerators of one",
        fix=without(run.deepspeed, [_HPZ], "remove the key"),
    )


@rule(
    "ZC429",
    "quantised-gradients-without-reduce-scatter",
    Severity.ERROR,
    bad=Example(
        {"ds.json": _DS % '3, "zero_quantized_gradients": true, "reduce_scatter": false'}, consumer="deepspeed"
    ).finds("error", 'ds.json: "zero_quantized_gradients": true', also=('ds.json: "reduce_scatter": false',)),
    good=Example({"ds.json": _DS % '3, "zero_quantized_gradients": true'}, consumer="deepspeed"),
    proof=crashes("init", "when enable all_to_all_reduce, reduce_scatter should also be enabled"),
    fixable=True,
)
def quantised_gradients_without_reduce_scatter(run: Run) -> Iterator[Finding]:
    """Quantised gradients with `"reduce_scatter": false`.

    The quantised reduction is a reduce-scatter of its own. The engine is built after the model was loaded, so the
    error comes late.

    What happens: `AssertionError: when enable all_to_all_reduce, reduce_scatter should also be enabled for data type
    checks.` when the engine is built.

    Fix: `"reduce_scatter": true`, the default.
    """
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


@rule(
    "ZC430",
    "secondary-shards-of-old-release",
    Severity.WARNING,
    bad=Example(
        {
            "zerocfg.yaml": "version: 1\nruns:\n  sft:\n    consumer: deepspeed\n    script: train.py\n"
            '    deepspeed: ds.json\n    versions: {deepspeed: ">=0.16,<0.18"}\n',
            "train.py": "import deepspeed\n",
            "ds.json": _DS % '3, "zero_hpz_partition_size": 8',
        }
    ).finds("warning", 'ds.json: "zero_hpz_partition_size": 8', "0.16", "0.18", "0.18.3", "0.18.3"),
    good=Example(
        {
            "zerocfg.yaml": "version: 1\nruns:\n  sft:\n    consumer: deepspeed\n    script: train.py\n"
            '    deepspeed: ds.json\n    versions: {deepspeed: ">=0.19.3"}\n',
            "train.py": "import deepspeed\n",
            "ds.json": _DS % '3, "zero_hpz_partition_size": 8',
        }
    ),
    proof=cited("deepspeed/runtime/zero/partition_parameters.py@0.18.3"),
    references=("deepspeedai/DeepSpeed#7606", "deepspeedai/DeepSpeed#7707", "deepspeedai/DeepSpeed#5059"),
    needs={"versions"},
    versions="deepspeed<0.18.3",
    fixable=True,
)
def secondary_shards_of_old_release(run: Run) -> Iterator[Finding]:
    """hpZ with a declared DeepSpeed whose secondary copy could hold old values.

    The model trains on stale weights: the first loss after the start or after a resume is far too high, or the run does
    not converge, and nothing points at this key.

    What happens: before 0.18.3 the copy was not refreshed after weights or a checkpoint were loaded (#7707); before
    0.13.5 it could also be read while it was being written (#5216, loss 0 from the third step).

    Fix: `zero_hpz_partition_size` is removed; the other way out is a newer release.

    When to ignore: the declared range is wider than what is installed.
    """
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


RULES = (
    zeropp_below_stage_3,
    secondary_shards_do_not_divide,
    secondary_shards_over_all_ranks,
    quantised_gradients_without_reduce_scatter,
    secondary_shards_of_old_release,
)
