"""ZC2xx: the schedule that the training arguments ask the Trainer for."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.arguments import argument, passed
from zerocfg.rules.effects import TRAINERS, deepspeed_data, effective_value, stage_of
from zerocfg.rules.fixes import edited
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.run.stages.arguments import arguments_of, mapping_of, parsed
from zerocfg.source.edit import replace_value

_RATE_OF_OPTIMIZER = {"polynomial": (), "cosine_with_min_lr": ("min_lr",), "cosine_warmup_with_min_lr": ("min_lr",)}
"""Schedules of transformers that ask the optimizer for its defaults, and with which argument they do."""


@rule("ZC234", "schedule-of-trainer-with-zero", Severity.ERROR, consumers=TRAINERS, versions="transformers>=5.2")
def schedule_of_trainer_with_zero(run: Run) -> Iterator[Finding]:
    asked = arguments_of(run).setting("lr_scheduler_type")
    if not isinstance(asked.value, str) or asked.value not in _RATE_OF_OPTIMIZER or asked.origin.file is None:
        return
    if effective_value(run, "engine") != "deepspeed" or not stage_of(run) or "scheduler" in deepspeed_data(run):
        return
    given = _schedule_arguments(run)
    if "optimizer" in deepspeed_data(run) or given is None:
        return
    if any(name not in given for name in _RATE_OF_OPTIMIZER[asked.value]):
        return
    fix = None
    if asked.value == "polynomial" and not given and asked.origin.kind == "file":
        fix = edited(replace_value, asked.origin.file, asked.origin.path, "linear", why="use linear", safe=False)
    yield Finding(
        Location(asked.origin.file, asked.origin.path, "value", asked.origin.span),
        f"`lr_scheduler_type: {asked.value}` asks the optimizer for its defaults, which ZeRO's wrapper does not have; "
        "train() stops",
        "use linear" if asked.value == "polynomial" else "write min_lr_rate, a share of the learning rate, for min_lr",
        fix=fix,
    )


def _schedule_arguments(run: Run) -> dict[str, object] | None:
    """`lr_scheduler_kwargs` as they are written; None where they are not known."""
    changed = passed(run).get("lr_scheduler_kwargs")
    if changed is not None and changed.value is UNKNOWN:
        return None
    found = argument(run, "lr_scheduler_kwargs")
    if found is None:
        return {} if run.recipe is not None or parsed(run) else None
    return mapping_of(found.held) if found.held is not None else {}


_ONE_OF = {
    "warmup_stable_decay": ("num_decay_steps",),
    "cosine_with_min_lr": ("min_lr", "min_lr_rate"),
    "cosine_warmup_with_min_lr": ("min_lr", "min_lr_rate"),
}


@rule("ZC235", "schedule-argument-missing", Severity.ERROR, consumers=TRAINERS)
def schedule_argument_missing(run: Run) -> Iterator[Finding]:
    asked = arguments_of(run).setting("lr_scheduler_type")
    needed = _ONE_OF.get(asked.value) if isinstance(asked.value, str) else None
    given = _schedule_arguments(run)
    if needed is None or given is None or asked.origin.file is None or any(name in given for name in needed):
        return
    if "scheduler" in deepspeed_data(run) and effective_value(run, "engine") == "deepspeed":
        return  # that one is used instead
    wanted = " or ".join(f"`{name}`" for name in needed)
    yield Finding(
        Location(asked.origin.file, asked.origin.path, "value", asked.origin.span),
        f"`lr_scheduler_type: {asked.value}` needs {wanted} in `lr_scheduler_kwargs`; train() stops without",
        f"add `lr_scheduler_kwargs: {{{needed[-1]}: ...}}`",
    )
