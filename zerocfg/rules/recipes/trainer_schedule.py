"""ZC2xx: the schedule that the training arguments ask the Trainer for."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.arguments import argument, passed
from zerocfg.rules.effects import TRAINERS, deepspeed_data, effective_value, stage_of
from zerocfg.rules.key import Key, from_origin
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.run.stages.arguments import arguments_of, mapping_of, parsed

_RATE_OF_OPTIMIZER = {"polynomial": (), "cosine_with_min_lr": ("min_lr",), "cosine_warmup_with_min_lr": ("min_lr",)}
"""Schedules of transformers that ask the optimizer for its defaults, and with which argument they do."""


def _schedule(run: Run) -> Key:
    asked = arguments_of(run).setting("lr_scheduler_type")
    return from_origin(run, asked.origin, asked.value)


def _schedule_arguments(run: Run) -> dict[str, object] | None:
    """`lr_scheduler_kwargs` as they are written; None where they are not known."""
    changed = passed(run).get("lr_scheduler_kwargs")
    if changed is not None and changed.value is UNKNOWN:
        return None
    stated = argument(run, "lr_scheduler_kwargs")
    if stated is None:
        return {} if run.recipe is not None or parsed(run) else None
    return mapping_of(stated.held) if stated.held is not None else {}


@rule(
    "ZC234",
    "schedule-of-trainer-with-zero",
    Severity.ERROR,
    WHOLE_RUN,
    consumers=TRAINERS,
    versions="transformers>=5.2",
)
def schedule_of_trainer_with_zero(run: Run) -> Iterator[Finding]:
    key, given, config = _schedule(run), _schedule_arguments(run), deepspeed_data(run)
    if key.file is None or not isinstance(key.value, str) or key.value not in _RATE_OF_OPTIMIZER or given is None:
        return
    if effective_value(run, "engine") != "deepspeed" or not stage_of(run) or config.keys() & {"scheduler", "optimizer"}:
        return
    if any(name not in given for name in _RATE_OF_OPTIMIZER[key.value]):
        return
    polynomial = key.value == "polynomial"
    yield key.finding(
        f"`lr_scheduler_type: {key.value}` asks the optimizer for its defaults, which ZeRO's wrapper does not have; "
        "train() stops",
        "use linear" if polynomial else "write min_lr_rate, a share of the learning rate, for min_lr",
        fix=key.replace("linear", "use linear", safe=False) if polynomial and not given else None,
        where="value",
    )


_ONE_OF = {
    "warmup_stable_decay": ("num_decay_steps",),
    "cosine_with_min_lr": ("min_lr", "min_lr_rate"),
    "cosine_warmup_with_min_lr": ("min_lr", "min_lr_rate"),
}


@rule("ZC235", "schedule-argument-missing", Severity.ERROR, WHOLE_RUN, consumers=TRAINERS)
def schedule_argument_missing(run: Run) -> Iterator[Finding]:
    key, given = _schedule(run), _schedule_arguments(run)
    needed = _ONE_OF.get(key.value) if isinstance(key.value, str) else None
    if needed is None or given is None or key.file is None or any(name in given for name in needed):
        return
    if "scheduler" in deepspeed_data(run) and effective_value(run, "engine") == "deepspeed":
        return  # that one is used instead
    wanted = " or ".join(f"`{name}`" for name in needed)
    yield key.finding(
        f"`lr_scheduler_type: {key.value}` needs {wanted} in `lr_scheduler_kwargs`; train() stops without",
        f"add `lr_scheduler_kwargs: {{{needed[-1]}: ...}}`",
        where="value",
    )
