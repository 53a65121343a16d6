"""ZC306, ZC320, ZC321, ZC326 to ZC328: the bf16 section, and master weights and optimizer states in 16 bits."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Example, Finding, Severity, rule
from zerocfg.rules.effects import TRAINERS, edited, effective, failures, section, stage_of, together, told
from zerocfg.rules.precision.dtypes import about, accumulation, precision_of, without
from zerocfg.rules.proof import crashes, shows
from zerocfg.run.engine import truth
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, rename_key, replace_value

_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": %s}%s}\n'
_BF16 = ', "bf16": {"enabled": true}'
_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\nbf16: true\ndeepspeed: ds.json\n"
_TWO_ON_HOST = '2, "offload_optimizer": {"device": "cpu"}'
_AUTO = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", '
    '"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": "auto", %s}%s}\n'
)
_MASTER_STATES = '"bf16_master_weights_and_grads": true, "bf16_optimizer_states": true'
_MASTERS = {"bf16": "bf16_master_weights_and_grads", "fp16": "fp16_master_weights_and_grads"}


@rule(
    "ZC306",
    "master-weights-not-possible",
    Severity.ERROR,
    bad=Example(
        {
            "ds.json": '{"train_micro_batch_size_per_gpu": 1, '
            '"bf16": {"enabled": true, "bf16_master_weights_and_grads": true}}\n'
        },
        consumer="deepspeed",
    ).finds("error", 'ds.json: "bf16_master_weights_and_grads": true', 1, 2, 3),
    good=Example({"ds.json": _DS % (2, _BF16)}, consumer="deepspeed"),
    proof=crashes("parse", "only supported with ZeRO Stage 1, 2, or 3"),
    fixable=True,
)
def master_weights_not_possible(run: Run) -> Iterator[Finding]:
    """16-bit master weights or optimizer states without what they need.

    `bf16_master_weights_and_grads` and its fp16 twin need ZeRO stage 1, 2 or 3, whose optimizer keeps the master
    weights; `bf16_optimizer_states` needs `bf16_master_weights_and_grads`. Before DeepSpeed 0.18.3 there is the fp16
    key alone, and it needs stage 2.

    What happens: DeepSpeed refuses the config with an AssertionError: `Bf16_master_weights_and_grads is only supported
    with ZeRO Stage 1, 2, or 3.`

    Fix: removes the key; master weights and optimizer states are then fp32.
    """
    for failure in failures(run, "ZC306"):
        finding = told(run, failure)
        place = failure.places[0]
        finding.fix = edited(delete_entry, place.file, place.path, why="keep the states in fp32", safe=False)
        yield finding


@rule(
    "ZC321",
    "bfloat16-section-ignored",
    Severity.ERROR,
    bad=(
        Example(
            {"ds.json": _DS % (1, ', "bf16": {"enabled": false}, "bfloat16": {"enabled": true}')},
            consumer="deepspeed",
        ).finds("error", 'ds.json: "bfloat16": {"enabled": true}'),
        Example(
            {
                "accelerate.yaml": "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n"
                "  deepspeed_config_file: ds.json\n",
                "ds.json": '{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, '
                '"zero_optimization": {"stage": 2}, "bfloat16": {"enabled": true}}\n',
            },
            consumer="accelerate",
        ).finds("error", 'ds.json: "bfloat16": {"enabled": true}'),
    ),
    good=Example({"ds.json": _DS % (1, ', "bf16": {"enabled": true}')}, consumer="deepspeed"),
    proof=shows("parse", {"engine.dtype": ("float32", "bfloat16")}),
    fixable=True,
    references=("deepspeed/runtime/precision_config.py@0.19.8",),
)
def bfloat16_section_ignored(run: Run) -> Iterator[Finding]:
    """A `bfloat16` section that is not looked at, because a `bf16` section stands or is put beside it.

    `bfloat16` is the old name of the section. DeepSpeed reads it only when there is no `bf16`; transformers and
    accelerate know the new name alone and write a `bf16` section of their own into every config.

    What happens: nothing is said, and the job trains in what `bf16` says: in fp32, with twice the memory, unless bf16
    is asked for in another place too.

    Fix: removes the `bfloat16` section where `bf16` stands beside it and, when the two disagree, switches `bf16` on;
    without `bf16` it gives the section the new name.

    When to ignore: never; two sections that say the same are no better than one.
    """
    old, new = section(run, "bfloat16").get("enabled"), section(run).get("bf16")
    beside = isinstance(new, dict)
    said = new.get("enabled") if isinstance(new, dict) else None
    if old is not True or run.deepspeed is None or (not beside and run.consumer not in (*TRAINERS, "accelerate")):
        return
    path = ("bfloat16",)
    if beside:
        lost = run.consumer == "deepspeed" and not truth(said)
        message = "the section `bfloat16` is not read beside `bf16`"
        fix = edited(delete_entry, run.deepspeed, path, why="remove the section that is not read")
        on = edited(replace_value, run.deepspeed, ("bf16", "enabled"), "true", why="switch bf16 on")
        if lost:
            fix = together("switch bf16 on and remove `bfloat16`", on, fix, safe=False)
    else:
        lost = effective(run, "mixed_precision") not in ("bf16", "fp16")
        message = "transformers and accelerate do not read `bfloat16`, and add a `bf16` section of their own"
        fix = edited(rename_key, run.deepspeed, path, "bf16", why="give the section its name of today")
    yield about(
        run,
        path,
        message + (": the job trains in fp32" if lost else ""),
        "use `bf16`",
        fix=fix if beside or run.consumer == "accelerate" else None,
        severity=None if lost else Severity.NOTE,
    )


def _masters(run: Run) -> Iterator[tuple[str, str]]:
    """Section and key of the 16-bit master weights that are switched on."""
    return ((kind, key) for kind, key in _MASTERS.items() if truth(section(run, kind).get(key)))


@rule(
    "ZC326",
    "master-weights-without-offload",
    Severity.ERROR,
    bad=(
        Example(
            {"ds.json": _DS % (2, ', "bf16": {"enabled": true, "bf16_master_weights_and_grads": true}')},
            consumer="deepspeed",
        ).finds("error", 'ds.json: "bf16_master_weights_and_grads": true'),
        Example(
            {
                "ds.json": _DS
                % (
                    _TWO_ON_HOST,
                    ', "bf16": {"enabled": true, "bf16_master_weights_and_grads": true}, "optimizer": {"type": '
                    '"AdamW", "params": {"lr": 1e-4, "torch_adam": true}}',
                )
            },
            consumer="deepspeed",
        ).finds("error", 'ds.json: "bf16_master_weights_and_grads": true'),
    ),
    good=Example(
        {"ds.json": _DS % (_TWO_ON_HOST, ', "bf16": {"enabled": true, "bf16_master_weights_and_grads": true}')},
        consumer="deepspeed",
    ),
    proof=crashes("init", "Master weights feature requires ZeRO-2 Offload with DeepSpeedCPUAdam"),
    fixable=True,
    references=("deepspeed/runtime/zero/stage_1_and_2.py@0.19.8", "deepspeed/runtime/zero/stage3.py@0.19.8"),
    versions="deepspeed>=0.18.3",
)
def master_weights_without_offload(run: Run) -> Iterator[Finding]:
    """16-bit master weights without DeepSpeed's Adam on the processor.

    Master weights in 16 bits were made for the optimizer on the host, DeepSpeedCPUAdam. Without optimizer offload to
    "cpu", or with `torch_adam` or another optimizer, only bf16 masters together with `bf16_optimizer_states` are
    possible.

    What happens: `deepspeed.initialize` stops with `AssertionError: Master weights feature requires ZeRO-2 Offload
    with DeepSpeedCPUAdam.`

    Fix: removes the key, so that master weights are fp32.
    """
    device = effective(run, "zero_optimization.offload_optimizer.device")
    optimizer = section(run, "optimizer")
    kind = optimizer.get("type")
    other = isinstance(kind, str) and kind.lower() not in ("adam", "adamw", "auto")
    torch_adam = section(run, "optimizer", "params").get("torch_adam") is True
    if stage_of(run) not in (1, 2, 3) or not (device == "none" or (device == "cpu" and (other or torch_adam))):
        return
    for mode, key in _masters(run):
        if mode == "bf16" and truth(section(run, "bf16").get("bf16_optimizer_states")):
            continue
        cause = "the optimizer is not offloaded to the processor" if device == "none" else "the optimizer is another"
        yield about(
            run,
            (mode, key),
            f"`{key}` needs DeepSpeedCPUAdam, DeepSpeed's Adam on the processor, but {cause}; DeepSpeed stops at it",
            'offload the optimizer to "cpu" with AdamW, or leave the key out'
            + (", or add `bf16_optimizer_states`" if mode == "bf16" and device == "none" else ""),
            fix=without(run, (mode, key), "keep master weights in fp32"),
        )


@rule(
    "ZC327",
    "bf16-states-of-the-trainer-offloaded",
    Severity.ERROR,
    bad=Example(
        {
            "recipe.yaml": _RECIPE,
            "ds.json": _AUTO % (_MASTER_STATES, ""),
        },
        consumer="transformers",
    ).finds("error", 'ds.json: "bf16_optimizer_states": true'),
    good=Example(
        {
            "recipe.yaml": _RECIPE,
            "ds.json": _AUTO % (_MASTER_STATES, ', "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}'),
        },
        consumer="transformers",
    ),
    proof=crashes("init", "requires DeepSpeedCPUAdam constructed with fp32_optimizer_states=False"),
    consumers=TRAINERS,
    fixable=True,
    versions="deepspeed>=0.19.1",
)
def bf16_states_of_the_trainer_offloaded(run: Run) -> Iterator[Finding]:
    """bf16 optimizer states with offload need an optimizer that the DeepSpeed config describes.

    accelerate replaces the Trainer's optimizer by DeepSpeedCPUAdam when the optimizer is offloaded, but makes it with
    fp32 states. Only DeepSpeed itself, when it builds the optimizer from its own config, makes it with bf16 states.

    What happens: the engine is not built: `AssertionError: bf16_optimizer_states with ZeRO-Offload requires
    DeepSpeedCPUAdam constructed with fp32_optimizer_states=False`.

    Fix: removes `bf16_optimizer_states`; the moments of Adam then stay fp32. The other way out is an `optimizer`
    section of type AdamW.
    """
    path = ("bf16", "bf16_optimizer_states")
    written = section(run, "bf16")
    if not truth(written.get(path[1])) or not truth(written.get(_MASTERS["bf16"])) or "optimizer" in section(run):
        return
    if stage_of(run) in (1, 2, 3) and effective(run, "zero_optimization.offload_optimizer.device") == "cpu":
        yield about(
            run,
            path,
            "bf16 optimizer states with offload, but the optimizer is the Trainer's, which gets fp32 states; DeepSpeed "
            "stops at the difference",
            "describe the optimizer in the DeepSpeed config, or leave this key out",
            fix=without(run, path, "keep the optimizer states in fp32"),
        )


@rule(
    "ZC328",
    "master-weights-of-another-mode",
    Severity.ERROR,
    bad=Example(
        {"ds.json": _DS % (_TWO_ON_HOST, ', "bf16": {"enabled": false, "bf16_master_weights_and_grads": true}')},
        consumer="deepspeed",
    ).finds("error", 'ds.json: "bf16_master_weights_and_grads": true'),
    good=Example({"ds.json": _DS % (_TWO_ON_HOST, "")}, consumer="deepspeed"),
    proof=shows(
        "init",
        {"engine.dtype": ("float32",) * 2, "optimizer.master_weights_and_grads_dtype": ("bfloat16", "float32")},
        extent="the dtype of the master weights of the optimizer that was built; what rounding does to a "
        "training was not measured.",
    ),
    fixable=True,
    versions="deepspeed>=0.18.3",
)
def master_weights_of_another_mode(run: Run) -> Iterator[Finding]:
    """16-bit master weights of a precision that is switched off take effect all the same.

    Setting `enabled` to false reads as if the whole section were off. This key is looked at on its own, and an fp32 or
    fp16 model is then updated in bf16 (or the other way round), with 8 bits of mantissa.

    What happens: no message. Weights and gradients of the optimizer are 16-bit, and small updates are rounded away.

    Fix: removes the key; the optimizer then works in fp32.

    When to ignore: you want 16-bit master weights under this precision, and compared the loss.
    """
    mode = precision_of(run)
    device = effective(run, "zero_optimization.offload_optimizer.device")
    for kind, key in _masters(run):
        states = kind == "bf16" and truth(section(run, kind).get("bf16_optimizer_states"))
        if mode is None or mode == kind or stage_of(run) not in (1, 2, 3) or not (device == "cpu" or states):
            continue
        yield about(
            run,
            (kind, key),
            f"the model trains in {mode}, not {kind}, but `{key}` counts all the same: the optimizer keeps its "
            f"weights in {kind}",
            "leave the key out",
            fix=without(run, (kind, key), "keep master weights in fp32"),
        )


@rule(
    "ZC320",
    "immediate-update-unused",
    Severity.NOTE,
    bad=Example(
        {"ds.json": _DS % (2, ', "bf16": {"enabled": true, "immediate_grad_update": true}')}, consumer="deepspeed"
    ).finds("note", 'ds.json: "immediate_grad_update": true', 2),
    good=Example({"ds.json": _DS % (2, _BF16)}, consumer="deepspeed"),
    proof=shows(
        "step",
        {
            "engine.bfloat16_config.immediate_grad_update": (True, False),
            "uses.bfloat16_config.immediate_grad_update": (0, 0),
        },
    ),
    fixable=True,
    references=("deepspeed/runtime/bf16_optimizer.py@0.19.8",),
)
def immediate_update_unused(run: Run) -> Iterator[Finding]:
    """`bf16.immediate_grad_update` in a run whose optimizer does not know it.

    Only `BF16_Optimizer` looks at the key, and that is used for stage 1 with fp32 accumulation and in pipelines.

    What happens: nothing; the key is accepted and has no effect.

    Fix: removes the key.

    When to ignore: the same file is used with pipeline parallelism.
    """
    path = ("bf16", "immediate_grad_update")
    stage = stage_of(run)
    if not truth(section(run, "bf16").get(path[1])) or precision_of(run) is None or section(run, "pipeline"):
        return
    if stage in (2, 3) or (stage == 1 and precision_of(run) == "bf16" and accumulation(run) != "fp32"):
        yield about(
            run,
            path,
            f"`immediate_grad_update` has no effect at stage {stage}"
            + ("" if stage != 1 else " without fp32 accumulation"),
            "leave it out",
            fix=edited(delete_entry, run.deepspeed, path, why="remove the key without effect"),
        )


RULES = (
    master_weights_not_possible,
    immediate_update_unused,
    bfloat16_section_ignored,
    master_weights_without_offload,
    bf16_states_of_the_trainer_offloaded,
    master_weights_of_another_mode,
)
