"""ZC4xx: settings of `zero_optimization` that the chosen stage never reads, or reads as something else."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.schema import load_schema
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import TRAINERS, edited, section, stage_of, without
from zerocfg.rules.proof import ABSENT, crashes, shows
from zerocfg.run.engine import number, truth
from zerocfg.run.model import Run, SourceFile
from zerocfg.source.edit import delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path

ZERO = "zero_optimization"
_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {%s}}\n'
_AUTO_DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "zero_optimization": {%s}}\n'
)
_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\ndeepspeed: ds.json\n"

_STAGE_3 = frozenset(
    "sub_group_size prefetch_bucket_size param_persistence_threshold model_persistence_threshold max_live_parameters "
    "max_reuse_distance module_granularity_threshold use_all_reduce_for_fetch_params allgather_sequential "
    "memory_efficient_linear save_muon_momentum_buffer_in_memory".split()
)
"""What only stage 3 reads; most are also written with ``stage3_`` in front."""

_STAGE_1_2 = frozenset(
    "allgather_bucket_size round_robin_gradients parameter_alignment ignore_unused_parameters "
    "use_multi_rank_bucket_allreduce".split()
)
"""What only stages 1 and 2 read."""

_ANY_STAGE = (
    frozenset("contiguous_gradients reduce_scatter reduce_bucket_size overlap_comm".split()) | _STAGE_1_2 | _STAGE_3
)


def _differs(value: object, default: object) -> bool:
    """Whether a value is meant and is not what applies anyway (None: off below stage 3)."""
    if value is None or value == "auto" or isinstance(value, (list, dict)):
        return False
    if default is None or isinstance(default, bool):
        return truth(value) != bool(default)
    return isinstance(number(value), int) and number(value) != default


def _chosen(run: Run, names: frozenset[str]) -> list[Path]:
    """The keys of these names, in the order of the file, whose values are not the defaults."""
    schema = load_schema("deepspeed")
    return [
        (ZERO, name)
        for name, value in section(run, ZERO).items()
        if (key := schema.find((ZERO, str(name)))) is not None
        and key.name.removeprefix("stage3_") in names
        and _differs(value, key.default)
    ]


def _names(paths: list[Path]) -> str:
    """ "`a`", "`a` and `b`", "`a`, `b` and 2 more"."""
    words = [f"`{path[-1]}`" for path in paths]
    if len(words) > 3:
        words = [*words[:2], f"{len(words) - 2} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _unread(file: SourceFile, paths: list[Path], why: str, help_text: str) -> Finding:
    return Finding(
        Location(file, paths[0], "key"),
        f"{_names(paths)}: {why}",
        help_text,
        [Location(file, path, "key", label="not read either") for path in paths[1:]],
        without(file, paths, "remove what is not read"),
    )


@rule(
    "ZC416",
    "stage-3-settings-below-stage-3",
    Severity.NOTE,
    bad=Example(
        {"ds.json": _DS % '"stage": 2, "sub_group_size": 100000000, "stage3_max_live_parameters": 3e8'},
        consumer="deepspeed",
    ).finds("note", 'ds.json: "sub_group_size"', 3, 2, 3, also=('ds.json: "stage3_max_live_parameters"',)),
    good=Example(
        {"ds.json": _DS % '"stage": 3, "sub_group_size": 100000000, "stage3_max_live_parameters": 3e8'},
        consumer="deepspeed",
    ),
    proof=shows(
        "init",
        {
            "engine.zero_config.sub_group_size": (100000000, 100000000),
            "optimizer.sub_group_size": (ABSENT, 100000000),
        },
    ),
    fixable=True,
)
def stage_3_settings_below_stage_3(run: Run) -> Iterator[Finding]:
    """Stage 1 or 2 with numbers that only stage 3 reads.

    They look as if memory had been limited or tuned, and somebody will tune them again. Parameters are whole on every
    rank below stage 3: there is nothing to prefetch, to keep or to release. Only values other than the defaults are
    told, and never "auto".

    What happens: nothing. The optimizer of stages 1 and 2 is not given them.

    Fix: the keys are removed.

    When to ignore: the file is a template in which only the stage is changed.
    """
    stage, paths = stage_of(run), _chosen(run, _STAGE_3)
    if run.deepspeed is not None and stage in (1, 2) and paths:
        yield _unread(
            run.deepspeed, paths, f"read by stage 3 only; at stage {stage} without effect", "remove, or use stage 3"
        )


@rule(
    "ZC417",
    "settings-stage-3-does-not-read",
    Severity.NOTE,
    bad=Example(
        {"ds.json": _DS % '"stage": 3, "round_robin_gradients": true, "allgather_bucket_size": 200000000'},
        consumer="deepspeed",
    ).finds("note", 'ds.json: "round_robin_gradients"', 1, 2, 3, also=('ds.json: "allgather_bucket_size"',)),
    good=Example(
        {"ds.json": _DS % '"stage": 2, "round_robin_gradients": true, "allgather_bucket_size": 200000000'},
        consumer="deepspeed",
    ),
    proof=shows(
        "init",
        {
            "engine.zero_config.round_robin_gradients": (True, True),
            "optimizer.round_robin_gradients": (ABSENT, True),
            "optimizer.allgather_bucket_size": (ABSENT, 200000000),
        },
    ),
    fixable=True,
)
def settings_stage_3_does_not_read(run: Run) -> Iterator[Finding]:
    """Stage 3 with settings that only stages 1 and 2 read.

    Stage 3 has an implementation of its own, with other buffers. What it gathers at a time is limited by
    `stage3_prefetch_bucket_size` and `stage3_max_live_parameters`, so a smaller `allgather_bucket_size` saves no
    memory there. Only values other than the defaults are told.

    What happens: nothing. The optimizer of stage 3 is not given them.

    Fix: the keys are removed.

    When to ignore: the file is a template in which only the stage is changed.
    """
    paths = _chosen(run, _STAGE_1_2)
    if run.deepspeed is not None and stage_of(run) == 3 and paths:
        yield _unread(
            run.deepspeed,
            paths,
            "read by stages 1 and 2 only; at stage 3 without effect",
            "remove, or use the stage3_ keys",
        )


@rule(
    "ZC418",
    "zero-settings-at-stage-0",
    Severity.NOTE,
    bad=Example(
        {"ds.json": _DS % '"stage": 0, "overlap_comm": true, "reduce_bucket_size": 200000000'}, consumer="deepspeed"
    ).finds("note", 'ds.json: "overlap_comm"', 0, 1, 3, also=('ds.json: "reduce_bucket_size"',)),
    good=Example(
        {"ds.json": _DS % '"stage": 1, "overlap_comm": true, "reduce_bucket_size": 200000000'}, consumer="deepspeed"
    ),
    proof=shows(
        "init",
        {
            "engine.zero_config.overlap_comm": (True, True),
            "optimizer.overlap_comm": (ABSENT, True),
            "optimizer.reduce_bucket_size": (ABSENT, 200000000),
        },
    ),
    fixable=True,
)
def zero_settings_at_stage_0(run: Run) -> Iterator[Finding]:
    """ZeRO is switched off by `"stage": 0`, and the section still sets it up.

    Every rank then holds all states, about 16 bytes a parameter with Adam. Whoever reads `overlap_comm` and bucket
    sizes takes it for a sharded run. Only values other than the defaults are told.

    What happens: nothing. At stage 0 the engine makes no ZeRO optimizer; gradients are averaged in buckets of a fixed
    size.

    Fix: the keys are removed; the stage stays 0.

    When to ignore: the file is one of a family that differ in the stage only.
    """
    paths = _chosen(run, _ANY_STAGE)
    if run.deepspeed is not None and section(run, ZERO).get("stage") == 0 and stage_of(run) == 0 and paths:
        yield _unread(
            run.deepspeed, paths, "without effect, because ZeRO is off at stage 0", "remove, or use stage 1 to 3"
        )


@rule(
    "ZC419",
    "stage-missing",
    Severity.ERROR,
    bad=(
        Example({"ds.json": _DS % '"overlap_comm": true, "reduce_bucket_size": 200000000'}, consumer="deepspeed").finds(
            "error", 'ds.json: "zero_optimization"', 0, 1, 2, 3
        ),
        Example(
            {"ds.json": _AUTO_DS % '"overlap_comm": true', "recipe.yaml": _RECIPE},
            consumer="transformers",
            proof=crashes("step", "KeyError: 'stage'", within="get_state_dict"),
        ).finds("error", 'ds.json: "zero_optimization"', 1, 2, 3),
    ),
    good=(
        Example(
            {"ds.json": _DS % '"stage": 2, "overlap_comm": true, "reduce_bucket_size": 200000000'},
            consumer="deepspeed",
        ),
        Example(
            {"ds.json": _AUTO_DS % '"stage": 2, "overlap_comm": true', "recipe.yaml": _RECIPE},
            consumer="transformers",
            proof=crashes("step", "KeyError: 'stage'", within="get_state_dict"),
        ),
    ),
    proof=shows("init", {"engine.stage": (0, 2), "optimizer.overlap_comm": (ABSENT, True)}),
    fixable=True,
)
def stage_missing(run: Run) -> Iterator[Finding]:
    """A `zero_optimization` section that sets ZeRO up but names no stage.

    The stage is what switches ZeRO on. Without it every rank holds all states, and the first sign is an
    out-of-memory error on a model that should have fitted.

    What happens: DeepSpeed takes stage 0 without a word. Under the Trainer the engine is built so, and then
    `KeyError: 'stage'`.

    Fix: `"stage": 2` is written, which is also what accelerate takes by default; which stage was meant is a guess.

    When to ignore: the script writes the stage into the config before it hands it over.
    """
    zero = section(run, ZERO)
    if run.deepspeed is None or not zero or "stage" in zero:
        return
    if run.consumer in TRAINERS:
        becomes = "the Trainer stops with KeyError after the model was loaded"
    else:
        becomes = "DeepSpeed takes 0, no ZeRO at all, and the section has no effect"
    yield Finding(
        Location(run.deepspeed, (ZERO,), "key"),
        f"`zero_optimization` names no stage: {becomes}",
        'write "stage": 1, 2 or 3',
        fix=edited(insert_entry, run.deepspeed, (ZERO,), "stage", "2", why="write stage 2", safe=False),
    )


@rule(
    "ZC420",
    "allgather-bucket-odd",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % '"stage": 2, "allgather_bucket_size": 499999999'}, consumer="deepspeed").finds(
        "error", "ds.json: 499999999", "499,999,999", 2, 500000000
    ),
    good=Example({"ds.json": _DS % '"stage": 2, "allgather_bucket_size": 499999998'}, consumer="deepspeed"),
    proof=crashes("init", "allgather_bucket_size must be a multiple of nccl_start_alignment_factor, 2"),
    fixable=True,
)
def allgather_bucket_odd(run: Run) -> Iterator[Finding]:
    """An odd `allgather_bucket_size` at stage 1 or 2.

    It happens where the number is worked out from a model's size. The engine is built after the model was loaded, so
    a large job waits long for the error.

    What happens: `AssertionError: allgather_bucket_size must be a multiple of nccl_start_alignment_factor, 2` when the
    engine is built. Stage 3 does not read the key.

    Fix: one element more.
    """
    path = (ZERO, "allgather_bucket_size")
    size, stage = number(section(run, ZERO).get(path[-1])), stage_of(run)
    if run.deepspeed is None or stage not in (1, 2) or not isinstance(size, int) or size < 0 or size % 2 == 0:
        return
    even = str(size + 1)
    yield Finding(
        Location(run.deepspeed, path, "value"),
        f"`allgather_bucket_size` is odd ({size:,} elements); DeepSpeed stops at stage {stage}, where it must be even",
        f"write {even}",
        fix=edited(replace_value, run.deepspeed, path, even, why=f"write {even}"),
    )


@rule(
    "ZC422",
    "sequential-gather-without-prefetch",
    Severity.NOTE,
    bad=Example(
        {"ds.json": _DS % '"stage": 3, "stage3_allgather_sequential": true, "stage3_prefetch_bucket_size": 200000000'},
        consumer="deepspeed",
    ).finds("note", 'ds.json: "stage3_prefetch_bucket_size": 200000000', "200,000,000", 1),
    good=Example({"ds.json": _DS % '"stage": 3, "stage3_prefetch_bucket_size": 200000000'}, consumer="deepspeed"),
    proof=shows(
        "init",
        {
            "engine.zero_config.prefetch_bucket_size": (200000000, 200000000),
            "optimizer.prefetch_elements": (1, 200000000),
        },
    ),
    fixable=True,
)
def sequential_gather_without_prefetch(run: Run) -> Iterator[Finding]:
    """A prefetch bucket beside `stage3_allgather_sequential: true`.

    Prefetching hides the time of the gathers behind computation. Gathering one parameter after the other switches it
    off, so that stage 3 gets slower although a large prefetch bucket stands in the file.

    What happens: DeepSpeed sets the bucket to 1: `If zero_allgather_sequential is True, set prefetch_bucket_size to 1`
    (seen at log level info only).

    Fix: the prefetch size is removed; what runs stays the same.

    When to ignore: sequential gathering is being compared with the usual one.
    """
    zero = section(run, ZERO)
    sequential = zero.get("stage3_allgather_sequential", zero.get("allgather_sequential"))
    if run.deepspeed is None or stage_of(run) != 3 or sequential == "auto" or not truth(sequential):
        return
    for name in ("stage3_prefetch_bucket_size", "prefetch_bucket_size"):
        size = number(zero.get(name))
        if isinstance(size, int) and size > 1:
            path = (ZERO, name)
            yield Finding(
                Location(run.deepspeed, path),
                f"`{name}` {size:,} becomes 1, because `allgather_sequential` is on: nothing is fetched ahead",
                "remove one of the two",
                fix=edited(delete_entry, run.deepspeed, path, why="remove the prefetch size"),
            )


RULES = (
    stage_3_settings_below_stage_3,
    settings_stage_3_does_not_read,
    zero_settings_at_stage_0,
    stage_missing,
    allgather_bucket_odd,
    sequential_gather_without_prefetch,
)
