"""ZC8xx: when the Trainer evaluates, saves and logs. See also :mod:`trainer_values` and :mod:`trainer_steps`."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.arguments import (
    given,
    guessed,
    number,
    reader,
    set_argument,
    value,
    word,
    written,
)
from zerocfg.rules.effects import recipe_data
from zerocfg.run.model import Run


def evaluates_by(run: Run) -> str | None:
    """When it is evaluated, also by the name that the argument had before 4.41; None where nobody knows."""
    name = "eval_strategy" if given(run, "eval_strategy") is not None else "evaluation_strategy"
    return word(run, name, "no")


@rule("ZC804", "best-model-strategies-differ", Severity.ERROR)
def best_model_strategies_differ(run: Run) -> Iterator[Finding]:
    if reader(run) is None or value(run, "load_best_model_at_end") is not True:
        return
    saves, evaluates = word(run, "save_strategy", "steps"), evaluates_by(run)
    if saves is None or evaluates is None or saves in ("best", evaluates):
        return
    location, related = written(run, "load_best_model_at_end", "eval_strategy", "save_strategy")
    yield Finding(
        location,
        f"`load_best_model_at_end` needs an evaluation with each checkpoint, but it evaluates by `{evaluates}` and "
        f"saves by `{saves}`; TrainingArguments stop at it",
        f"write `eval_strategy: {saves}`",
        related,
        set_argument(run, "eval_strategy", f'"{saves}"', f"evaluate by {saves}, as it is saved")
        if saves != "no"
        else set_argument(run, "load_best_model_at_end", "false", "keep the last model"),
    )


@rule("ZC805", "best-model-between-evaluations", Severity.ERROR)
def best_model_between_evaluations(run: Run) -> Iterator[Finding]:
    if reader(run) is None or value(run, "load_best_model_at_end") is not True:
        return
    if word(run, "save_strategy", "steps") != "steps" or evaluates_by(run) != "steps":
        return
    saves, logs = number(run, "save_steps", 500), number(run, "logging_steps", 500)
    evaluates = number(run, "eval_steps", 0)
    by = "eval_steps"
    if not evaluates:
        evaluates, by = (logs, "logging_steps") if value(run, "eval_steps") in (None, 0) else (None, by)
    if saves is None or evaluates is None or saves < 1 or evaluates < 1 or saves % evaluates == 0:
        return
    location, related = written(run, "save_steps", by, "load_best_model_at_end")
    multiple = int(-(-saves // evaluates) * evaluates)
    yield Finding(
        location,
        f"saving every {saves:g} steps and evaluating every {evaluates:g} (`{by}`) leaves checkpoints that were not "
        "evaluated; with `load_best_model_at_end` TrainingArguments stop at it",
        f"save every {multiple} steps",
        related,
        set_argument(run, "save_steps", str(multiple), f"save every {multiple} steps"),
    )


@rule("ZC806", "scheduler-needs-evaluation", Severity.ERROR)
def scheduler_needs_evaluation(run: Run) -> Iterator[Finding]:
    schedule = word(run, "lr_scheduler_type")
    if reader(run) is None or schedule not in ("reduce_lr_on_plateau", "greedy"):
        return
    if evaluates_by(run) != "no":
        return
    location, related = written(run, "lr_scheduler_type", "eval_strategy")
    yield Finding(
        location,
        f"`lr_scheduler_type: {schedule}` follows an evaluated metric, but nothing is evaluated; TrainingArguments "
        "stop at it",
        "write eval_strategy, or another schedule",
        related,
        set_argument(run, "eval_strategy", '"epoch"', "evaluate after each epoch"),
    )


@rule("ZC807", "best-model-without-metric", Severity.ERROR)
def best_model_without_metric(run: Run) -> Iterator[Finding]:
    if reader(run) is None or word(run, "save_strategy") != "best":
        return
    evaluates = evaluates_by(run)
    location, related = written(run, "save_strategy", "eval_strategy")
    plateau = word(run, "lr_scheduler_type") in ("reduce_lr_on_plateau", "greedy")
    implied = plateau or value(run, "load_best_model_at_end", False) is not False
    if value(run, "metric_for_best_model") is None and not implied:
        yield Finding(
            location,
            "`save_strategy: best` needs `metric_for_best_model`; the Trainer stops without it",
            "write metric_for_best_model: loss, or the metric that you compute",
            related,
            set_argument(run, "metric_for_best_model", "loss", "the lowest loss is the best", after="save_strategy"),
        )
    elif evaluates == "no":
        yield Finding(
            location,
            "`save_strategy: best` saves after an evaluation, but nothing is evaluated: no checkpoint is ever written",
            "write eval_strategy",
            related,
            set_argument(run, "eval_strategy", '"epoch"', "evaluate after each epoch", after="save_strategy"),
        )


@rule("ZC808", "steps-not-whole", Severity.ERROR)
def steps_not_whole(run: Run) -> Iterator[Finding]:
    if reader(run) is None:
        return
    strategies = {"logging": "steps", "eval": "no", "save": "steps"}
    for name, default in strategies.items():
        steps = number(run, f"{name}_steps")
        if steps is None or given(run, f"{name}_steps") is None:
            continue
        if word(run, f"{name}_strategy", default) != "steps":
            continue
        argument = f"{name}_steps"
        location, related = written(run, argument, f"{name}_strategy", where="value")
        if steps > 1 and steps % 1:
            yield Finding(
                location,
                f"`{argument}: {steps:g}` is neither a number of steps nor a share below 1; TrainingArguments stop",
                "write a whole number",
                related,
                set_argument(run, argument, str(int(steps)), f"every {int(steps)} steps"),
            )
        elif steps == 0 and name == "logging":
            yield Finding(
                location,
                "`logging_steps: 0` is refused; TrainingArguments stop at it",
                'write 1, or `logging_strategy: "no"` for no log',
                related,
                set_argument(run, argument, "1", "log every step"),
            )


@rule("ZC809", "steps-without-strategy", Severity.WARNING)
def steps_without_strategy(run: Run) -> Iterator[Finding]:
    if reader(run) is None or "deepspeed_config" in run.arguments or given(run, "eval_strategy") is not None:
        return
    if "evaluation_strategy" in recipe_data(run) or "evaluation_strategy" in run.arguments:
        return
    steps = number(run, "eval_steps")
    if not steps or value(run, "do_eval") is False:
        return
    location, related = written(run, "eval_steps")
    yield Finding(
        location,
        f"`eval_steps: {steps:.15g}` has no effect: `eval_strategy` is not written, "
        "and by default nothing is evaluated",
        "write `eval_strategy: steps`, or remove eval_steps",
        related,
        set_argument(run, "eval_strategy", '"steps"', "evaluate every eval_steps", after="eval_steps"),
        Severity.NOTE if guessed(run) else None,
    )
