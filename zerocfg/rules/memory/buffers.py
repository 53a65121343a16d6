"""ZC9xx: memory of the accelerator that buys nothing: buffers, whole parameters, gradients that are not sharded."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.effects import changed_before, deepspeed_data, effective_value, stage_of
from zerocfg.rules.fixes import together
from zerocfg.rules.key import Key, accelerate, deepspeed, finding_at, setting
from zerocfg.rules.offload.devices import number_of, on_host
from zerocfg.rules.subjects import ZERO_SECTION, in_accelerate
from zerocfg.run.model import Run

_HALVES = ("bf16", "fp16")


def half(run: Run) -> bool | None:
    """Whether the model is trained in 16 bit; None when that is not known, as of a config that says nothing about it
    and is completed by a script, or by whoever reads it."""
    values = [effective_value(run, f"{name}.enabled") for name in _HALVES]
    if True in values:
        return True
    if run.deepspeed is not None and (run.consumer is None or changed_before(run)):
        said = deepspeed_data(run)
        if not any(name in said for name in _HALVES):
            return None
    return False if all(value in (False, None) for value in values) else None


@rule("ZC901", "whole-gradients-in-fp32", Severity.WARNING, WHOLE_RUN)
def whole_gradients_in_fp32(run: Run) -> Iterator[Finding]:
    if not keeps_whole_gradients(run):
        return
    key, stage = deepspeed(run, "data_types", "grad_accum_dtype"), setting(run, "zero_optimization.stage")
    parameters = run.model.parameters if run.model else None
    size = f" ({4 * parameters / 2**30:.1f} GiB)" if parameters else ""
    yield key.finding(
        f"at stage 1 in bf16, `grad_accum_dtype: {key.value}` keeps all gradients in fp32 on every rank, 4 bytes a "
        f"parameter{size}",
        "use stage 2, which keeps the share of the rank",
        [stage],
        fix=stage.replace("2", "shard the gradients", safe=False),
    )


def keeps_whole_gradients(run: Run) -> bool:
    """Whether DeepSpeed takes its BF16_Optimizer, which has no buckets."""
    word = deepspeed(run, "data_types", "grad_accum_dtype").value
    if not isinstance(word, str) or word.lower() not in ("fp32", "float32", "float"):
        return False
    return stage_of(run) == 1 and effective_value(run, "bf16.enabled") is True and not on_host(run, "offload_optimizer")


def without_buckets(run: Run) -> bool:
    """Whether gradients are sent as they are, so that no bucket is allocated."""
    off = deepspeed(run, "zero_optimization", "contiguous_gradients").value is False
    return (off and (stage_of(run) == 3 or not on_host(run, "offload_optimizer"))) or keeps_whole_gradients(run)


_ROOM = 3 * 2**30


@rule("ZC902", "reduce-buckets-of-many-gib", Severity.WARNING, WHOLE_RUN)
def reduce_buckets_of_many_gib(run: Run) -> Iterator[Finding]:
    key, stage = setting(run, "zero_optimization.reduce_bucket_size"), stage_of(run)
    bucket = number_of(key.value)
    room = run.hardware.memory_gib if run.hardware else None
    if not bucket or stage not in (1, 2, 3) or without_buckets(run):
        return
    if key.origin.kind != "file" and room is None:
        return
    parameters = run.model.parameters if run.model else None
    if parameters and bucket > parameters:
        return  # larger than the model: a rule of its own
    overlap = setting(run, "zero_optimization.overlap_comm")
    twice = stage < 3 and overlap.value is True
    width = 4 if half(run) is False else 2
    size = bucket * width * (2 if twice else 1)
    if size < min(_ROOM, (room or float("inf")) * 2**30 / 10):
        return
    enough = str(min(200_000_000, int(bucket) // 2))
    place = key if key.origin.kind == "file" else deepspeed(run, "zero_optimization", "reduce_bucket_size")
    yield finding_at(
        run,
        [key, overlap] if twice else [key],
        f"`reduce_bucket_size` {show(key.value)} elements of {width} bytes"
        + (", twice because of overlap_comm," if twice else "")
        + f" take {size / 2**30:.1f}"
        + (f" of the {room:.1f}" if room else "")
        + " GiB of each accelerator",
        f"{enough} is plenty",
        place.set(enough, "a smaller bucket", safe=False),
        severity=None if room else Severity.NOTE,  # whoever knows the card may have chosen it for that
    )


def _either(section: Key, *names: str) -> Key:
    """The key under the first of its names that is written."""
    return next((section[name] for name in names if name in section), section[names[0]])


@rule("ZC903", "parameters-never-sharded", Severity.WARNING, ZERO_SECTION)
def parameters_never_sharded(zero: Key) -> Iterator[Finding]:
    key = _either(zero, "stage3_param_persistence_threshold", "param_persistence_threshold")
    limit = _either(zero, "stage3_model_persistence_threshold", "model_persistence_threshold")
    threshold, largest = number_of(key.value), zero.run.model.largest_parameter if zero.run.model else None
    if (
        threshold is None
        or limit.value is not None
        or stage_of(zero.run) != 3
        or threshold < (largest or 1_000_000_000)
    ):
        return
    which = (
        f"the largest parameter of {zero.run.model.name} ({largest:,} elements)" if zero.run.model and largest else None
    )
    yield key.finding(
        f"`{key.name}` {show(key.value)} is "
        + (f"not below {which}" if which else "more than the elements of nearly any parameter")
        + ": every rank keeps the whole model",
        "leave it at its default, 100000",
        fix=key.delete("the default threshold", safe=False),
    )


@rule("ZC904", "sharding-over-one-process", Severity.NOTE, WHOLE_RUN)
def sharding_over_one_process(run: Run) -> Iterator[Finding]:
    count, stage = setting(run, "num_processes"), setting(run, "zero_optimization.stage")
    if stage_of(run) != 3 or count.value != 1 or count.origin.kind not in ("file", "flag"):
        return
    if effective_value(run, "engine") != "deepspeed":
        return
    if on_host(run, "offload_optimizer") or on_host(run, "offload_param"):
        return
    why = "no ZeRO"
    unread = [accelerate(run, "deepspeed_config", name) for name in ("zero3_init_flag", "zero3_save_16bit_model")]
    edits = [stage.replace("0", why, safe=False), *(key.delete(why) for key in unread if key)]
    yield finding_at(
        run,
        (stage, count),
        "ZeRO stage 3 for one process has nobody to share with, and nothing is offloaded: more memory than stage 0",
        "use stage 0, or offload",
        together(why, *edits, safe=False),
    )


@rule("ZC905", "fp32-at-stage-3", Severity.NOTE, in_accelerate("mixed_precision"))
def fp32_at_stage_3(key: Key) -> Iterator[Finding]:
    if (
        key.value not in ("no", False)
        or key.run.deepspeed is not None
        or stage_of(key.run) != 3
        or half(key.run) is not False
    ):
        return
    if effective_value(key.run, "engine") != "deepspeed":
        return
    asked = key.run.effective.get("mixed_precision")
    if asked is None or asked.origin.kind in ("file", "computed"):
        yield key.finding(
            "ZeRO stage 3 in fp32: 20 bytes a parameter over all ranks and buckets of twice the size, where bf16 takes "
            "16",
            "mixed_precision: bf16",
            fix=key.replace("bf16", "train in bf16", safe=False),
        )
