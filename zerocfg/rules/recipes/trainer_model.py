"""ZC8xx: how the Trainer loads, compiles and checkpoints the model."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Example, Finding, Severity, rule
from zerocfg.rules.arguments import (
    RECIPE,
    drop_argument,
    given,
    reader,
    set_argument,
    under_deepspeed,
    value,
    word,
    written,
)
from zerocfg.rules.effects import stage_of, together
from zerocfg.rules.proof import crashes, shows
from zerocfg.run.model import Run


def _recipe(text: str, consumer: str = "transformers") -> Example:
    return Example({"recipe.yaml": RECIPE + text}, consumer=consumer)


@rule(
    "ZC814",
    "compiled-all-the-same",
    Severity.ERROR,
    bad=_recipe("torch_compile: false\ntorch_compile_backend: inductor\n").finds(
        "error", "recipe.yaml: torch_compile: false", also=("recipe.yaml: torch_compile_backend: inductor",)
    ),
    good=_recipe("torch_compile: false\n"),
    proof=shows("arguments", {"args.torch_compile": (True, False)}),
    fixable=True,
    references=("transformers/training_args.py@5.23.0",),
)
def compiled_all_the_same(run: Run) -> Iterator[Finding]:
    """`torch_compile: false` beside a mode or backend, which switches compilation on again.

    Somebody turned compilation off, to find a bug or because it does not work with his engine, and left the backend
    in place. The model is compiled all the same.

    What happens: TrainingArguments set `torch_compile` to true when `torch_compile_backend` or `torch_compile_mode` is
    written. Nothing is said.

    Fix: removes mode and backend, so that false holds.

    When to ignore: the model is meant to be compiled; then write `torch_compile: true`.
    """
    if reader(run) is None or value(run, "torch_compile") is not False:
        return
    names = [name for name in ("torch_compile_backend", "torch_compile_mode") if word(run, name)]
    if not names:
        return
    location, related = written(run, "torch_compile", *names)
    gone = "remove " + " and ".join(names)
    yield Finding(
        location,
        f"`torch_compile: false`, but `{names[0]}` is written, which turns compilation on again",
        gone,
        related,
        together(gone, *(drop_argument(run, name, "") for name in names)),
    )


@rule(
    "ZC815",
    "checkpointing-two-names",
    Severity.ERROR,
    bad=_recipe("gradient_checkpointing: true\nactivation_checkpointing: false\n").finds(
        "error", "recipe.yaml: gradient_checkpointing: true", also=("recipe.yaml: activation_checkpointing: false",)
    ),
    good=_recipe("activation_checkpointing: true\n"),
    proof=shows("step", {"model.checkpointing": (False, True)}),
    fixable=True,
    references=("transformers/training_args.py@5.23.0",),
)
def checkpointing_two_names(run: Run) -> Iterator[Finding]:
    """Activation checkpointing switched on under one of its names and off under the other.

    `gradient_checkpointing` is the old name of `activation_checkpointing`. When both are written the new one counts
    and the old one is dropped, so memory is not what the old line promises.

    What happens: `gradient_checkpointing` takes the value of `activation_checkpointing`; nothing is said.

    Fix: keeps the new name alone and switches it on, which needs less memory and more time; a choice, so it is unsafe.

    When to ignore: never for long; the old name goes away in transformers 6.
    """
    old, new = value(run, "gradient_checkpointing"), value(run, "activation_checkpointing")
    if reader(run) is None or not isinstance(old, bool) or not isinstance(new, bool) or old is new:
        return
    location, related = written(run, "gradient_checkpointing", "activation_checkpointing")
    fixes = [drop_argument(run, "gradient_checkpointing", "")]
    fixes += [] if new else [set_argument(run, "activation_checkpointing", "true", "")]
    yield Finding(
        location,
        f"`gradient_checkpointing: {_yaml(old)}` is not used: `activation_checkpointing: {_yaml(new)}` is the same "
        "setting under its new name, and it counts",
        "keep one of the two",
        related,
        together("switch it on under the new name alone", *fixes, safe=False),
    )


def _yaml(value: object) -> str:
    return str(value).lower()


@rule(
    "ZC816",
    "checkpointing-options-unused",
    Severity.WARNING,
    bad=_recipe("gradient_checkpointing_kwargs: {use_reentrant: false}\n").finds(
        "warning", "recipe.yaml: gradient_checkpointing_kwargs: {use_reentrant: false}"
    ),
    good=_recipe("gradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: false}\n"),
    proof=shows("step", {"model.checkpointing": (False, True)}),
    consumers={"transformers"},
    fixable=True,
    references=("transformers/training_args.py@5.23.0",),
)
def checkpointing_options_unused(run: Run) -> Iterator[Finding]:
    """Options of activation checkpointing without the switch that turns it on.

    The options look as if checkpointing were on. It is off by default in TrainingArguments, so every activation is
    kept and the first long batch may not fit. (TRL's trainers switch it on by themselves.)

    What happens: `gradient_checkpointing` stays false and the options are not used; nothing is said.

    Fix: writes `gradient_checkpointing: true`. It trades time for memory, so it is unsafe.

    When to ignore: the script calls `model.gradient_checkpointing_enable()` itself.
    """
    if reader(run) != "transformers":
        return
    names = [name for name in ("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs") if value(run, name)]
    switches = ("gradient_checkpointing", "activation_checkpointing")
    if not names or any(given(run, name) is not None for name in switches):
        return
    location, related = written(run, names[0])
    yield Finding(
        location,
        f"`{names[0]}` has no effect: checkpointing is off unless `{names[0].removesuffix('_kwargs')}` is true",
        f"write `{names[0].removesuffix('_kwargs')}: true`, or remove this",
        related,
        set_argument(run, names[0].removesuffix("_kwargs"), "true", "switch checkpointing on", after=names[0]),
    )


_ZERO3 = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", '
    '"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}\n'
)


@rule(
    "ZC826",
    "device-map-with-stage-3",
    Severity.ERROR,
    bad=Example({"recipe.yaml": RECIPE + "deepspeed: ds.json\ndevice_map: auto\n", "ds.json": _ZERO3}).finds(
        "error", "recipe.yaml: device_map: auto", 3
    ),
    good=Example({"recipe.yaml": RECIPE + "deepspeed: ds.json\n", "ds.json": _ZERO3}),
    proof=crashes("arguments", "DeepSpeed Zero-3 is not compatible with passing a `device_map`"),
    consumers={"transformers"},
    fixable=True,
    references=("transformers/modeling_utils.py@5.23.0",),
)
def device_map_with_stage_3(run: Run) -> Iterator[Finding]:
    """A `device_map` for a model that ZeRO stage 3 shards while it loads.

    A device map places whole layers on devices; stage 3 cuts every parameter into pieces for all of them. The line
    comes from a recipe for one accelerator.

    What happens: `ValueError: DeepSpeed Zero-3 is not compatible with passing a device_map`, when the script hands it
    to from_pretrained.

    Fix: removes it.

    When to ignore: the script does not use this key with DeepSpeed.
    """
    held = value(run, "device_map")
    if reader(run) != "transformers" or stage_of(run) != 3 or not under_deepspeed(run):
        return
    if not isinstance(held, (str, dict)) or not held or held == "null":
        return
    location, related = written(run, "device_map")
    yield Finding(
        location,
        "`device_map` and ZeRO stage 3 exclude each other; from_pretrained stops at it",
        "remove device_map",
        related,
        drop_argument(run, "device_map", "remove device_map", safe=True),
    )


RULES = (
    compiled_all_the_same,
    checkpointing_two_names,
    checkpointing_options_unused,
    device_map_with_stage_3,
)
