"""ZC4xx: settings of `zero_optimization` that the chosen stage never reads, or reads as something else."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.schema import load_schema
from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.effects import stage_of, under_trainer
from zerocfg.rules.key import Key, delete_all
from zerocfg.rules.subjects import ZERO_SECTION, in_zero
from zerocfg.run.stages.engine import number, truth

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


def _chosen(zero: Key, names: frozenset[str]) -> list[Key]:
    """The keys of these names, in the order of the file, whose values are not the defaults."""
    schema = load_schema("deepspeed")
    return [
        key
        for key in zero
        if (known := schema.find(("zero_optimization", key.name))) is not None
        and known.name.removeprefix("stage3_") in names
        and _differs(key.value, known.default)
    ]


def _names(keys: list[Key]) -> str:
    """ "`a`", "`a` and `b`", "`a`, `b` and 2 more"."""
    words = [f"`{key.name}`" for key in keys]
    if len(words) > 3:
        words = [*words[:2], f"{len(words) - 2} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _unread(keys: list[Key], why: str, help_text: str) -> Iterator[Finding]:
    if keys:
        yield keys[0].finding(
            f"{_names(keys)}: {why}",
            help_text,
            [key.at("key", "not read either") for key in keys[1:]],
            delete_all(keys, "remove what is not read"),
            where="key",
        )


@rule("ZC416", "stage-3-settings-below-stage-3", Severity.NOTE, ZERO_SECTION)
def stage_3_settings_below_stage_3(zero: Key) -> Iterator[Finding]:
    stage = stage_of(zero.run)
    if stage in (1, 2):
        why = f"read by stage 3 only; at stage {stage} without effect"
        yield from _unread(_chosen(zero, _STAGE_3), why, "remove, or use stage 3")


@rule("ZC417", "settings-stage-3-does-not-read", Severity.NOTE, ZERO_SECTION)
def settings_stage_3_does_not_read(zero: Key) -> Iterator[Finding]:
    if stage_of(zero.run) == 3:
        why = "read by stages 1 and 2 only; at stage 3 without effect"
        yield from _unread(_chosen(zero, _STAGE_1_2), why, "remove, or use the stage3_ keys")


@rule("ZC418", "zero-settings-at-stage-0", Severity.NOTE, ZERO_SECTION)
def zero_settings_at_stage_0(zero: Key) -> Iterator[Finding]:
    if stage_of(zero.run) == 0 and zero["stage"].value == 0:
        why = "without effect, because ZeRO is off at stage 0"
        yield from _unread(_chosen(zero, _ANY_STAGE), why, "remove, or use stage 1 to 3")


@rule("ZC419", "stage-missing", Severity.ERROR, ZERO_SECTION)
def stage_missing(zero: Key) -> Iterator[Finding]:
    if not zero.section or "stage" in zero:
        return
    if under_trainer(zero.run):
        becomes = "the Trainer stops with KeyError after the model was loaded"
    else:
        becomes = "DeepSpeed takes 0, no ZeRO at all, and the section has no effect"
    yield zero.finding(
        f"`zero_optimization` names no stage: {becomes}",
        'write "stage": 1, 2 or 3',
        fix=zero["stage"].set("2", "write stage 2", safe=False),
        where="key",
    )


@rule("ZC420", "allgather-bucket-odd", Severity.ERROR, in_zero("allgather_bucket_size"))
def allgather_bucket_odd(key: Key) -> Iterator[Finding]:
    size, stage = number(key.value), stage_of(key.run)
    if stage not in (1, 2) or not isinstance(size, int) or size < 0 or size % 2 == 0:
        return
    yield key.finding(
        f"`{key.name}` is odd ({size:,} elements); DeepSpeed stops at stage {stage}, where it must be even",
        f"write {size + 1}",
        fix=key.replace(f"{size + 1}", f"write {size + 1}"),
        where="value",
    )


@rule("ZC422", "sequential-gather-without-prefetch", Severity.NOTE, ZERO_SECTION)
def sequential_gather_without_prefetch(zero: Key) -> Iterator[Finding]:
    sequential = zero.get("stage3_allgather_sequential", zero.get("allgather_sequential"))
    if stage_of(zero.run) != 3 or sequential == "auto" or not truth(sequential):
        return
    for key in (zero["stage3_prefetch_bucket_size"], zero["prefetch_bucket_size"]):
        size = number(key.value)
        if isinstance(size, int) and size > 1:
            yield key.finding(
                f"`{key.name}` {size:,} becomes 1, because `allgather_sequential` is on: nothing is fetched ahead",
                "remove one of the two",
                fix=key.delete("remove the prefetch size"),
            )
