"""ZC8xx: when the Trainer evaluates, saves and logs. See also :mod:`trainer_values` and :mod:`trainer_steps`."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Example, Finding, Severity, rule
from zerocfg.rules.arguments import (
    RECIPE,
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
from zerocfg.rules.proof import crashes, shows
from zerocfg.run.model import Run


def _recipe(text: str, consumer: str = "transformers") -> Example:
    return Example({"recipe.yaml": RECIPE + text}, consumer=consumer)


def evaluates_by(run: Run) -> str | None:
    """When it is evaluated, also by the name that the argument had before 4.41; None where nobody knows."""
    name = "eval_strategy" if given(run, "eval_strategy") is not None else "evaluation_strategy"
    return word(run, name, "no")


_BEST = "load_best_model_at_end: true\n"


@rule(
    "ZC804",
    "best-model-strategies-differ",
    Severity.ERROR,
    bad=(
        _recipe(_BEST + "save_strategy: epoch\n").finds(
            "error", "recipe.yaml: load_best_model_at_end: true", also=("recipe.yaml: save_strategy: epoch",)
        ),
        _recipe(_BEST + "eval_strategy: epoch\nsave_strategy: steps\n").finds(
            "error",
            "recipe.yaml: load_best_model_at_end: true",
            also=(
                "recipe.yaml: eval_strategy: epoch",
                "recipe.yaml: save_strategy: steps",
            ),
        ),
    ),
    good=_recipe(_BEST + "eval_strategy: epoch\nsave_strategy: epoch\n"),
    proof=crashes("arguments", "requires the save and eval strategy to match"),
    fixable=True,
    references=("transformers/training_args.py@5.23.0",),
)
def best_model_strategies_differ(run: Run) -> Iterator[Finding]:
    """`load_best_model_at_end` with an evaluation that does not go along with the saving.

    The job stops before the model is loaded, but after it waited in the queue. `eval_strategy` is "no" where nobody
    writes it, so a recipe that only names when to save never evaluates.

    What happens: `ValueError: --load_best_model_at_end requires the save and eval strategy to match, except when
    --save_strategy="best"`, while TrainingArguments are built.

    Fix: gives `eval_strategy` the value of `save_strategy`. Evaluating that often is a choice, so it is unsafe.
    """
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


@rule(
    "ZC805",
    "best-model-between-evaluations",
    Severity.ERROR,
    bad=(
        _recipe(_BEST + "eval_strategy: steps\neval_steps: 200\nsave_strategy: steps\nsave_steps: 500\n").finds(
            "error",
            "recipe.yaml: save_steps: 500",
            500,
            200,
            600,
            also=(
                "recipe.yaml: eval_steps: 200",
                "recipe.yaml: load_best_model_at_end: true",
            ),
        ),
        _recipe(_BEST + "eval_strategy: steps\nsave_strategy: steps\nsave_steps: 50\nlogging_steps: 20\n").finds(
            "error",
            "recipe.yaml: save_steps: 50",
            50,
            20,
            60,
            also=(
                "recipe.yaml: logging_steps: 20",
                "recipe.yaml: load_best_model_at_end: true",
            ),
        ),
    ),
    good=_recipe(_BEST + "eval_strategy: steps\neval_steps: 100\nsave_strategy: steps\nsave_steps: 500\n"),
    proof=crashes("arguments", "requires the saving steps to be a round multiple of the evaluation steps"),
    fixable=True,
    references=("transformers/training_args.py@5.23.0",),
)
def best_model_between_evaluations(run: Run) -> Iterator[Finding]:
    """`load_best_model_at_end` with checkpoints at steps that are not evaluated.

    The Trainer would not know how good such a checkpoint is, so it refuses to start. `eval_steps` is `logging_steps`
    where nobody writes it.

    What happens: `ValueError: --load_best_model_at_end requires the saving steps to be a round multiple of the
    evaluation steps, but found 500, which is not a round multiple of 200.`

    Fix: raises `save_steps` to the next multiple of `eval_steps`. Checkpoints become rarer, so it is unsafe.
    """
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


@rule(
    "ZC806",
    "scheduler-needs-evaluation",
    Severity.ERROR,
    bad=_recipe("lr_scheduler_type: reduce_lr_on_plateau\n").finds(
        "error", "recipe.yaml: lr_scheduler_type: reduce_lr_on_plateau"
    ),
    good=_recipe("lr_scheduler_type: reduce_lr_on_plateau\neval_strategy: epoch\n"),
    proof=crashes("arguments", "lr_scheduler_type reduce_lr_on_plateau requires an eval strategy"),
    fixable=True,
    references=("transformers/training_args.py@5.23.0",),
)
def scheduler_needs_evaluation(run: Run) -> Iterator[Finding]:
    """A learning rate that follows a metric, in a run that never evaluates.

    `reduce_lr_on_plateau` and `greedy` lower the rate when the evaluated metric stops improving. Without an evaluation
    there is no metric, and the Trainer refuses to start.

    What happens: `ValueError: lr_scheduler_type reduce_lr_on_plateau requires an eval strategy`, while
    TrainingArguments are built.

    Fix: writes `eval_strategy: epoch`; how often to evaluate is a choice, so it is unsafe.
    """
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


@rule(
    "ZC807",
    "best-model-without-metric",
    Severity.ERROR,
    bad=(
        _recipe("save_strategy: best\neval_strategy: epoch\n").finds(
            "error", "recipe.yaml: save_strategy: best", also=("recipe.yaml: eval_strategy: epoch",)
        ),
        Example(
            {"recipe.yaml": RECIPE + "save_strategy: best\nmetric_for_best_model: loss\n"},
            consumer="transformers",
            note="Starts, but no evaluation ever says that a model is the best.",
            proof=shows(
                "step",
                {"args.eval_strategy": ("no", "epoch")},
                extent="that evaluation stays switched off, and training goes on.",
            ),
        ).finds("error", "recipe.yaml: save_strategy: best"),
    ),
    good=_recipe("save_strategy: best\neval_strategy: epoch\nmetric_for_best_model: loss\n"),
    proof=crashes("arguments", "`args.metric_for_best_model` must be provided when using 'best' save_strategy"),
    fixable=True,
    references=("transformers/trainer.py@5.23.0",),
)
def best_model_without_metric(run: Run) -> Iterator[Finding]:
    """`save_strategy: best` without the metric or the evaluation that decides what is best.

    Without a metric the Trainer does not start. With a metric but without an evaluation it starts and never writes a
    checkpoint, which shows only when the job dies and there is nothing to resume from.

    What happens: `ValueError: args.metric_for_best_model must be provided when using 'best' save_strategy`; with
    `eval_strategy: "no"` nothing is said.

    Fix: writes `metric_for_best_model: loss`, or `eval_strategy: epoch`. Both are choices, so it is unsafe.
    """
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


@rule(
    "ZC808",
    "steps-not-whole",
    Severity.ERROR,
    bad=(
        _recipe("save_steps: 10.5\n").finds("error", "recipe.yaml: 10.5", "10.5", 1),
        Example(
            {"recipe.yaml": RECIPE + "logging_steps: 0\n"},
            consumer="transformers",
            proof=crashes("arguments", "requires non-zero --logging_steps"),
        ).finds("error", "recipe.yaml: 0", 0, 1),
    ),
    good=_recipe("logging_steps: 1\nsave_steps: 0.5\n"),
    proof=crashes("arguments", "--save_steps must be an integer if bigger than 1"),
    fixable=True,
    references=("transformers/training_args.py@5.23.0",),
)
def steps_not_whole(run: Run) -> Iterator[Finding]:
    """An interval of steps that is no whole number, or logging every 0 steps.

    From 1 on, `logging_steps`, `eval_steps` and `save_steps` count steps; below 1 they are a share of the whole
    training. A number like 10.5 is neither, and the job stops at once.

    What happens: `ValueError: --save_steps must be an integer if bigger than 1: 10.5`, and for 0 `logging strategy
    IntervalStrategy.STEPS requires non-zero --logging_steps`.

    Fix: rounds down; for `logging_steps: 0` writes 1. The interval changes, so it is unsafe.
    """
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


@rule(
    "ZC809",
    "steps-without-strategy",
    Severity.WARNING,
    bad=_recipe("eval_steps: 100\n").finds("warning", "recipe.yaml: eval_steps: 100", 100),
    good=_recipe("eval_strategy: steps\neval_steps: 100\n"),
    proof=shows(
        "arguments",
        {"args.eval_strategy": ("no", "steps")},
        extent="that evaluation stays switched off in the training arguments.",
    ),
    fixable=True,
    references=("transformers/training_args.py@5.23.0",),
)
def steps_without_strategy(run: Run) -> Iterator[Finding]:
    """`eval_steps` is written, and nothing switches evaluation on.

    The number looks like an instruction to evaluate. It is not: `eval_strategy` decides, and its default is "no". The
    training runs to its end without a single evaluation.

    What happens: nothing is said; `eval_strategy` stays "no".

    Fix: writes `eval_strategy: steps`. That costs time and needs a data set to evaluate on, so it is unsafe.

    A note where only the options of a launch line tell of a Trainer: a script that is not here may have a loop of its
    own, which evaluates every `eval_steps`.

    When to ignore: the script sets `eval_strategy` in its code.
    """
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


RULES = (
    best_model_strategies_differ,
    best_model_between_evaluations,
    scheduler_needs_evaluation,
    best_model_without_metric,
    steps_not_whole,
    steps_without_strategy,
)
