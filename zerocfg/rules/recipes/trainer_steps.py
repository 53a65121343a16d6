"""ZC8xx: optimizer, schedule, length and batches of a training by the Trainer."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.suggest import closest
from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.argument_reader import reader, values_arrive
from zerocfg.rules.arguments import (
    argument,
    called,
    drop_argument,
    entries,
    given,
    number,
    processes,
    set_argument,
    under_deepspeed,
    value,
    word,
    written,
)
from zerocfg.rules.effects import TRAINERS, deepspeed_data
from zerocfg.rules.fixes import together
from zerocfg.rules.key import from_origin
from zerocfg.run.model import Run
from zerocfg.run.trainer_state import STATE_FILE, STRATEGIES
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


@rule("ZC817", "optim-args-not-text", Severity.ERROR)
def optim_args_not_text(run: Run) -> Iterator[Finding]:
    asked = argument(run, "optim_args")
    if reader(run) is None or asked is None or not asked.held:
        return
    held, text = asked.held, None
    if isinstance(held, dict) and all(isinstance(item, (str, int, float, bool)) for item in held.values()):
        text = ",".join(f"{name}={item}" for name, item in held.items())
    elif isinstance(held, str):
        if _pairs(held.replace(" ", "")):
            return
        text = held.replace(":", "=") if "=" not in held else ""
    known = text is not None and _pairs(text) and '"' not in text and "\\" not in text
    key = from_origin(run, asked.origin)
    yield key.finding(
        "`optim_args` is not a text of the form name=value,name=value; the training stops when it builds the optimizer",
        f"write `optim_args: {text}`" if known else "write name=value pairs with commas between them",
        fix=key.replace(f'"{text}"', "write it as text") if known and key.path else None,
        where="value",
    )


def _pairs(text: str) -> bool:
    return all(part.count("=") == 1 for part in text.split(","))


def _schedule(run: Run) -> str | None:
    """The schedule that the Trainer itself builds: not where the DeepSpeed config brings one."""
    if not values_arrive(run) or "scheduler" in deepspeed_data(run):
        return None
    return word(run, "lr_scheduler_type", "linear")


@rule("ZC819", "schedule-argument-unknown", Severity.ERROR)
def schedule_argument_unknown(run: Run) -> Iterator[Finding]:
    schedule, section = _schedule(run), entries(run, "lr_scheduler_kwargs")
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
            fix=fix,
        )


@rule("ZC820", "warmup-longer-than-training", Severity.WARNING)
def warmup_longer_than_training(run: Run) -> Iterator[Finding]:
    warmup, steps = number(run, "warmup_steps"), number(run, "max_steps")
    if _schedule(run) in (None, "constant") or warmup is None or steps is None:
        return
    if steps >= 1 and warmup >= 2 and warmup > steps:
        fewer = max(1, int(steps) // 10)
        yield written(run, "warmup_steps", "max_steps").finding(
            f"the learning rate warms up for {warmup:g} steps, but training ends after {steps:g}: it never reaches the "
            "value that is written",
            f"warm up for fewer steps than {called(run, 'max_steps')}, for example {fewer}",
            set_argument(run, "warmup_steps", str(fewer), f"warm up for {fewer} steps"),
        )


@rule("ZC821", "warmup-with-constant", Severity.ERROR)
def warmup_with_constant(run: Run) -> Iterator[Finding]:
    warmup = number(run, "warmup_steps") or 0
    if _schedule(run) == "constant" and warmup > 0:
        steps, schedule = called(run, "warmup_steps"), called(run, "lr_scheduler_type")
        yield written(run, "warmup_steps", "lr_scheduler_type").finding(
            f"`{steps}: {warmup:g}` is not used: `{schedule}: constant` starts at the full learning rate",
            f"write `{schedule}: constant_with_warmup`, or remove {steps}",
            set_argument(run, "lr_scheduler_type", "constant_with_warmup", "take the schedule with a warmup"),
        )


@rule("ZC822", "epochs-not-used", Severity.NOTE)
def epochs_not_used(run: Run) -> Iterator[Finding]:
    steps, epochs, ending = number(run, "max_steps"), number(run, "num_train_epochs"), given(run, "max_steps")
    if not values_arrive(run) or steps is None or epochs is None or steps < 1 or epochs <= 0:
        return
    # a spec with train_samples works the steps out from the epochs
    if ending is not None and ending.origin.kind != "computed":
        yield written(run, "num_train_epochs", "max_steps").finding(
            f"`{called(run, 'num_train_epochs')}: {epochs:g}` is not used: `{called(run, 'max_steps')}: {steps:g}` "
            "ends the training",
            "keep one of the two",
            drop_argument(run, "max_steps", "let the epochs count"),
        )


@rule("ZC823", "accumulation-in-accelerator-config", Severity.ERROR)
def accumulation_in_accelerator_config(run: Run) -> Iterator[Finding]:
    section = entries(run, "accelerator_config")
    held = section.held.get("gradient_accumulation_kwargs") if section is not None else None
    steps = held.get("num_steps") if isinstance(held, dict) else None
    if reader(run) is None or section is None or not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        return
    other = number(run, "gradient_accumulation_steps", 1)
    if other is None or (other <= 1 and not (under_deepspeed(run) and steps > 1)):
        return
    path, advice = ("gradient_accumulation_kwargs", "num_steps"), "write gradient_accumulation_steps alone"
    fixes = [section.edited(run, delete_entry, path, why="")]
    if other <= 1:
        fixes.append(set_argument(run, "gradient_accumulation_steps", str(steps), ""))
    yield Finding(
        section.at(*path),
        f"`num_steps: {steps}` beside `gradient_accumulation_steps: {other:g}` is refused"
        if other > 1
        else f"`num_steps: {steps}` does not reach DeepSpeed, which makes an optimizer step after every micro batch",
        advice,
        fix=together(advice, *fixes, safe=other in (1, steps)),
    )


@rule("ZC824", "split-batches", Severity.ERROR)
def split_batches(run: Run) -> Iterator[Finding]:
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
        fix=section.edited(run, replace_value, ("split_batches",), "false", why="a batch for each process"),
        severity=Severity.WARNING if divides else None,
    )


@rule("ZC827", "steps-of-checkpoint-win", Severity.WARNING, consumers=TRAINERS)
def steps_of_checkpoint_win(run: Run) -> Iterator[Finding]:
    state = run.resumed
    if state is None:
        return
    for name, used in state.steps.items():
        strategy = value(run, STRATEGIES[name], "no" if name == "eval_steps" else "steps")
        asked = number(run, name)
        if strategy != "steps" or asked is None or asked < 1 or asked == used:
            continue
        place = written(run, name)
        yield Finding(
            place.location,
            f"`{name}: {show(asked)}` is not used: the run resumes, and {used} of the checkpoint's {STATE_FILE} counts",
            f"write {show(asked)} for `{name}` in {state.file}",
            [*place.related, from_origin(run, state.named).at(label="resumes here")],
        )
