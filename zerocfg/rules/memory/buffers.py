"""ZC9xx: memory of the accelerator that buys nothing: buffers, whole parameters, gradients that are not sharded."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import accelerate_data, effective_value, section, stage_of
from zerocfg.rules.failures import primary_location
from zerocfg.rules.fixes import edited, present, put, together
from zerocfg.rules.offload.devices import number_of, on_host
from zerocfg.run.model import Run, Setting
from zerocfg.source.edit import delete_entry, replace_value


def half(run: Run) -> bool | None:
    """Whether the model is trained in 16 bit; None when that is not known."""
    values = [effective_value(run, f"{name}.enabled") for name in ("bf16", "fp16")]
    if True in values:
        return True
    return False if all(value in (False, None) for value in values) else None


def replaced(setting: Setting | None, text: str, why: str) -> Fix | None:
    """Another value where the setting was written; None when it was not written in a file."""
    if setting is None or setting.origin.kind != "file":
        return None
    return edited(replace_value, setting.origin.file, setting.origin.path, text, why=why, safe=False)


@rule("ZC901", "whole-gradients-in-fp32", Severity.WARNING)
def whole_gradients_in_fp32(run: Run) -> Iterator[Finding]:
    word = section(run, "data_types").get("grad_accum_dtype")
    if run.deepspeed is None or not keeps_whole_gradients(run):
        return
    setting = run.effective.get("zero_optimization.stage")
    location, related = primary_location(run, [setting.origin] if setting else [])
    parameters = run.model.parameters if run.model else None
    size = f" ({4 * parameters / 2**30:.1f} GiB)" if parameters else ""
    yield Finding(
        Location(run.deepspeed, ("data_types", "grad_accum_dtype")),
        f"at stage 1 in bf16, `grad_accum_dtype: {word}` keeps all gradients in fp32 on every rank, 4 bytes a "
        f"parameter{size}",
        "use stage 2, which keeps the share of the rank",
        [location, *related],
        fix=replaced(setting, "2", "shard the gradients"),
    )


def keeps_whole_gradients(run: Run) -> bool:
    """Whether DeepSpeed takes its BF16_Optimizer, which has no buckets."""
    word = section(run, "data_types").get("grad_accum_dtype")
    if not isinstance(word, str) or word.lower() not in ("fp32", "float32", "float"):
        return False
    return stage_of(run) == 1 and effective_value(run, "bf16.enabled") is True and not on_host(run, "offload_optimizer")


def without_buckets(run: Run) -> bool:
    """Whether gradients are sent as they are, so that no bucket is allocated."""
    off = section(run, "zero_optimization").get("contiguous_gradients") is False
    return (off and (stage_of(run) == 3 or not on_host(run, "offload_optimizer"))) or keeps_whole_gradients(run)


_ROOM = 3 * 2**30


@rule("ZC902", "reduce-buckets-of-many-gib", Severity.WARNING)
def reduce_buckets_of_many_gib(run: Run) -> Iterator[Finding]:
    setting, stage = run.effective.get("zero_optimization.reduce_bucket_size"), stage_of(run)
    bucket = number_of(setting.value) if setting else None
    room = run.hardware.memory_gib if run.hardware else None
    if setting is None or not bucket or stage not in (1, 2, 3) or without_buckets(run):
        return
    if setting.origin.kind != "file" and room is None:
        return
    parameters = run.model.parameters if run.model else None
    if parameters and bucket > parameters:
        return  # larger than the model: a rule of its own
    overlap = run.effective.get("zero_optimization.overlap_comm")
    twice = stage < 3 and overlap is not None and overlap.value is True
    width = 4 if half(run) is False else 2
    size = bucket * width * (2 if twice else 1)
    if size < min(_ROOM, (room or float("inf")) * 2**30 / 10):
        return
    enough = str(min(200_000_000, int(bucket) // 2))
    location, related = primary_location(run, [setting.origin, *([overlap.origin] if twice and overlap else [])])
    yield Finding(
        location,
        f"`reduce_bucket_size` {show(setting.value)} elements of {width} bytes"
        + (", twice because of overlap_comm," if twice else "")
        + f" take {size / 2**30:.1f}"
        + (f" of the {room:.1f}" if room else "")
        + " GiB of each accelerator",
        f"{enough} is plenty",
        related,
        fix=put(
            setting.origin.file or run.deepspeed,
            setting.origin.path if setting.origin.kind == "file" else ("zero_optimization", "reduce_bucket_size"),
            enough,
            why="a smaller bucket",
        ),
    )


_THRESHOLD = ("stage3_param_persistence_threshold", "param_persistence_threshold")
_LIMIT = ("stage3_model_persistence_threshold", "model_persistence_threshold")


def _written(section_data: dict[str, object], names: tuple[str, ...]) -> tuple[str, object]:
    return next(((name, section_data[name]) for name in names if name in section_data), (names[0], None))


@rule("ZC903", "parameters-never-sharded", Severity.WARNING)
def parameters_never_sharded(run: Run) -> Iterator[Finding]:
    zero = section(run, "zero_optimization")
    name, value = _written(zero, _THRESHOLD)
    threshold, limit = number_of(value), _written(zero, _LIMIT)[1]
    largest = run.model.largest_parameter if run.model else None
    if run.deepspeed is None or threshold is None or limit is not None or stage_of(run) != 3:
        return
    if threshold < (largest or 1_000_000_000):
        return
    which = f"the largest parameter of {run.model.name} ({largest:,} elements)" if run.model and largest else None
    path = ("zero_optimization", name)
    yield Finding(
        Location(run.deepspeed, path),
        f"`{name}` {show(value)} is "
        + (f"not below {which}" if which else "more than the elements of nearly any parameter")
        + ": every rank keeps the whole model",
        "leave it at its default, 100000",
        fix=edited(delete_entry, run.deepspeed, path, why="the default threshold", safe=False),
    )


@rule("ZC904", "sharding-over-one-process", Severity.NOTE)
def sharding_over_one_process(run: Run) -> Iterator[Finding]:
    count = run.effective.get("num_processes")
    if stage_of(run) != 3 or count is None or count.value != 1 or count.origin.kind not in ("file", "flag"):
        return
    if effective_value(run, "engine") != "deepspeed" or any(
        on_host(run, part) for part in ("offload_optimizer", "offload_param")
    ):
        return
    setting = run.effective.get("zero_optimization.stage")
    location, related = primary_location(
        run, [origin for origin in ((setting.origin if setting else None), count.origin) if origin]
    )
    yield Finding(
        location,
        "ZeRO stage 3 for one process has nobody to share with, and nothing is offloaded: more memory than stage 0",
        "use stage 0, or offload",
        related,
        fix=_without_zero(run, setting),
    )


def _without_zero(run: Run, setting: Setting | None) -> Fix | None:
    """Stage 0, and without the keys of the accelerate config that only stage 3 reads."""
    why = "no ZeRO"
    fix = replaced(setting, "0", why)
    for name in ("zero3_init_flag", "zero3_save_16bit_model"):
        path = ("deepspeed_config", name)
        if fix is not None and present(run.accelerate, path):
            fix = together(why, fix, edited(delete_entry, run.accelerate, path, why=why), safe=False)
    return fix


@rule("ZC905", "fp32-at-stage-3", Severity.NOTE)
def fp32_at_stage_3(run: Run) -> Iterator[Finding]:
    if stage_of(run) != 3 or half(run) is not False or effective_value(run, "engine") != "deepspeed":
        return
    if run.accelerate is None or run.deepspeed is not None:
        return
    if accelerate_data(run).get("mixed_precision") not in ("no", False):
        return
    setting = run.effective.get("mixed_precision")
    if setting is not None and setting.origin.kind not in ("file", "computed"):
        return
    yield Finding(
        Location(run.accelerate, ("mixed_precision",)),
        "ZeRO stage 3 in fp32: 20 bytes a parameter over all ranks and buckets of twice the size, where bf16 takes 16",
        "mixed_precision: bf16",
        fix=edited(replace_value, run.accelerate, ("mixed_precision",), "bf16", why="train in bf16", safe=False),
    )
