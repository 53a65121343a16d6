"""ZC2xx: the schedule that the training arguments ask the Trainer for."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.arguments import argument, passed
from zerocfg.rules.batch.scheduler import AUTO, RECIPE
from zerocfg.rules.effects import TRAINERS, deepspeed_data, edited, effective, stage_of
from zerocfg.rules.proof import crashes
from zerocfg.run.arguments import arguments_of, mapping_of, parsed
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.source.edit import replace_value


def _recipe(more: str) -> Example:
    return Example({"ds.json": AUTO % "", "recipe.yaml": RECIPE + more}, consumer="transformers")


_RATE_OF_OPTIMIZER = {"polynomial": (), "cosine_with_min_lr": ("min_lr",), "cosine_warmup_with_min_lr": ("min_lr",)}
"""Schedules of transformers that ask the optimizer for its defaults, and with which argument they do."""


@rule(
    "ZC234",
    "schedule-of-trainer-with-zero",
    Severity.ERROR,
    bad=_recipe("lr_scheduler_type: polynomial\n").finds("error", "recipe.yaml: polynomial"),
    good=_recipe("lr_scheduler_type: linear\n"),
    proof=crashes("step", "'DeepSpeedZeroOptimizer' object has no attribute 'defaults'"),
    consumers=TRAINERS,
    versions="transformers>=5.1",
    fixable=True,
    references=("transformers/optimization.py@5.23.0", "deepspeed/runtime/zero/stage_1_and_2.py@0.19.8"),
)
def schedule_of_trainer_with_zero(run: Run) -> Iterator[Finding]:
    """A schedule of the training arguments that asks the optimizer for what ZeRO's wrapper does not have.

    `polynomial`, and the cosine schedules with `min_lr`, work out their end from the optimizer's default learning rate.
    The same recipe runs without DeepSpeed and dies with it, after model and data were prepared.

    What happens: `AttributeError: 'DeepSpeedZeroOptimizer' object has no attribute 'defaults'`.

    Fix: writes `linear` instead of `polynomial`, which is nearly the same line (unsafe: another power may be meant).

    Instead: `min_lr_rate`, a share of the learning rate, in place of `min_lr`.
    """
    asked = arguments_of(run).setting("lr_scheduler_type")
    if not isinstance(asked.value, str) or asked.value not in _RATE_OF_OPTIMIZER or asked.origin.file is None:
        return
    if effective(run, "engine") != "deepspeed" or not stage_of(run) or "scheduler" in deepspeed_data(run):
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


@rule(
    "ZC235",
    "schedule-argument-missing",
    Severity.ERROR,
    bad=(
        _recipe("lr_scheduler_type: warmup_stable_decay\n").finds("error", "recipe.yaml: warmup_stable_decay"),
        Example(
            _recipe("lr_scheduler_type: cosine_with_min_lr\n").files,
            consumer="transformers",
            proof=crashes("step", "One of min_lr or min_lr_rate should be set"),
        ).finds("error", "recipe.yaml: cosine_with_min_lr"),
    ),
    good=_recipe("lr_scheduler_type: warmup_stable_decay\nlr_scheduler_kwargs: {num_decay_steps: 2}\n"),
    proof=crashes("step", "missing 1 required positional argument: 'num_decay_steps'"),
    consumers=TRAINERS,
    references=("transformers/optimization.py@5.23.0",),
)
def schedule_argument_missing(run: Run) -> Iterator[Finding]:
    """A schedule of the training arguments without the number that it cannot do without.

    The name alone passes every check of the arguments, and the schedule is built last: after the model, the data and,
    with DeepSpeed, the engine.

    What happens: `TypeError: get_wsd_schedule() missing 1 required positional argument: 'num_decay_steps'`;
    `ValueError: One of min_lr or min_lr_rate should be set through the lr_scheduler_kwargs`.
    """
    asked = arguments_of(run).setting("lr_scheduler_type")
    needed = _ONE_OF.get(asked.value) if isinstance(asked.value, str) else None
    given = _schedule_arguments(run)
    if needed is None or given is None or asked.origin.file is None or any(name in given for name in needed):
        return
    if "scheduler" in deepspeed_data(run) and effective(run, "engine") == "deepspeed":
        return  # that one is used instead
    wanted = " or ".join(f"`{name}`" for name in needed)
    yield Finding(
        Location(asked.origin.file, asked.origin.path, "value", asked.origin.span),
        f"`lr_scheduler_type: {asked.value}` needs {wanted} in `lr_scheduler_kwargs`; train() stops without",
        f"add `lr_scheduler_kwargs: {{{needed[-1]}: ...}}`",
    )


RULES = (
    schedule_of_trainer_with_zero,
    schedule_argument_missing,
)
