"""ZC8xx: when the Trainer evaluates, saves and logs. See also :mod:`trainer_values` and :mod:`trainer_steps`."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog import fields
from zerocfg.catalog.admitted import admitted
from zerocfg.rules.api import Finding, Fix, Severity, rule
from zerocfg.rules.argument_reader import guessed, may_have_other_defaults
from zerocfg.rules.arguments import ARRIVING_ARGUMENTS, KNOWN_ARGUMENTS, ArgumentsOfRun, given, set_argument, word
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


def _name_to_write(run: Run) -> str:
    """Under which name to say when to evaluate, where nothing does: the former one where no admitted release has the
    new one."""
    among = admitted("transformers", run.declared("transformers"))
    if among is None or any(fields.exists(_NEW, release) for release in among.releases):
        return _NEW
    return _OLD


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


@rule("ZC804", "best-model-strategies-differ", Severity.ERROR, ARRIVING_ARGUMENTS)
def best_model_strategies_differ(given: ArgumentsOfRun) -> Iterator[Finding]:
    if given.value("load_best_model_at_end") is not True:
        return
    saves, evaluates = given.word("save_strategy", "steps"), evaluates_by(given.run)
    if saves is None or evaluates is None or saves in ("best", evaluates):
        return
    name = _evaluation_argument(given.run) or _NEW
    yield given.written("load_best_model_at_end", name, "save_strategy").finding(
        f"`{given.called('load_best_model_at_end')}` needs an evaluation with each checkpoint, but it evaluates "
        f"by `{evaluates}` and saves by `{saves}`; TrainingArguments stop at it",
        f"write `{given.called(name)}: {saves}`",
        _evaluate_by(given.run, saves, f"evaluate by {saves}, as it is saved")
        if saves != "no"
        else given.set("load_best_model_at_end", "false", "keep the last model"),
    )


@rule("ZC805", "best-model-between-evaluations", Severity.ERROR, ARRIVING_ARGUMENTS)
def best_model_between_evaluations(given: ArgumentsOfRun) -> Iterator[Finding]:
    if given.value("load_best_model_at_end") is not True:
        return
    if given.word("save_strategy", "steps") != "steps" or evaluates_by(given.run) != "steps":
        return
    saves, logs = given.number("save_steps", 500), given.number("logging_steps", 500)
    evaluates = given.number("eval_steps", 0)
    by = "eval_steps"
    if not evaluates:
        evaluates, by = (logs, "logging_steps") if given.value("eval_steps") in (None, 0) else (None, by)
    if saves is None or evaluates is None or saves < 1 or evaluates < 1 or saves % evaluates == 0:
        return
    multiple = int(-(-saves // evaluates) * evaluates)
    why = f"save every {multiple} steps"
    yield given.written("save_steps", by, "load_best_model_at_end").finding(
        f"saving every {saves:g} steps and evaluating every {evaluates:g} (`{given.called(by)}`) leaves checkpoints "
        f"that were not evaluated; with `{given.called('load_best_model_at_end')}` TrainingArguments stop at it",
        why,
        given.set("save_steps", str(multiple), why),
    )


@rule("ZC806", "scheduler-needs-evaluation", Severity.ERROR, ARRIVING_ARGUMENTS)
def scheduler_needs_evaluation(given: ArgumentsOfRun) -> Iterator[Finding]:
    if _follows_metric(given.run) and evaluates_by(given.run) == "no":
        yield given.written("lr_scheduler_type", "eval_strategy").finding(
            f"`{given.called('lr_scheduler_type')}: {given.word('lr_scheduler_type')}` follows an evaluated metric, "
            "but nothing is evaluated; TrainingArguments stop at it",
            "write eval_strategy, or another schedule",
            _evaluate_by(given.run, "epoch", "evaluate after each epoch"),
        )


@rule("ZC807", "best-model-without-metric", Severity.ERROR, ARRIVING_ARGUMENTS)
def best_model_without_metric(given: ArgumentsOfRun) -> Iterator[Finding]:
    if given.word("save_strategy") != "best":
        return
    places, best = given.written("save_strategy", "eval_strategy"), f"`{given.called('save_strategy')}: best`"
    implied = _follows_metric(given.run) or given.value("load_best_model_at_end", False) is not False
    if given.value("metric_for_best_model") is None and not implied:
        yield places.finding(
            f"{best} needs `metric_for_best_model`; the Trainer stops without it",
            "write metric_for_best_model: loss, or the metric that you compute",
            given.set("metric_for_best_model", "loss", "the lowest loss is the best", after="save_strategy"),
        )
    elif evaluates_by(given.run) == "no":
        yield places.finding(
            f"{best} saves after an evaluation, but nothing is evaluated: no checkpoint is ever written",
            "write eval_strategy",
            _evaluate_by(given.run, "epoch", "evaluate after each epoch", after="save_strategy"),
        )


@rule("ZC808", "steps-not-whole", Severity.ERROR, ARRIVING_ARGUMENTS)
def steps_not_whole(given: ArgumentsOfRun) -> Iterator[Finding]:
    for event, default in {"logging": "steps", "eval": "no", "save": "steps"}.items():
        argument, strategy = f"{event}_steps", f"{event}_strategy"
        steps = given.number(argument)
        if steps is None or given.word(strategy, default) != "steps":
            continue
        places, name = given.written(argument, strategy, where="value"), given.called(argument)
        if steps > 1 and steps % 1:
            yield places.finding(
                f"`{name}: {steps:g}` is neither a number of steps nor a share below 1; TrainingArguments stop",
                "write a whole number",
                given.set(argument, str(int(steps)), f"every {int(steps)} steps"),
            )
        elif steps == 0 and event == "logging":
            yield places.finding(
                f"`{name}: 0` is refused; TrainingArguments stop at it",
                'write 1, or `logging_strategy: "no"` for no log',
                given.set(argument, "1", "log every step"),
            )


@rule("ZC809", "steps-without-strategy", Severity.WARNING, KNOWN_ARGUMENTS)
def steps_without_strategy(given: ArgumentsOfRun) -> Iterator[Finding]:
    if "deepspeed_config" in given.run.arguments or "eval_steps" in given.run.elsewhere.options:
        return
    if may_have_other_defaults(given.run):
        return
    if any(given.given(name) is not None for name in (_NEW, _OLD)):
        return
    steps = given.number("eval_steps")
    if steps and given.value("do_eval") is not False:
        name = _name_to_write(given.run)
        yield given.written("eval_steps").finding(
            f"`eval_steps: {steps:.15g}` has no effect: `{name}` is not written, and by default nothing is evaluated",
            f"remove eval_steps, or write `{name}: steps` and give the Trainer data to evaluate on",
            given.set(name, '"steps"', "evaluate every eval_steps", after="eval_steps"),
            severity=Severity.NOTE if guessed(given.run) else None,
        )
