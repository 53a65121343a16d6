"""ZC8xx: optimizer, schedule, length and batches of a training by the Trainer."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.suggest import closest
from zerocfg.rules.api import Example, Finding, Severity, rule
from zerocfg.rules.arguments import (
    RECIPE,
    argument,
    drop_argument,
    entries,
    given,
    number,
    processes,
    reader,
    set_argument,
    under_deepspeed,
    word,
    written,
)
from zerocfg.rules.effects import deepspeed_data, edited, together
from zerocfg.rules.proof import crashes, shows
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, rename_key, replace_value

SCHEDULE_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "linear": (),
    "cosine": ("num_cycles",),
    "cosine_with_restarts": ("num_cycles",),
    "polynomial": ("lr_end", "power"),
    "inverse_sqrt": ("timescale",),
    "cosine_with_min_lr": ("num_cycles", "min_lr", "min_lr_rate"),
    "cosine_warmup_with_min_lr": ("num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"),
    "warmup_stable_decay": (
        "num_decay_steps",
        "num_stable_steps",
        "warmup_type",
        "decay_type",
        "min_lr_ratio",
        "num_cycles",
    ),
}
"""What `lr_scheduler_kwargs` may hold for each schedule; all of them also take last_epoch."""


def _recipe(text: str) -> Example:
    return Example({"recipe.yaml": RECIPE + text}, consumer="transformers")


@rule(
    "ZC817",
    "optim-args-not-text",
    Severity.ERROR,
    bad=(
        _recipe("optim_args: {weight_lr_power: 2.0}\n").finds("error", "recipe.yaml: {weight_lr_power: 2.0}", "2.0"),
        Example(
            {"recipe.yaml": RECIPE + "optim_args: 'rank:64'\n"},
            consumer="transformers",
            proof=crashes("init", "not enough values to unpack"),
        ).finds("error", "recipe.yaml: 'rank:64'", 64),
    ),
    good=_recipe("optim_args: weight_lr_power=2.0\n"),
    proof=crashes("init", "'dict' object has no attribute 'replace'"),
    fixable=True,
    references=("transformers/trainer_optimizer.py@5.23.0",),
)
def optim_args_not_text(run: Run) -> Iterator[Finding]:
    """`optim_args` is not written as `name=value, name=value`.

    Every other dictionary of the arguments may be a mapping; this one is a text that the Trainer splits at commas and
    equals signs. It is looked at only when the optimizer is built, after the model was loaded.

    What happens: `AttributeError: 'dict' object has no attribute 'replace'` for a mapping, `ValueError: not enough
    values to unpack (expected 2, got 1)` for a text without equals signs.

    Fix: writes the pairs of a mapping as text; colons become equals signs.
    """
    found = argument(run, "optim_args")
    held = found.held if found is not None else None
    if reader(run) is None or found is None or not held:
        return
    text = None
    if isinstance(held, dict) and all(isinstance(item, (str, int, float, bool)) for item in held.values()):
        text = ",".join(f"{name}={item}" for name, item in held.items())
    elif isinstance(held, str) and any(part.count("=") != 1 for part in held.replace(" ", "").split(",")):
        text = held.replace(":", "=") if "=" not in held else ""
    elif isinstance(held, str):
        return
    known = text and all(part.count("=") == 1 for part in text.split(",")) and '"' not in text and "\\" not in text
    yield Finding(
        found.at("value"),
        "`optim_args` is not a text of the form name=value,name=value; the training stops when it builds the optimizer",
        f"write `optim_args: {text}`" if known else "write name=value pairs with commas between them",
        fix=edited(replace_value, found.origin.file, found.origin.path, f'"{text}"', why="write it as text")
        if known and found.origin.path
        else None,
    )


def _longer(text: str) -> Example:
    recipe = RECIPE.replace("max_steps: 2", "max_steps: 10")
    return Example({"recipe.yaml": recipe + text}, consumer="transformers")


def _schedule(run: Run) -> str | None:
    """The schedule that the Trainer itself builds: not where the DeepSpeed config brings one."""
    if reader(run) is None or "scheduler" in deepspeed_data(run):
        return None
    return word(run, "lr_scheduler_type", "linear")


@rule(
    "ZC819",
    "schedule-argument-unknown",
    Severity.ERROR,
    bad=(
        _recipe("lr_scheduler_type: cosine\nlr_scheduler_kwargs: {min_lr: 1.0e-6}\n").finds(
            "error", "recipe.yaml: min_lr"
        ),
        Example(
            {"recipe.yaml": RECIPE + "lr_scheduler_type: polynomial\nlr_scheduler_kwargs: {lr_ends: 1.0e-6}\n"},
            consumer="transformers",
            proof=crashes("init", "got an unexpected keyword argument 'lr_ends'"),
        ).finds("error", "recipe.yaml: lr_ends"),
    ),
    good=_recipe("lr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 1.0e-6}\n"),
    proof=crashes("init", "got an unexpected keyword argument 'min_lr'"),
    fixable=True,
    references=("transformers/optimization.py@5.23.0",),
)
def schedule_argument_unknown(run: Run) -> Iterator[Finding]:
    """An entry of `lr_scheduler_kwargs` that the schedule does not take.

    Each schedule is a function with its own arguments; a cosine has no lowest rate, for example, that is another
    schedule. It is built when training starts, after the model was loaded.

    What happens: `TypeError: get_cosine_schedule_with_warmup() got an unexpected keyword argument 'min_lr'`.

    Fix: takes the schedule that has a lowest rate, renames a misspelled entry, or removes an entry. The first and the
    last choose for you, so it is unsafe.
    """
    schedule = _schedule(run)
    section = entries(run, "lr_scheduler_kwargs")
    accepted = SCHEDULE_ARGUMENTS.get(schedule or "")
    if accepted is None or section is None:
        return
    for name in section.held:
        if name in accepted or name == "last_epoch":
            continue
        near = closest(name, [known for known in accepted if known not in section.held])
        if schedule == "cosine" and name in ("min_lr", "min_lr_rate"):
            advice = "write `lr_scheduler_type: cosine_with_min_lr`"
            fix = set_argument(run, "lr_scheduler_type", "cosine_with_min_lr", "take the schedule with a lowest rate")
        elif near:
            advice = f"write {near}"
            fix = section.edited(run, rename_key, (name,), near, why=advice)
        else:
            advice = "it takes " + (", ".join(accepted) if accepted else "nothing")
            fix = section.edited(run, delete_entry, (name,), why="remove the entry")
        yield Finding(
            section.at(name, where="key"),
            f"`lr_scheduler_type: {schedule}` takes no `{name}`; training stops when it starts",
            advice,
            written(run, "lr_scheduler_type")[1],
            fix,
        )


@rule(
    "ZC820",
    "warmup-longer-than-training",
    Severity.WARNING,
    bad=Example(
        {"recipe.yaml": "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 4\nwarmup_steps: 100\n"},
        consumer="transformers",
    ).finds("warning", "recipe.yaml: warmup_steps: 100", 100, 4, 1, also=("recipe.yaml: max_steps: 4",)),
    good=Example(
        {"recipe.yaml": "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 4\nwarmup_steps: 2\n"},
        consumer="transformers",
    ),
    proof=shows("step", {"engine.learning_rate": (1e-06, 5e-05)}),
    fixable=True,
    references=("transformers/optimization.py@5.23.0",),
)
def warmup_longer_than_training(run: Run) -> Iterator[Finding]:
    """The training ends before the warmup does.

    The learning rate climbs from 0 and never gets to the value that is written: the model is trained with a fraction
    of it, and the loss goes down too slowly for no visible reason. Often `max_steps` was lowered for a trial.

    What happens: nothing is said; the rate after `max_steps` is `learning_rate * max_steps / warmup_steps`.

    Fix: warms up for a tenth of `max_steps`; a choice, so it is unsafe.

    When to ignore: a trial run that is not meant to learn.
    """
    schedule = word(run, "lr_scheduler_type", "linear")
    if reader(run) is None or "scheduler" in deepspeed_data(run) or schedule in (None, "constant"):
        return
    warmup, steps = number(run, "warmup_steps"), number(run, "max_steps")
    if warmup is None or steps is None or steps < 1 or warmup < 2 or warmup <= steps:
        return
    location, related = written(run, "warmup_steps", "max_steps")
    fewer = max(1, int(steps) // 10)
    yield Finding(
        location,
        f"the learning rate warms up for {warmup:g} steps, but training ends after {steps:g}: it never reaches the "
        "value that is written",
        f"warm up for fewer steps than max_steps, for example {fewer}",
        related,
        set_argument(run, "warmup_steps", str(fewer), f"warm up for {fewer} steps"),
    )


@rule(
    "ZC821",
    "warmup-with-constant",
    Severity.ERROR,
    bad=_longer("lr_scheduler_type: constant\nwarmup_steps: 4\n").finds(
        "error", "recipe.yaml: warmup_steps: 4", 4, also=("recipe.yaml: lr_scheduler_type: constant",)
    ),
    good=_longer("lr_scheduler_type: constant_with_warmup\nwarmup_steps: 4\n"),
    proof=shows("step", {"engine.learning_rate": (5e-05, 2.5e-05)}),
    fixable=True,
    references=("transformers/optimization.py@5.23.0",),
)
def warmup_with_constant(run: Run) -> Iterator[Finding]:
    """A warmup is written, and the schedule `constant` has none.

    The first steps run at the full learning rate, which is what a warmup is there to prevent: a fine-tuned model can
    lose in them what it knew.

    What happens: the schedule is built without the warmup; nothing is said.

    Fix: takes `constant_with_warmup`. The run changes, so it is unsafe.

    When to ignore: the number of warmup steps is a leftover; then remove it.
    """
    if _schedule(run) != "constant" or not (number(run, "warmup_steps") or 0) > 0:
        return
    location, related = written(run, "warmup_steps", "lr_scheduler_type")
    yield Finding(
        location,
        f"`warmup_steps: {number(run, 'warmup_steps'):g}` is not used: `lr_scheduler_type: constant` starts at the "
        "full learning rate",
        "write `lr_scheduler_type: constant_with_warmup`, or remove warmup_steps",
        related,
        set_argument(run, "lr_scheduler_type", "constant_with_warmup", "take the schedule with a warmup"),
    )


@rule(
    "ZC822",
    "epochs-not-used",
    Severity.NOTE,
    bad=Example(
        {"recipe.yaml": "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 1\nnum_train_epochs: 3\n"},
        consumer="transformers",
    ).finds("note", "recipe.yaml: num_train_epochs: 3", 3, 1, also=("recipe.yaml: max_steps: 1",)),
    good=Example(
        {"recipe.yaml": "output_dir: out\nper_device_train_batch_size: 1\nnum_train_epochs: 3\n"},
        consumer="transformers",
    ),
    proof=shows("step", {"engine.global_step": (1, 2)}),
    fixable=True,
    references=("transformers/trainer.py@5.23.0",),
)
def epochs_not_used(run: Run) -> Iterator[Finding]:
    """Both `max_steps` and `num_train_epochs` are written; only `max_steps` counts.

    Who reads the recipe expects the epochs; the training ends after the steps, which may be a small part of one epoch
    (or many epochs: the data is repeated until the steps are done).

    What happens: `max_steps is given, it will override any value given in num_train_epochs`, in a log line that the
    default level hides.

    Fix: removes `max_steps`, so that the epochs count; that makes the run longer or shorter, so it is unsafe.

    When to ignore: the epochs are there for a run without `max_steps`.
    """
    steps, epochs = number(run, "max_steps"), number(run, "num_train_epochs")
    if reader(run) is None or steps is None or epochs is None or steps < 1 or epochs <= 0:
        return
    ending = given(run, "max_steps")
    if given(run, "num_train_epochs") is None or ending is None or ending.origin.kind == "computed":
        return  # a spec with train_samples works the steps out from the epochs
    location, related = written(run, "num_train_epochs", "max_steps")
    yield Finding(
        location,
        f"`num_train_epochs: {epochs:g}` is not used: `max_steps: {steps:g}` ends the training",
        "keep one of the two",
        related,
        drop_argument(run, "max_steps", "let the epochs count"),
    )


_DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    '"gradient_clipping": "auto", "zero_optimization": {"stage": 2}}\n'
)
_NUM_STEPS = "accelerator_config: {gradient_accumulation_kwargs: {num_steps: 4}}\n"


@rule(
    "ZC823",
    "accumulation-in-accelerator-config",
    Severity.ERROR,
    bad=(
        _recipe("gradient_accumulation_steps: 2\n" + _NUM_STEPS).finds("error", "recipe.yaml: num_steps: 4", 4, 2),
        Example(
            {"recipe.yaml": RECIPE + "deepspeed: ds.json\n" + _NUM_STEPS, "ds.json": _DS},
            consumer="transformers",
            note="The Trainer counts four micro batches as one step; the engine steps after each of them.",
            proof=shows(
                "step",
                {"engine.gradient_accumulation_steps": (1, 4)},
                extent="after how many micro batches the engine makes a step.",
            ),
        ).finds("error", "recipe.yaml: num_steps: 4", 4),
    ),
    good=Example(
        {"recipe.yaml": RECIPE + "deepspeed: ds.json\ngradient_accumulation_steps: 4\n", "ds.json": _DS},
        consumer="transformers",
    ),
    proof=crashes("arguments", "`num_steps` is set but `gradient_accumulation_steps` is greater than 1"),
    fixable=True,
    references=("transformers/trainer.py@5.23.0",),
)
def accumulation_in_accelerator_config(run: Run) -> Iterator[Finding]:
    """Gradient accumulation is written as `num_steps` in `accelerator_config`.

    There it counts only for a Trainer without DeepSpeed that is told nothing else. DeepSpeed's config was filled
    before, so the engine makes an optimizer step after every micro batch: the effective batch is smaller than both
    the config and the log say.

    What happens: beside `gradient_accumulation_steps` above 1 `ValueError: The AcceleratorConfig's num_steps is set
    but gradient_accumulation_steps is greater than 1`; with DeepSpeed nothing is said.

    Fix: moves the number to `gradient_accumulation_steps`, or removes it where that is written; unsafe when the two
    numbers differ.
    """
    section = entries(run, "accelerator_config")
    held = section.held.get("gradient_accumulation_kwargs") if section is not None else None
    steps = held.get("num_steps") if isinstance(held, dict) else None
    if reader(run) is None or section is None or not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        return
    other = number(run, "gradient_accumulation_steps", 1)
    path = ("gradient_accumulation_kwargs", "num_steps")
    if other is None or (other <= 1 and not (under_deepspeed(run) and steps > 1)):
        return
    fixes = [section.edited(run, delete_entry, path, why="")]
    if other <= 1:
        fixes.append(set_argument(run, "gradient_accumulation_steps", str(steps), ""))
    yield Finding(
        section.at(*path),
        f"`num_steps: {steps}` beside `gradient_accumulation_steps: {other:g}` is refused"
        if other > 1
        else f"`num_steps: {steps}` does not reach DeepSpeed, which makes an optimizer step after every micro batch",
        "write gradient_accumulation_steps alone",
        written(run, "gradient_accumulation_steps")[1],
        together("write gradient_accumulation_steps alone", *fixes, safe=other in (1, steps)),
    )


@rule(
    "ZC824",
    "split-batches",
    Severity.ERROR,
    bad=(
        Example(
            {
                "recipe.yaml": RECIPE.replace("size: 1", "size: 4") + "accelerator_config: {split_batches: true}\n",
                "train.sh": "torchrun --nproc_per_node 2 train.py recipe.yaml\n",
            },
            consumer="transformers",
        ).finds("warning", "recipe.yaml: split_batches: true", 4, 2, 2),
        Example(
            {
                "recipe.yaml": RECIPE + "accelerator_config: {split_batches: true}\n",
                "train.sh": "torchrun --nproc_per_node 2 train.py recipe.yaml\n",
            },
            consumer="transformers",
            note="One sample cannot be split between two processes.",
            proof=crashes("init", "needs to be a round multiple of the number of processes", ranks=2),
        ).finds("error", "recipe.yaml: split_batches: true", 1, 2),
    ),
    good=Example(
        {
            "recipe.yaml": RECIPE.replace("size: 1", "size: 4") + "accelerator_config: {split_batches: false}\n",
            "train.sh": "torchrun --nproc_per_node 2 train.py recipe.yaml\n",
        },
        consumer="transformers",
    ),
    proof=shows("step", {"engine.rows": (2, 4)}, ranks=2),
    fixable=True,
    references=("transformers/training_args.py@5.23.0",),
)
def split_batches(run: Run) -> Iterator[Finding]:
    """`split_batches` turns the batch of each device into the batch of all devices.

    `per_device_train_batch_size` is then divided between the processes, so the accelerators work on smaller batches
    than the name promises, and the effective batch does not grow with their number. The Trainer's log goes on
    counting the undivided batch.

    What happens: `Using split_batches=True in accelerator_config will override the per_device_train_batch_size`, at a
    level that is not shown; a batch that cannot be divided stops the job: `needs to be a round multiple of the number
    of processes`.

    Fix: writes `split_batches: false`. The effective batch grows, so it is unsafe.

    When to ignore: the batch is meant for all devices together.
    """
    section = entries(run, "accelerator_config")
    world, size = processes(run), number(run, "per_device_train_batch_size", 8)
    if reader(run) is None or section is None or section.held.get("split_batches") is not True:
        return
    if world is None or world < 2 or size is None:
        return
    divides = size % world == 0
    yield Finding(
        section.at("split_batches"),
        f"`split_batches` divides `per_device_train_batch_size: {size:g}` between {world} processes"
        + (f": each gets {size // world:g}" if divides else ", which does not go; training stops when it starts"),
        "write `split_batches: false`, or a batch for all processes together",
        written(run, "per_device_train_batch_size")[1],
        section.edited(run, replace_value, ("split_batches",), "false", why="a batch for each process"),
        Severity.WARNING if divides else None,
    )


RULES = (
    optim_args_not_text,
    schedule_argument_unknown,
    warmup_longer_than_training,
    warmup_with_constant,
    epochs_not_used,
    accumulation_in_accelerator_config,
    split_batches,
)
