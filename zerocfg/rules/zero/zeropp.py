"""ZC4xx: ZeRO++, which sends less between machines: secondary shards (hpZ), quantised weights and gradients."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.versions import admits
from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.arguments import processes
from zerocfg.rules.effects import stage_of
from zerocfg.rules.key import Key, delete_all
from zerocfg.rules.subjects import ZERO_SECTION
from zerocfg.run.stages.engine import number, truth

_QUANTISED = ("zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients")


def _secondary(zero: Key) -> tuple[Key, int]:
    """How many ranks share a secondary copy of the parameters, and where it is said; 1 and less is none."""
    key = zero["zero_hpz_partition_size"]
    size = number(key.value)
    return key, size if isinstance(size, int) else 1


def _on(key: Key) -> bool:
    return key.value != "auto" and key.on


@rule("ZC426", "zeropp-below-stage-3", Severity.ERROR, ZERO_SECTION)
def zeropp_below_stage_3(zero: Key) -> Iterator[Finding]:
    stage, (secondary, size) = stage_of(zero.run), _secondary(zero)
    keys = [secondary] * (size > 1) + [zero[name] for name in _QUANTISED if _on(zero[name])]
    if keys and stage in (0, 1, 2):
        names = " and ".join(f"`{key.name}`" for key in keys)
        yield keys[0].finding(
            f"{names}: ZeRO++ works at stage 3 only; at stage {stage} DeepSpeed silently leaves it out",
            "use stage 3, or remove",
            [key.at(label="left out too") for key in keys[1:]],
            delete_all(keys, "remove the keys of ZeRO++"),
        )


@rule("ZC427", "secondary-shards-do-not-divide", Severity.ERROR, ZERO_SECTION, needs={"launch"})
def secondary_shards_do_not_divide(zero: Key) -> Iterator[Finding]:
    (key, size), ranks = _secondary(zero), processes(zero.run)
    if ranks is None or stage_of(zero.run) != 3 or size <= 1 or size > ranks or ranks % size == 0:
        return
    fitting = max(divisor for divisor in range(1, size) if ranks % divisor == 0)
    yield key.finding(
        f"`{key.name}` {size} does not divide the {ranks} ranks; DeepSpeed stops when the engine is built",
        "write the number of accelerators of one machine",
        fix=key.replace(str(fitting), f"write {fitting}", safe=False),
    )


@rule("ZC428", "secondary-shards-over-all-ranks", Severity.NOTE, ZERO_SECTION, needs={"launch"})
def secondary_shards_over_all_ranks(zero: Key) -> Iterator[Finding]:
    (key, size), ranks = _secondary(zero), processes(zero.run)
    if ranks is not None and stage_of(zero.run) == 3 and size > 1 and size >= ranks:
        yield key.finding(
            f"`{key.name}` {size} spans all {ranks} ranks: a second copy of the shards that saves no traffic",
            "remove it on one machine; on several, write the accelerators of one",
            fix=delete_all([key], "remove the key"),
        )


@rule("ZC429", "quantised-gradients-without-reduce-scatter", Severity.ERROR, ZERO_SECTION)
def quantised_gradients_without_reduce_scatter(zero: Key) -> Iterator[Finding]:
    key, scatter = zero["zero_quantized_gradients"], zero["reduce_scatter"]
    needed = zero.get("reduce_scatter", True)
    if stage_of(zero.run) != 3 or not _on(key) or needed is None or needed == "auto" or truth(needed):
        return
    yield key.finding(
        f"`{key.name}` needs `reduce_scatter`, which is off; DeepSpeed stops when the engine is built",
        'write "reduce_scatter": true',
        [scatter.at(label="switched off here")],
        scatter.set("true", "switch reduce_scatter on", safe=False),
    )


@rule(
    "ZC430",
    "secondary-shards-of-old-release",
    Severity.WARNING,
    ZERO_SECTION,
    needs={"versions"},
    versions="deepspeed<0.18.3",
)
def secondary_shards_of_old_release(zero: Key) -> Iterator[Finding]:
    (key, size), declared = _secondary(zero), zero.run.declared("deepspeed")
    if stage_of(zero.run) == 3 and size > 1 and admits(declared, below="0.18.3"):
        yield key.finding(
            f"`{key.name}` with DeepSpeed {declared}: before 0.18.3 the second copy of the parameters may be out of "
            "date after loading",
            "use 0.18.3 or later, or remove the key",
            fix=delete_all([key], "remove the key", safe=False),
        )
