"""ZC207 to ZC211: values that somebody wrote, and of which the job silently gets others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zerocfg.catalog.values import show
from zerocfg.catalog.versions import Release, only_below, text
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import (
    TRAINERS,
    accelerate_section,
    admitted,
    admitting,
    anchor,
    deepspeed_data,
    edited,
    failures,
    giving,
    replace_at,
    words,
)
from zerocfg.rules.proof import crashes, shows
from zerocfg.run.arguments import arguments_of
from zerocfg.run.model import Run
from zerocfg.run.parser import parser_of
from zerocfg.run.script import accelerator
from zerocfg.source.edit import delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path

_CLIPS_SINCE = "0.19.3"
"""The release of DeepSpeed from which an absent `gradient_clipping` is 1.0; before, it was no clipping."""

_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n"
_DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    '"zero_optimization": {"stage": 2}%s}\n'
)
_SCHEDULER = (
    ', "gradient_clipping": "auto", "optimizer": {"type": "%s", "params": {"lr": "auto"}}, '
    '"zero_allow_untested_optimizer": true'
)
_FILE = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
_DS_OWN = '{"train_micro_batch_size_per_gpu": "auto", %s"zero_optimization": {"stage": 2}}\n'
_OWN_LOOP = "accelerate launch --config_file accelerate.yaml train.py --gradient_accumulation_steps 2\n"
_SCRIPT = {"train.sh": _OWN_LOOP, "recipe.yaml": "gradient_accumulation_steps: 2\n"}
_STEPS = "gradient_accumulation_steps"
_IN_YAML: Path = ("deepspeed_config", _STEPS)
_YAML = (
    "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  zero_stage: 2\n"
    "  gradient_accumulation_steps: %s\n"
)


@rule(
    "ZC207",
    "accumulation-auto-without-trainer",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": _YAML % "auto"}, consumer="accelerate").finds(
        "error", "accelerate.yaml: gradient_accumulation_steps: auto"
    ),
    good=Example({"accelerate.yaml": _YAML % 2}, consumer="accelerate"),
    proof=crashes("arguments", "invalid literal for int.. with base 10: 'auto'"),
    consumers={"accelerate"},
    fixable=True,
    references=("accelerate/accelerator.py@1.15.0",),
)
def accumulation_auto_without_trainer(run: Run) -> Iterator[Finding]:
    """`gradient_accumulation_steps: auto` in the accelerate config of a script with its own loop.

    The same line works under the Trainer, and accelerate's own guide shows it, so it is copied into the configs of
    scripts that it stops at once.

    What happens: `Accelerator()` calls int() on the exported text: `ValueError: invalid literal for int() with base
    10: 'auto'`. Only the Trainer understands "auto" here; a DeepSpeed JSON may hold it in both cases.

    Fix: removes the key: the number that the script gives to `Accelerator()` then counts.
    """
    value = accelerate_section(run).get(_STEPS)
    auto = value == "auto"
    if isinstance(value, float):
        return  # ZC104 says it
    for failure in failures(run, "ZC207"):
        location, related = anchor(run, failure.places)
        yield Finding(
            location,
            f"{failure.message} and stops: only the Trainer fills an accumulation that is no whole number",
            "write a whole number, or leave the key out: the script's own number then counts",
            related,
            edited(delete_entry, run.accelerate, _IN_YAML, why="leave it to the script") if auto else None,
        )


@rule(
    "ZC208",
    "accumulation-two-numbers",
    Severity.WARNING,
    bad=(
        Example({"accelerate.yaml": _YAML % 4, **_SCRIPT}, consumer="accelerate").finds(
            "warning",
            "accelerate.yaml: gradient_accumulation_steps: 4",
            4,
            2,
            also=("train.sh: --gradient_accumulation_steps 2",),
        ),
        Example(
            {"accelerate.yaml": _FILE, "ds.json": _DS_OWN % "", **_SCRIPT},
            consumer="accelerate",
            proof=shows("parse", {"engine.gradient_accumulation_steps": (1, 2)}),
        ).finds("warning", "ds.json", 1, 2, also=("train.sh: --gradient_accumulation_steps 2",)),
    ),
    good=(
        Example({"accelerate.yaml": _YAML % 2, **_SCRIPT}, consumer="accelerate"),
        Example(
            {"accelerate.yaml": _FILE, "ds.json": _DS_OWN % '"gradient_accumulation_steps": "auto", ', **_SCRIPT},
            consumer="accelerate",
        ),
    ),
    proof=shows("arguments", {"args.gradient_accumulation_steps": (4, 2)}),
    fixable=True,
    references=("accelerate/accelerator.py@1.15.0", "huggingface/accelerate#3369"),
)
def accumulation_two_numbers(run: Run) -> Iterator[Finding]:
    """The config and the script's option name different numbers for gradient accumulation.

    The batch is another one than the launch line says, and so are the number of steps and the learning rate schedule
    that the script works out from its own option.

    What happens: the number of the accelerate config beats `Accelerator(gradient_accumulation_steps=...)` without a
    word. One of a DeepSpeed file, or the 1 that an absent key stands for, beats it with a line in the log: `Gradient
    accumulation steps mismatch: GradientAccumulationPlugin has 2, DeepSpeed config has 1. Using DeepSpeed's value.`
    Under the Trainer train() stops (ZC201).

    Fix: leaves the number to the script: the key is removed from the accelerate config, or is "auto" in the DeepSpeed
    file (unsafe: the other number may be the one that is meant, and the script may not pass its option on).

    Where the script shows that it passes its option on to `Accelerator()`, ZC249 tells it.

    When to ignore: the script does not pass its option on to `Accelerator()`.
    """
    asked = accelerator.accumulation(run)
    if run.consumer == "accelerate" and asked.known and asked.origin.file is not None:
        return  # ZC249
    if run.consumer == "accelerate" and run.deepspeed_route == "accelerate":
        yield from _beaten_by_file(run)
    if run.consumer in TRAINERS or run.accelerate is None:
        return
    written, given = accelerate_section(run).get(_STEPS), run.arguments.get(_STEPS)
    exported = run.effective.environment.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS")
    if given is None or exported is None or exported.origin.file is not run.accelerate:
        return
    if not str(given.value).isdigit() or not str(written).isdigit() or int(str(written)) == int(given.value):
        return
    location, related = anchor(run, [exported.origin, given.origin])
    yield Finding(
        location,
        f"`{_STEPS}` is {written} here but {given.value} on the launch line; with its own Accelerator() the script "
        "silently gets the first, and the Trainer stops at the difference",
        "keep one of the two",
        related,
        edited(delete_entry, run.accelerate, _IN_YAML, why="leave it to the script's option", safe=False),
    )


def _beaten_by_file(run: Run) -> Iterator[Finding]:
    """The number of a DeepSpeed file, or the 1 that accelerate puts in for it."""
    given, data = run.arguments.get(_STEPS), deepspeed_data(run)
    if given is None or run.deepspeed is None or not data or not str(given.value).isdigit():
        return
    written = data.get(_STEPS, 1)
    if not isinstance(written, int) or isinstance(written, bool) or written == int(given.value):
        return
    there = _STEPS in data
    location, related = anchor(run, [given.origin])
    yield Finding(
        Location(run.deepspeed, (_STEPS,) if there else ()),
        f"`{_STEPS}` is {written} here{'' if there else ', because the key is absent,'} but {given.value} on the "
        "launch line; accelerate takes this file's and logs a warning",
        f'write `"{_STEPS}": "auto"`: the script\'s number then counts',
        [location, *related],
        edited(replace_value, run.deepspeed, (_STEPS,), '"auto"', why="leave it to the script's option", safe=False)
        if there
        else edited(
            insert_entry, run.deepspeed, (), _STEPS, '"auto"', why="leave it to the script's option", safe=False
        ),
    )


@rule(
    "ZC209",
    "clipping-not-passed-on",
    Severity.ERROR,
    bad=Example(
        {"recipe.yaml": _RECIPE + "max_grad_norm: 0.3\ndeepspeed: ds.json\n", "ds.json": _DS % ""},
        consumer="transformers",
    ).finds("error", "recipe.yaml: max_grad_norm: 0.3", "0.3", "1.0", also=("ds.json",)),
    good=Example(
        {
            "recipe.yaml": _RECIPE + "max_grad_norm: 0.3\ndeepspeed: ds.json\n",
            "ds.json": _DS % ', "gradient_clipping": "auto"',
        },
        consumer="transformers",
    ),
    proof=shows("parse", {"engine.gradient_clipping": (1.0, 0.3)}),
    consumers=TRAINERS,
    fixable=True,
)
def clipping_not_passed_on(run: Run) -> Iterator[Finding]:
    """`max_grad_norm` of the training arguments does not reach DeepSpeed.

    Clipping is what keeps a run from blowing up, and a recipe that was tuned with one norm trains with another. The
    loss spikes that come of it are searched for in the data.

    What happens: under DeepSpeed the engine clips, not the Trainer, and the Trainer fills `gradient_clipping` only
    where it stands as "auto". A DeepSpeed config without the key clips at DeepSpeed's default, 1.0 since 0.19.3,
    whatever `max_grad_norm` says.

    Fix: adds `"gradient_clipping": "auto"`, which the Trainer fills with `max_grad_norm`.

    When to ignore: never; remove `max_grad_norm` if DeepSpeed's default is meant.
    """
    if run.deepspeed is None or not deepspeed_data(run) or "gradient_clipping" in deepspeed_data(run):
        return
    if run.effective.value("engine") != "deepspeed":
        return
    asked = arguments_of(run).setting("max_grad_norm")
    defaults = parser_of(run).defaults("gradient_clipping")
    if asked.origin.kind in ("default", "computed") or not isinstance(asked.value, (int, float)):
        return
    if any(asked.value == value for _, value in defaults):
        return
    location, related = anchor(run, [asked.origin])
    older = not all(value for _, value in defaults)  # a release before the default was a number
    because = f" ({admitted(run, 'deepspeed')})" if older else ""
    yield Finding(
        location,
        f"max_grad_norm {asked.value} does not reach DeepSpeed: {run.deepspeed.name} has no `gradient_clipping`, "
        f"so the engine silently {_clips(defaults)}{because}",
        f'add "gradient_clipping": "auto" to {run.deepspeed.name}',
        [*related, Location(run.deepspeed), *(admitting(run, "deepspeed") if older else ())],
        giving(
            edited(insert_entry, run.deepspeed, (), "gradient_clipping", '"auto"', why="let the Trainer pass it on"),
            "gradient_clipping",
            asked.value,
        ),
    )


def _clips(defaults: Sequence[tuple[Release, float]]) -> str:
    """What an engine does that is told nothing, in each of the admitted releases that differ."""
    told = ""
    for since, value in defaults:
        told += f", and from DeepSpeed {text(since)} on " if told else ""
        told += f"clips at its default, {value}" if value else f"clips nothing, as its default is {value}"
    return told


@rule(
    "ZC210",
    "clipping-cannot-be-switched-off-here",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": _YAML % 1 + "  gradient_clipping: 0.0\n"}, consumer="accelerate").finds(
        "error", "accelerate.yaml: gradient_clipping: 0.0", "0.0", "1.0", -1, 0
    ),
    good=Example({"accelerate.yaml": _YAML % 1 + "  gradient_clipping: 0.5\n"}, consumer="accelerate"),
    proof=shows("parse", {"engine.gradient_clipping": (1.0, 0.5)}),
    fixable=True,
    versions="deepspeed>=0.19.3",
    references=("accelerate/utils/dataclasses.py@1.15.0", "huggingface/accelerate#2791"),
)
def clipping_cannot_be_switched_off(run: Run) -> Iterator[Finding]:
    """`gradient_clipping: 0` in the accelerate config.

    The one word that asks for no clipping is the one that is not heard: gradients are clipped all the same, and nothing
    tells.

    What happens: accelerate takes 0 for "not set" and leaves the key out; DeepSpeed 0.19.3 and later then clip at
    their default, 1.0. Under the Trainer `max_grad_norm: 0` with no `gradient_clipping` here switches clipping off;
    in a DeepSpeed JSON `"gradient_clipping": 0` does.

    Fix: writes -1, which DeepSpeed takes for no clipping, where the script has its own loop.

    When to ignore: never; write 1.0 if that is meant.
    """
    setting = run.effective.environment.get("ACCELERATE_GRADIENT_CLIPPING")
    if setting is None or run.deepspeed is not None or "ACCELERATE_DEEPSPEED_CONFIG_FILE" in run.effective.environment:
        return
    if only_below(run.versions.get("deepspeed"), _CLIPS_SINCE):
        return
    try:
        zero = float(setting.value) == 0
    except (TypeError, ValueError):
        return
    if zero and run.effective.value("engine") == "deepspeed":
        location, related = anchor(run, [setting.origin])
        yield Finding(
            location,
            f"`gradient_clipping: {setting.value}` counts as not set; DeepSpeed silently clips at its default, 1.0",
            'write -1, or put "gradient_clipping": 0 into a DeepSpeed JSON named in `deepspeed_config_file`',
            related,
            replace_at(setting.origin, "-1", "write -1, no clipping") if run.consumer == "accelerate" else None,
        )


@rule(
    "ZC211",
    "optimizer-of-json-wins",
    Severity.ERROR,
    bad=Example(
        {
            "recipe.yaml": _RECIPE + "optim: adafactor\ndeepspeed: ds.json\n",
            "ds.json": _DS % (_SCHEDULER % "SGD"),
        },
        consumer="transformers",
    ).finds("error", "recipe.yaml: optim: adafactor", also=('ds.json: "type": "SGD"',)),
    good=Example(
        {
            "recipe.yaml": _RECIPE + "optim: adafactor\ndeepspeed: ds.json\n",
            "ds.json": _DS % ', "gradient_clipping": "auto"',
        },
        consumer="transformers",
    ),
    proof=shows("init", {"engine.optimizer": ("SGD", "Adafactor")}),
    consumers=TRAINERS,
    fixable=True,
    references=("transformers/integrations/deepspeed.py@5.23.0", "modelscope/ms-swift#491"),
)
def optimizer_of_json_wins(run: Run) -> Iterator[Finding]:
    """The DeepSpeed config brings an optimizer or scheduler, and the training arguments name another.

    The recipe is what people read, compare and report; the section was often copied with the rest of a DeepSpeed config
    and is forgotten. Whole sweeps over `lr_scheduler_type` have compared one schedule with itself.

    What happens: the one of the DeepSpeed config is used and `optim` or `lr_scheduler_type` are ignored without a
    word. A `WarmupLR` beside `lr_scheduler_type: cosine` never decays.

    Fix: removes the section from the DeepSpeed config, so that the training argument counts (unsafe: the section may be
    what is meant).

    When to ignore: never; remove the training argument if the section is meant.
    """
    data = deepspeed_data(run)
    if run.deepspeed is None or run.effective.value("engine") != "deepspeed":
        return
    arguments = arguments_of(run)
    for section, name in (("optimizer", "optim"), ("scheduler", "lr_scheduler_type")):
        block = data.get(section)
        kind = block.get("type") if isinstance(block, dict) else None
        asked = arguments.setting(name)
        if (
            not isinstance(kind, str)
            or asked.origin.kind in ("default", "computed")
            or not isinstance(asked.value, str)
        ):
            continue
        if _same(section, kind, asked.value):
            continue
        location, related = anchor(run, [asked.origin])
        yield Finding(
            location,
            f"`{name}: {asked.value}` {words(asked.origin)} is silently ignored: {run.deepspeed.name} brings the "
            f"{section} "
            f"{show(kind)}",
            f"remove `{section}` from {run.deepspeed.name}, or `{name}` here",
            [*related, Location(run.deepspeed, (section, "type"), label="this one is used")],
            edited(delete_entry, run.deepspeed, (section,), why="let the training argument count", safe=False),
        )


_LIKE = {
    "linear": ("WarmupDecayLR",),
    "cosine": ("WarmupCosineLR", "CosineAnnealingLR"),
    "constant": ("WarmupLR",),
    "constant_with_warmup": ("WarmupLR",),
    "warmup_stable_decay": (),
}


def _same(section: str, kind: str, asked: str) -> bool:
    """Whether both names stand for one thing: AdamW in its many builds, a schedule of the same shape."""
    if section == "optimizer":
        return kind.lower().replace("w", "") in asked.lower().replace("w", "")
    return kind in _LIKE.get(asked, (kind,))


RULES = (
    accumulation_auto_without_trainer,
    accumulation_two_numbers,
    clipping_not_passed_on,
    clipping_cannot_be_switched_off,
    optimizer_of_json_wins,
)
