"""ZC207 to ZC211: values that somebody wrote, and of which the job silently gets others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zerocfg.catalog.values import show
from zerocfg.catalog.versions import Release, only_below, text
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.effects import TRAINERS, accelerate_section, admitted, admitting, deepspeed_data, describe_origin
from zerocfg.rules.failures import failures, primary_location
from zerocfg.rules.fixes import edited, giving, replace_at
from zerocfg.run.model import Run
from zerocfg.run.script import accelerator
from zerocfg.run.stages.arguments import arguments_of
from zerocfg.run.stages.parser import parser_of
from zerocfg.source.edit import delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path

_CLIPS_SINCE = "0.19.3"
"""The release of DeepSpeed from which an absent `gradient_clipping` is 1.0; before, it was no clipping."""

_STEPS = "gradient_accumulation_steps"
_IN_YAML: Path = ("deepspeed_config", _STEPS)


@rule("ZC207", "accumulation-auto-without-trainer", Severity.ERROR, consumers={"accelerate"})
def accumulation_auto_without_trainer(run: Run) -> Iterator[Finding]:
    value = accelerate_section(run).get(_STEPS)
    auto = value == "auto"
    if isinstance(value, float):
        return  # ZC104 says it
    for failure in failures(run, "ZC207"):
        location, related = primary_location(run, failure.places)
        yield Finding(
            location,
            f"{failure.message} and stops: only the Trainer fills an accumulation that is no whole number",
            "write a whole number, or leave the key out: the script's own number then counts",
            related,
            edited(delete_entry, run.accelerate, _IN_YAML, why="leave it to the script") if auto else None,
        )


@rule("ZC208", "accumulation-two-numbers", Severity.WARNING)
def accumulation_two_numbers(run: Run) -> Iterator[Finding]:
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
    location, related = primary_location(run, [exported.origin, given.origin])
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
    location, related = primary_location(run, [given.origin])
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


@rule("ZC209", "clipping-not-passed-on", Severity.ERROR, consumers=TRAINERS)
def clipping_not_passed_on(run: Run) -> Iterator[Finding]:
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
    location, related = primary_location(run, [asked.origin])
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


@rule("ZC210", "clipping-cannot-be-switched-off-here", Severity.ERROR, versions="deepspeed>=0.19.3")
def clipping_cannot_be_switched_off(run: Run) -> Iterator[Finding]:
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
        location, related = primary_location(run, [setting.origin])
        yield Finding(
            location,
            f"`gradient_clipping: {setting.value}` counts as not set; DeepSpeed silently clips at its default, 1.0",
            'write -1, or put "gradient_clipping": 0 into a DeepSpeed JSON named in `deepspeed_config_file`',
            related,
            replace_at(setting.origin, "-1", "write -1, no clipping") if run.consumer == "accelerate" else None,
        )


@rule("ZC211", "optimizer-of-json-wins", Severity.ERROR, consumers=TRAINERS)
def optimizer_of_json_wins(run: Run) -> Iterator[Finding]:
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
        location, related = primary_location(run, [asked.origin])
        yield Finding(
            location,
            f"`{name}: {asked.value}` {describe_origin(asked.origin)} is silently ignored: {run.deepspeed.name} "
            f"brings the {section} {show(kind)}",
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
