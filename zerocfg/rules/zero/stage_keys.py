"""ZC4xx: settings of `zero_optimization` that the chosen stage never reads, or reads as something else."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.schema import load_schema
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.effects import TRAINERS, section, stage_of
from zerocfg.rules.fixes import edited, without
from zerocfg.run.model import Run, SourceFile
from zerocfg.run.stages.engine import number, truth
from zerocfg.source.edit import delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path

ZERO = "zero_optimization"

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


@rule("ZC416", "stage-3-settings-below-stage-3", Severity.NOTE)
def stage_3_settings_below_stage_3(run: Run) -> Iterator[Finding]:
    stage, paths = stage_of(run), _chosen(run, _STAGE_3)
    if run.deepspeed is not None and stage in (1, 2) and paths:
        yield _unread(
            run.deepspeed, paths, f"read by stage 3 only; at stage {stage} without effect", "remove, or use stage 3"
        )


@rule("ZC417", "settings-stage-3-does-not-read", Severity.NOTE)
def settings_stage_3_does_not_read(run: Run) -> Iterator[Finding]:
    paths = _chosen(run, _STAGE_1_2)
    if run.deepspeed is not None and stage_of(run) == 3 and paths:
        yield _unread(
            run.deepspeed,
            paths,
            "read by stages 1 and 2 only; at stage 3 without effect",
            "remove, or use the stage3_ keys",
        )


@rule("ZC418", "zero-settings-at-stage-0", Severity.NOTE)
def zero_settings_at_stage_0(run: Run) -> Iterator[Finding]:
    paths = _chosen(run, _ANY_STAGE)
    if run.deepspeed is not None and section(run, ZERO).get("stage") == 0 and stage_of(run) == 0 and paths:
        yield _unread(
            run.deepspeed, paths, "without effect, because ZeRO is off at stage 0", "remove, or use stage 1 to 3"
        )


@rule("ZC419", "stage-missing", Severity.ERROR)
def stage_missing(run: Run) -> Iterator[Finding]:
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


@rule("ZC420", "allgather-bucket-odd", Severity.ERROR)
def allgather_bucket_odd(run: Run) -> Iterator[Finding]:
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


@rule("ZC422", "sequential-gather-without-prefetch", Severity.NOTE)
def sequential_gather_without_prefetch(run: Run) -> Iterator[Finding]:
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
