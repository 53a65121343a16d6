"""ZC9xx: memory of the accelerator that buys nothing: buffers, whole parameters, gradients that are not sharded."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Example, Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import accelerate_data, anchor, edited, effective, present, put, section, stage_of, together
from zerocfg.rules.offload.devices import number_of, on_host
from zerocfg.rules.proof import at_least, at_most, shows
from zerocfg.run.model import Run, Setting
from zerocfg.source.edit import delete_entry, replace_value

_DS = '{"train_micro_batch_size_per_gpu": 1, %s"zero_optimization": {"stage": %s}}\n'
_BF16 = '"bf16": {"enabled": true}, '
_FP32_SUMS = '"data_types": {"grad_accum_dtype": "fp32"}, '
_SAVED = '3, "stage3_gather_16bit_weights_on_model_save": true, "reduce_bucket_size": 1000000'
_YAML = (
    "distributed_type: DEEPSPEED\nnum_processes: %s\nmixed_precision: %s\n"
    "deepspeed_config:\n  zero_stage: %s\n  zero3_save_16bit_model: true\n"
)
_SMALL = "distributed_type: DEEPSPEED\nnum_processes: %s\nmixed_precision: %s\ndeepspeed_config:\n  zero_stage: %s\n"


def half(run: Run) -> bool | None:
    """Whether the model is trained in 16 bit; None when that is not known."""
    values = [effective(run, f"{name}.enabled") for name in ("bf16", "fp16")]
    if True in values:
        return True
    return False if all(value in (False, None) for value in values) else None


def replaced(setting: Setting | None, text: str, why: str) -> Fix | None:
    """Another value where the setting was written; None when it was not written in a file."""
    if setting is None or setting.origin.kind != "file":
        return None
    return edited(replace_value, setting.origin.file, setting.origin.path, text, why=why, safe=False)


@rule(
    "ZC901",
    "whole-gradients-in-fp32",
    Severity.WARNING,
    bad=Example({"ds.json": _DS % (_BF16 + _FP32_SUMS, 1)}, consumer="deepspeed").finds(
        "warning", 'ds.json: "grad_accum_dtype": "fp32"', 1, 4, 2, also=('ds.json: "stage": 1',)
    ),
    good=Example({"ds.json": _DS % (_BF16 + _FP32_SUMS, 2)}, consumer="deepspeed"),
    proof=shows(
        "step",
        {
            "engine.wrapper": ("BF16_Optimizer", "DeepSpeedZeroOptimizer"),
            "memory.step.bytes_per_parameter": (12.0, 8.0),
        },
        ranks=2,
    ),
    fixable=True,
    references=("deepspeed/runtime/bf16_optimizer.py@0.19.8",),
)
def whole_gradients_in_fp32(run: Run) -> Iterator[Finding]:
    """ZeRO stage 1 in bf16 that sums gradients in fp32: every rank keeps all of them for good.

    4 bytes a parameter that no number of ranks makes smaller: 26 GiB for a model of 7 billion parameters. Stage 2 sums
    in fp32 as well, for the rank's own share alone.

    What happens: with `grad_accum_dtype` fp32 DeepSpeed takes its BF16_Optimizer, which holds a flat fp32 buffer of
    all gradients, also between two steps. `reduce_bucket_size` and `overlap_comm` have no say there.

    Fix: stage 2.

    When to ignore: the gradients fit, and one reduction a step is worth more than the memory (stage 2 reduces after
    every micro batch).
    """
    word = section(run, "data_types").get("grad_accum_dtype")
    if run.deepspeed is None or not keeps_whole_gradients(run):
        return
    setting = run.effective.get("zero_optimization.stage")
    location, related = anchor(run, [setting.origin] if setting else [])
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
    return stage_of(run) == 1 and effective(run, "bf16.enabled") is True and not on_host(run, "offload_optimizer")


def without_buckets(run: Run) -> bool:
    """Whether gradients are sent as they are, so that no bucket is allocated."""
    off = section(run, "zero_optimization").get("contiguous_gradients") is False
    return (off and (stage_of(run) == 3 or not on_host(run, "offload_optimizer"))) or keeps_whole_gradients(run)


_ROOM = 3 * 2**30
_SPEC = (
    "version: 1\nruns:\n  sft:\n    consumer: deepspeed\n    script: train.py\n    deepspeed: ds.json\n"
    "    model: {parameters: 1300000000, hidden_size: 2048}\n    hardware: 8xRTX2080Ti\n"
)
_SCRIPT = "import deepspeed\n"
_HALF = '"fp16": {"enabled": true}, '


@rule(
    "ZC902",
    "reduce-buckets-of-many-gib",
    Severity.WARNING,
    bad=(
        Example({"ds.json": _DS % (_BF16, '2, "overlap_comm": true, "reduce_bucket_size": 1000000000')}).finds(
            "warning",
            'ds.json: "reduce_bucket_size": 1000000000',
            1000000000,
            2,
            "3.7",
            200000000,
            also=('ds.json: "overlap_comm": true',),
        ),
        Example(
            {
                "ds.json": _DS
                % (_BF16, '3, "stage3_gather_16bit_weights_on_model_save": true, "reduce_bucket_size": 2000000000')
            },
            consumer="deepspeed",
            proof=shows("init", {"memory.init": (at_least(4_000_000_000), at_most(1_000_000_000))}),
        ).finds("warning", 'ds.json: "reduce_bucket_size": 2000000000', 2000000000, 2, "3.7", 200000000),
        Example(
            {
                "zerocfg.yaml": _SPEC,
                "train.py": _SCRIPT,
                "ds.json": _DS % (_HALF, '2, "overlap_comm": true, "reduce_bucket_size": 500000000'),
            },
            proof=shows("step", {"memory.backward": (at_least(2_000_000_000), at_most(1_000_000_000))}),
        ).finds(
            "warning",
            'ds.json: "reduce_bucket_size": 500000000',
            500000000,
            2,
            "1.9",
            "10.8",
            200000000,
            also=('ds.json: "overlap_comm": true',),
        ),
    ),
    good=(
        Example({"ds.json": _DS % (_BF16, '2, "overlap_comm": true, "reduce_bucket_size": 200000000')}),
        Example(
            {
                "zerocfg.yaml": _SPEC,
                "train.py": _SCRIPT,
                "ds.json": _DS % (_HALF, '2, "overlap_comm": true, "reduce_bucket_size": 200000000'),
            },
        ),
    ),
    proof=shows("step", {"memory.backward": (at_least(4_000_000_000), at_most(1_000_000_000))}),
    fixable=True,
    references=("deepspeed/runtime/zero/stage_1_and_2.py@0.19.8", "deepspeed/runtime/zero/stage3.py@0.19.8"),
)
def reduce_buckets_of_many_gib(run: Run) -> Iterator[Finding]:
    """The buffers that gradients are sent through take more than 3 GiB of each accelerator, or a tenth of a small one.

    That memory is missing for activations, and a bucket of 200 million elements keeps a network as busy as one of a
    billion. Whoever switches `overlap_comm` on doubles it without having asked for memory.

    What happens: `reduce_bucket_size` counts elements. Stages 1 and 2 allocate it in full at each backward pass,
    twice with `overlap_comm`; stage 3 once and for good. Nobody looks at the size of the model. On an accelerator whose
    memory is known (a run of a spec), a tenth of it is told, also where the size is the default of 500 million.

    Fix: 200 million elements, or half of what is written.

    When to ignore: there is memory to spare.
    """
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
    location, related = anchor(run, [setting.origin, *([overlap.origin] if twice and overlap else [])])
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


@rule(
    "ZC903",
    "parameters-never-sharded",
    Severity.WARNING,
    bad=Example(
        {"ds.json": _DS % (_BF16, _SAVED + ', "stage3_param_persistence_threshold": 1000000000')},
        consumer="deepspeed",
    ).finds("warning", 'ds.json: "stage3_param_persistence_threshold": 1000000000', 1000000000, 100000),
    good=Example(
        {"ds.json": _DS % (_BF16, _SAVED + ', "stage3_param_persistence_threshold": 100000')}, consumer="deepspeed"
    ),
    proof=shows("step", {"memory.step.bytes_per_parameter": (11.9, 9.9)}, ranks=2),
    fixable=True,
    references=("deepspeed/runtime/zero/parameter_offload.py@0.19.8",),
)
def parameters_never_sharded(run: Run) -> Iterator[Finding]:
    """A persistence threshold so high that ZeRO-3 keeps every parameter whole on every rank.

    Stage 3 without what stage 3 is for: 2 bytes a parameter that no number of ranks makes smaller, with more messages
    than stage 2 needs.

    What happens: a parameter of no more elements than `stage3_param_persistence_threshold` stays gathered, from the
    first step on. The default is 100,000: norms and biases.

    Fix: removes the key, for its default.

    When to ignore: `stage3_model_persistence_threshold` bounds their sum in another layer of this config.
    """
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


@rule(
    "ZC904",
    "sharding-over-one-process",
    Severity.NOTE,
    bad=Example({"accelerate.yaml": _YAML % (1, "bf16", 3)}, consumer="accelerate").finds(
        "note", "accelerate.yaml: zero_stage: 3", 3, 0, 0, also=("accelerate.yaml: num_processes: 1",)
    ),
    good=Example({"accelerate.yaml": _SMALL % (1, "bf16", 0)}, consumer="accelerate"),
    proof=shows("step", {"memory.step.bytes_per_parameter": (at_least(17.0), 14.0)}),
    fixable=True,
)
def sharding_over_one_process(run: Run) -> Iterator[Finding]:
    """ZeRO stage 3 for a single process, with nothing offloaded.

    There is nobody to share with: parameters, gradients and states are all kept, and copied to and fro besides.

    What happens: more memory than without ZeRO. At stage 3 a process holds 16 bytes a parameter and its buckets
    between two steps, at stage 0 it holds 14.

    Fix: stage 0.

    When to ignore: the number of processes is raised on the launch line, or the file is shared with a larger job.
    """
    count = run.effective.get("num_processes")
    if stage_of(run) != 3 or count is None or count.value != 1 or count.origin.kind not in ("file", "flag"):
        return
    if effective(run, "engine") != "deepspeed" or any(
        on_host(run, part) for part in ("offload_optimizer", "offload_param")
    ):
        return
    setting = run.effective.get("zero_optimization.stage")
    location, related = anchor(
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


@rule(
    "ZC905",
    "fp32-at-stage-3",
    Severity.NOTE,
    bad=Example({"accelerate.yaml": _YAML % (2, "'no'", 3)}, consumer="accelerate").finds(
        "note", "accelerate.yaml: mixed_precision: 'no'", 3, 20, 16
    ),
    good=Example({"accelerate.yaml": _YAML % (2, "bf16", 3)}, consumer="accelerate"),
    proof=shows("init", {"memory.init": (at_least(2_000_000_000), at_most(1_100_000_000))}, ranks=2),
    fixable=True,
    references=("deepspeed/runtime/zero/stage3.py@0.19.8",),
)
def fp32_at_stage_3(run: Run) -> Iterator[Finding]:
    """ZeRO stage 3 with mixed precision written as off.

    Stage 3 is chosen for memory, and fp32 takes a quarter more of it than bf16, twice as much for activations and
    buckets, sends twice the bytes and leaves the fast units of the accelerator idle.

    What happens: a rank holds a share of 20 bytes a parameter, where bf16 takes 16: fp32 parameters, a second fp32
    copy of them as master weights, gradients and moments.

    Fix: bf16.

    When to ignore: the model needs fp32.
    """
    if stage_of(run) != 3 or half(run) is not False or effective(run, "engine") != "deepspeed":
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


RULES = (
    whole_gradients_in_fp32,
    reduce_buckets_of_many_gib,
    parameters_never_sharded,
    sharding_over_one_process,
    fp32_at_stage_3,
)
