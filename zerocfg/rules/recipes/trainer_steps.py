"""ZC8xx: optimizer, schedule, length and batches of a training by the Trainer."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.suggest import closest
from zerocfg.catalog.values import show
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.argument_reader import values_arrive
from zerocfg.rules.arguments import (
    ARRIVING_ARGUMENTS,
    KNOWN_ARGUMENTS,
    TRAINING_ARGUMENTS,
    ArgumentsOfRun,
    number,
    processes,
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


@rule("ZC817", "optim-args-not-text", Severity.ERROR, KNOWN_ARGUMENTS)
def optim_args_not_text(given: ArgumentsOfRun) -> Iterator[Finding]:
    asked = given.argument("optim_args")
    if asked is None or not asked.held:
        return
    stated, text = asked.held, None
    if isinstance(stated, dict) and all(isinstance(item, (str, int, float, bool)) for item in stated.values()):
        text = ",".join(f"{name}={item}" for name, item in stated.items())
    elif isinstance(stated, str):
        if _pairs(stated.replace(" ", "")):
            return
        text = stated.replace(":", "=") if "=" not in stated else ""
    known = text is not None and _pairs(text) and '"' not in text and "\\" not in text
    key = from_origin(given.run, asked.origin)
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


@rule("ZC819", "schedule-argument-unknown", Severity.ERROR, TRAINING_ARGUMENTS)
def schedule_argument_unknown(given: ArgumentsOfRun) -> Iterator[Finding]:
    schedule, section = _schedule(given.run), given.entries("lr_scheduler_kwargs")
    accepted = SCHEDULE_ARGUMENTS.get(schedule or "")
    if accepted is None or section is None:
        return
    for name in section.held:
        if name in accepted or name == "last_epoch":
            continue
        near = closest(name, [known for known in accepted if known not in section.held])
        if schedule == "cosine" and name in ("min_lr", "min_lr_rate"):
            advice = "write `lr_scheduler_type: cosine_with_min_lr`"
            fix = given.set("lr_scheduler_type", "cosine_with_min_lr", "take the schedule with a lowest rate")
        elif near:
            advice = f"write {near}"
            fix = section.edited(given.run, rename_key, (name,), near, why=advice)
        else:
            advice = "it takes " + (", ".join(accepted) if accepted else "nothing")
            fix = section.edited(given.run, delete_entry, (name,), why="remove the entry")
        yield Finding(
            section.at(name, where="key"),
            f"`lr_scheduler_type: {schedule}` takes no `{name}`; training stops when it starts",
            advice,
            fix=fix,
        )


@rule("ZC820", "warmup-longer-than-training", Severity.WARNING, TRAINING_ARGUMENTS)
def warmup_longer_than_training(given: ArgumentsOfRun) -> Iterator[Finding]:
    warmup, steps = given.number("warmup_steps"), given.number("max_steps")
    if _schedule(given.run) in (None, "constant") or warmup is None or steps is None:
        return
    if steps >= 1 and warmup >= 2 and warmup > steps:
        fewer = max(1, int(steps) // 10)
        yield given.written("warmup_steps", "max_steps").finding(
            f"the learning rate warms up for {warmup:g} steps, but training ends after {steps:g}: it never reaches the "
            "value that is written",
            f"warm up for fewer steps than {given.called('max_steps')}, for example {fewer}",
            given.set("warmup_steps", str(fewer), f"warm up for {fewer} steps"),
        )


@rule("ZC821", "warmup-with-constant", Severity.ERROR, TRAINING_ARGUMENTS)
def warmup_with_constant(given: ArgumentsOfRun) -> Iterator[Finding]:
    warmup = given.number("warmup_steps") or 0
    if _schedule(given.run) == "constant" and warmup > 0:
        steps, schedule = given.called("warmup_steps"), given.called("lr_scheduler_type")
        yield given.written("warmup_steps", "lr_scheduler_type").finding(
            f"`{steps}: {warmup:g}` is not used: `{schedule}: constant` starts at the full learning rate",
            f"write `{schedule}: constant_with_warmup`, or remove {steps}",
            given.set("lr_scheduler_type", "constant_with_warmup", "take the schedule with a warmup"),
        )


@rule("ZC822", "epochs-not-used", Severity.NOTE, ARRIVING_ARGUMENTS)
def epochs_not_used(given: ArgumentsOfRun) -> Iterator[Finding]:
    steps, epochs, ending = given.number("max_steps"), given.number("num_train_epochs"), given.given("max_steps")
    if steps is None or epochs is None or steps < 1 or epochs <= 0:
        return
    # a spec with train_samples works the steps out from the epochs
    if ending is not None and ending.origin.kind != "computed":
        yield given.written("num_train_epochs", "max_steps").finding(
            f"`{given.called('num_train_epochs')}: {epochs:g}` is not used: `{given.called('max_steps')}: {steps:g}` "
            "ends the training",
            "keep one of the two",
            given.drop("max_steps", "let the epochs count"),
        )


@rule("ZC823", "accumulation-in-accelerator-config", Severity.ERROR, KNOWN_ARGUMENTS)
def accumulation_in_accelerator_config(given: ArgumentsOfRun) -> Iterator[Finding]:
    section = given.entries("accelerator_config")
    options = section.held.get("gradient_accumulation_kwargs") if section is not None else None
    steps = options.get("num_steps") if isinstance(options, dict) else None
    if section is None or not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        return
    other = given.number("gradient_accumulation_steps", 1)
    if other is None or (other <= 1 and not (under_deepspeed(given.run) and steps > 1)):
        return
    path, advice = ("gradient_accumulation_kwargs", "num_steps"), "write gradient_accumulation_steps alone"
    fixes = [section.edited(given.run, delete_entry, path, why="")]
    if other <= 1:
        fixes.append(given.set("gradient_accumulation_steps", str(steps), ""))
    yield Finding(
        section.at(*path),
        f"`num_steps: {steps}` beside `gradient_accumulation_steps: {other:g}` is refused"
        if other > 1
        else f"`num_steps: {steps}` does not reach DeepSpeed, which makes an optimizer step after every micro batch",
        advice,
        fix=together(advice, *fixes, safe=other in (1, steps)),
    )


@rule("ZC824", "split-batches", Severity.ERROR, KNOWN_ARGUMENTS)
def split_batches(given: ArgumentsOfRun) -> Iterator[Finding]:
    section = given.entries("accelerator_config")
    world, size = processes(given.run), given.number("per_device_train_batch_size", 8)
    if section is None or section.held.get("split_batches") is not True:
        return
    if world is None or world < 2 or size is None:
        return
    divides = size % world == 0
    yield Finding(
        section.at("split_batches"),
        f"`split_batches` divides `per_device_train_batch_size: {size:g}` between {world} processes"
        + (f": each gets {size // world:g}" if divides else ", which does not go; training stops when it starts"),
        "write `split_batches: false`, or a batch for all processes together",
        fix=section.edited(given.run, replace_value, ("split_batches",), "false", why="a batch for each process"),
        severity=Severity.WARNING if divides else None,
    )


@rule("ZC827", "steps-of-checkpoint-win", Severity.WARNING, WHOLE_RUN, consumers=TRAINERS)
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
