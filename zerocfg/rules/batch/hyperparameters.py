"""ZC2xx: learning rate, betas and weight decay of an optimizer that the DeepSpeed config names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from zerocfg.catalog.counterparts import paths
from zerocfg.catalog.values import show
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Severity, rule
from zerocfg.rules.batch.optimizer import optimizer_of, optimizer_params, optimizer_type
from zerocfg.rules.batch.sections import known_types
from zerocfg.rules.effects import TRAINERS, describe_origin, under_trainer
from zerocfg.rules.fixes import giving
from zerocfg.rules.key import Key, deepspeed, finding_at, trainer_argument
from zerocfg.run.model import Run

_SAID = ("lr", "weight_decay", "betas", "eps")
"""The parameters of an optimizer that training arguments say as well."""
_BELOW_0 = {
    "lr": "the loss is climbed instead of descended",
    "eps": "the update can divide by zero",
    "weight_decay": "weights grow instead of shrinking",
}


@rule("ZC218", "optimizer-number-out-of-range", Severity.ERROR, optimizer_of())
def optimizer_number_out_of_range(kind: Key) -> Iterator[Finding]:
    for key in optimizer_params(kind.run):
        wrong = _out_of_range(key)
        if wrong:
            yield key.finding(
                f"{wrong}; DeepSpeed's own optimizers do not check it",
                "usual values are `betas: [0.9, 0.999]`, `eps: 1e-8`, and a learning rate and weight decay from 0 on",
            )


def _out_of_range(key: Key) -> str:
    """What is wrong with the value of a parameter, and what comes of it; empty where nothing is."""
    if key.name in _BELOW_0 and key.number is not None and key.number < 0:
        return f"`{key.name}` is {show(key.value)}: below 0 {_BELOW_0[key.name]}"
    if key.name != "betas" or not isinstance(key.value, list):
        return ""
    if len(key.value) != 2:
        return f"`betas` has {len(key.value)} entries; the first step stops, because it takes two"
    if any(beta.number is not None and not 0 <= beta.number < 1 for beta in key):
        return f"`betas` is {show(key.value)}: with a beta outside of 0 to 1 (1 excluded) the loss becomes NaN"
    return ""


@cache
def _arguments(name: str) -> tuple[str, ...]:
    """The training arguments that say what a parameter of the optimizer does; one for each item of a pair."""
    said = paths("training-arguments")
    names = [f"optimizer.params.{name}", *(f"optimizer.params.{name}.{item}" for item in (0, 1))]
    return tuple(said[setting][-1] for setting in names if setting in said)


def _schedule_sets_rate(run: Run) -> bool:
    """Whether a schedule of the DeepSpeed config replaces the optimizer's learning rate by numbers of its own."""
    kind, peak = deepspeed(run, "scheduler", "type"), deepspeed(run, "scheduler", "params", "warmup_max_lr")
    if kind.value == "WarmupDecayLR":
        return not peak or peak.value is not None
    return kind.value in ("OneCycle", "LRRangeTest") or (kind.value == "WarmupLR" and peak.value is not None)


def _missing(run: Run) -> dict[str, object]:
    """The parameters that the optimizer lacks, with what its constructor takes for them; none for a type that nothing
    is known of, and no learning rate where the schedule sets it."""
    kind, params = optimizer_type(run), optimizer_params(run)
    if kind is None or params.get("torch_adam") or (params and not isinstance(params.value, dict)):
        return {}
    known = known_types("optimizer").get(kind.value.lower())
    # Muon has several rates and no default for them: what its other numbers mean depends on them.
    if known is None or known.keys["lr"].default is None:
        return {}
    given = {*params.section, "lr"} if _schedule_sets_rate(run) else params.section
    defaults = {name: known.keys[name].default for name in _SAID if name in known.keys and name not in given}
    return {name: default for name, default in defaults.items() if default is not None}


def _filled(run: Run, name: str) -> Fix | None:
    """The parameter as "auto", in a section of parameters that may be absent."""
    params, why = optimizer_params(run), f'add "{name}": "auto"'
    return params[name].set('"auto"', why) if params else params.set(f'{{"{name}": "auto"}}', why)


@rule("ZC219", "argument-not-passed-to-optimizer", Severity.ERROR, WHOLE_RUN, consumers=TRAINERS)
def argument_not_passed_to_optimizer(run: Run) -> Iterator[Finding]:
    params = optimizer_params(run)
    for name, default in _missing(run).items():
        asked = {argument: trainer_argument(run, argument) for argument in _arguments(name)}
        numbers = [key.number for key in asked.values()]
        value = numbers if name == "betas" else numbers[0]
        # The Trainer's own learning rate counts as asked for.
        if None in numbers or value == default or not (name == "lr" or any(asked.values())):
            continue
        given = {argument: key for argument, key in asked.items() if key.origin.kind != "default"}
        argument, shown = next(iter((given or asked).items()))
        finding = finding_at(
            run,
            given.values(),
            f"`{argument}: {show(shown.value)}` ({describe_origin(shown.origin)}) does not reach the optimizer of "
            f"{params.file_name}, which has no `{name}` and silently takes its default, {show(default)}",
            f'add `"{name}": "auto"` to `optimizer.params`',
            giving(_filled(run, name), f"optimizer.params.{name}", value),
        )
        finding.related.append(params.at(label="no such key here"))
        yield finding


@rule("ZC220", "learning-rate-missing", Severity.WARNING, WHOLE_RUN)
def learning_rate_missing(run: Run) -> Iterator[Finding]:
    missing = _missing(run)
    if under_trainer(run) or "lr" not in missing:
        return
    own_script = run.consumer == "accelerate"
    yield deepspeed(run, "optimizer").finding(
        f"the optimizer has no `lr`: DeepSpeed takes its default, {show(missing['lr'])}"
        + (", whatever the script's DummyOptim says" if own_script else ""),
        'add `"lr": "auto"`, which accelerate fills from DummyOptim' if own_script else "write the learning rate",
        fix=_filled(run, "lr") if own_script else None,
        where="key",
    )
