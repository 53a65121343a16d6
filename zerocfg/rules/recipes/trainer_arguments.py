"""ZC8xx: when the Trainer evaluates, saves and logs. See also :mod:`trainer_values` and :mod:`trainer_steps`."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog import fields
from zerocfg.catalog.admitted import admitted
from zerocfg.rules.api import Finding, Fix, Severity, rule
from zerocfg.rules.argument_reader import guessed, reader, values_arrive
from zerocfg.rules.arguments import called, given, number, set_argument, value, word, written
from zerocfg.run.model import Run

_NEW, _OLD = "eval_strategy", "evaluation_strategy"
"""The argument's name since 4.41, and the former one, which wins over it where a release has both (until 4.45)."""


def _evaluation_argument(run: Run) -> str | None:
    """The name under which it is stated when to evaluate; None where that depends on the release."""
    if given(run, _OLD) is None or given(run, _NEW) is None:
        return _NEW if given(run, _OLD) is None else _OLD
    among = admitted("transformers", run.declared("transformers"))
    former = {fields.exists(_OLD, release) for release in among.releases} if among is not None else {False}
    return None if len(former) > 1 else _OLD if former == {True} else _NEW


def evaluates_by(run: Run) -> str | None:
    """When it is evaluated, also by the argument's former name; None where that is not known."""
    name = _evaluation_argument(run)
    return word(run, name, "no") if name is not None else None


def _evaluate_by(run: Run, value: str, why: str, after: str | None = None) -> Fix | None:
    """Say when to evaluate, by the name that is written and counts."""
    name = _evaluation_argument(run)
    return set_argument(run, name, f'"{value}"', why, after=after) if name is not None else None


def _follows_metric(run: Run) -> bool:
    """Whether the schedule follows an evaluated metric."""
    return word(run, "lr_scheduler_type") in ("reduce_lr_on_plateau", "greedy")


@rule("ZC804", "best-model-strategies-differ", Severity.ERROR)
def best_model_strategies_differ(run: Run) -> Iterator[Finding]:
    if not values_arrive(run) or value(run, "load_best_model_at_end") is not True:
        return
    saves, evaluates = word(run, "save_strategy", "steps"), evaluates_by(run)
    if saves is None or evaluates is None or saves in ("best", evaluates):
        return
    name = _evaluation_argument(run) or _NEW
    yield written(run, "load_best_model_at_end", name, "save_strategy").finding(
        f"`{called(run, 'load_best_model_at_end')}` needs an evaluation with each checkpoint, but it evaluates "
        f"by `{evaluates}` and saves by `{saves}`; TrainingArguments stop at it",
        f"write `{called(run, name)}: {saves}`",
        _evaluate_by(run, saves, f"evaluate by {saves}, as it is saved")
        if saves != "no"
        else set_argument(run, "load_best_model_at_end", "false", "keep the last model"),
    )


@rule("ZC805", "best-model-between-evaluations", Severity.ERROR)
def best_model_between_evaluations(run: Run) -> Iterator[Finding]:
    if not values_arrive(run) or value(run, "load_best_model_at_end") is not True:
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
    multiple = int(-(-saves // evaluates) * evaluates)
    why = f"save every {multiple} steps"
    yield written(run, "save_steps", by, "load_best_model_at_end").finding(
        f"saving every {saves:g} steps and evaluating every {evaluates:g} (`{called(run, by)}`) leaves checkpoints "
        f"that were not evaluated; with `{called(run, 'load_best_model_at_end')}` TrainingArguments stop at it",
        why,
        set_argument(run, "save_steps", str(multiple), why),
    )


@rule("ZC806", "scheduler-needs-evaluation", Severity.ERROR)
def scheduler_needs_evaluation(run: Run) -> Iterator[Finding]:
    if values_arrive(run) and _follows_metric(run) and evaluates_by(run) == "no":
        yield written(run, "lr_scheduler_type", "eval_strategy").finding(
            f"`{called(run, 'lr_scheduler_type')}: {word(run, 'lr_scheduler_type')}` follows an evaluated metric, "
            "but nothing is evaluated; TrainingArguments stop at it",
            "write eval_strategy, or another schedule",
            _evaluate_by(run, "epoch", "evaluate after each epoch"),
        )


@rule("ZC807", "best-model-without-metric", Severity.ERROR)
def best_model_without_metric(run: Run) -> Iterator[Finding]:
    if not values_arrive(run) or word(run, "save_strategy") != "best":
        return
    places, best = written(run, "save_strategy", "eval_strategy"), f"`{called(run, 'save_strategy')}: best`"
    implied = _follows_metric(run) or value(run, "load_best_model_at_end", False) is not False
    if value(run, "metric_for_best_model") is None and not implied:
        yield places.finding(
            f"{best} needs `metric_for_best_model`; the Trainer stops without it",
            "write metric_for_best_model: loss, or the metric that you compute",
            set_argument(run, "metric_for_best_model", "loss", "the lowest loss is the best", after="save_strategy"),
        )
    elif evaluates_by(run) == "no":
        yield places.finding(
            f"{best} saves after an evaluation, but nothing is evaluated: no checkpoint is ever written",
            "write eval_strategy",
            _evaluate_by(run, "epoch", "evaluate after each epoch", after="save_strategy"),
        )


@rule("ZC808", "steps-not-whole", Severity.ERROR)
def steps_not_whole(run: Run) -> Iterator[Finding]:
    if not values_arrive(run):
        return
    for event, default in {"logging": "steps", "eval": "no", "save": "steps"}.items():
        argument, strategy = f"{event}_steps", f"{event}_strategy"
        steps = number(run, argument)
        if steps is None or word(run, strategy, default) != "steps":
            continue
        places, name = written(run, argument, strategy, where="value"), called(run, argument)
        if steps > 1 and steps % 1:
            yield places.finding(
                f"`{name}: {steps:g}` is neither a number of steps nor a share below 1; TrainingArguments stop",
                "write a whole number",
                set_argument(run, argument, str(int(steps)), f"every {int(steps)} steps"),
            )
        elif steps == 0 and event == "logging":
            yield places.finding(
                f"`{name}: 0` is refused; TrainingArguments stop at it",
                'write 1, or `logging_strategy: "no"` for no log',
                set_argument(run, argument, "1", "log every step"),
            )


@rule("ZC809", "steps-without-strategy", Severity.WARNING)
def steps_without_strategy(run: Run) -> Iterator[Finding]:
    if reader(run) is None or "deepspeed_config" in run.arguments or "eval_steps" in run.options_elsewhere:
        return
    if any(given(run, name) is not None for name in ("eval_strategy", "evaluation_strategy")):
        return
    steps = number(run, "eval_steps")
    if steps and value(run, "do_eval") is not False:
        yield written(run, "eval_steps").finding(
            f"`eval_steps: {steps:.15g}` has no effect: `eval_strategy` is not written, "
            "and by default nothing is evaluated",
            "write `eval_strategy: steps`, or remove eval_steps",
            set_argument(run, "eval_strategy", '"steps"', "evaluate every eval_steps", after="eval_steps"),
            severity=Severity.NOTE if guessed(run) else None,
        )
