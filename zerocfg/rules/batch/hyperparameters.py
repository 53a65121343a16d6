"""ZC2xx: learning rate, betas and weight decay of an optimizer that the DeepSpeed config names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from zerocfg.catalog.counterparts import paths
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.batch.optimizer import optimizer_type
from zerocfg.rules.effects import TRAINERS, describe_origin, effective_value, section
from zerocfg.rules.failures import primary_location
from zerocfg.rules.fixes import edited, giving
from zerocfg.run.model import UNKNOWN, Run, Setting
from zerocfg.run.stages.arguments import arguments_of
from zerocfg.source.edit import insert_entry

_PARAMS = ("optimizer", "params")
_SAID = ("lr", "weight_decay", "betas", "eps")
"""The parameters of an optimizer that training arguments say as well."""


def number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@rule("ZC218", "optimizer-number-out-of-range", Severity.ERROR)
def optimizer_number_out_of_range(run: Run) -> Iterator[Finding]:
    if optimizer_type(run) is None or run.deepspeed is None:
        return
    for name, value in section(run, "optimizer", "params").items():
        wrong = ""
        if name in ("lr", "eps", "weight_decay") and number(value) and value < 0:
            wrong = f"`{name}` is {show(value)}: below 0 " + {
                "lr": "the loss is climbed instead of descended",
                "eps": "the update can divide by zero",
                "weight_decay": "weights grow instead of shrinking",
            }.get(name, "")
        elif name == "betas" and isinstance(value, list):
            if len(value) != 2:
                wrong = f"`betas` has {len(value)} entries; the first step stops, because it takes two"
            elif any(number(beta) and not 0 <= beta < 1 for beta in value):
                wrong = f"`betas` is {show(value)}: with a beta outside of 0 to 1 (1 excluded) the loss becomes NaN"
        if wrong:
            yield Finding(
                Location(run.deepspeed, (*_PARAMS, name)),
                f"{wrong}; DeepSpeed's own optimizers do not check it",
                "usual values are `betas: [0.9, 0.999]`, `eps: 1e-8`, and a learning rate and weight decay from 0 on",
            )


@cache
def _arguments(name: str) -> tuple[str, ...]:
    """The training arguments that say what a parameter of the optimizer does; one for each item of a pair."""
    said = paths("training-arguments")
    names = [f"optimizer.params.{name}", *(f"optimizer.params.{name}.{item}" for item in (0, 1))]
    return tuple(said[setting][-1] for setting in names if setting in said)


def schedule_sets_rate(run: Run) -> bool:
    """Whether a schedule of the DeepSpeed config replaces the optimizer's learning rate by numbers of its own."""
    kind, params = section(run, "scheduler").get("type"), section(run, "scheduler", "params")
    if kind in ("OneCycle", "LRRangeTest", "WarmupDecayLR"):
        return kind != "WarmupDecayLR" or params.get("warmup_max_lr", "") is not None
    return kind == "WarmupLR" and params.get("warmup_max_lr") is not None


def _defaults(run: Run) -> dict[str, object]:
    """What the constructor takes for an absent parameter; empty for a type that nothing is known of."""
    kind = optimizer_type(run)
    if kind is None or section(run, "optimizer", "params").get("torch_adam"):
        return {}
    schema = load_schema("deepspeed")
    params = schema.find(_PARAMS)
    known = params.variant(kind, schema) if params else None
    # Muon has several rates and no default for them: what its other numbers mean depends on them.
    if known is None or known.keys["lr"].default is None:
        return {}
    defaults = {name: known.keys[name].default for name in _SAID if name in known.keys}
    return {name: default for name, default in defaults.items() if default is not None}


def _filled(run: Run, name: str) -> Fix | None:
    """The parameter as "auto", in a section of parameters that may be absent."""
    why = f'add "{name}": "auto"'
    if "params" not in section(run, "optimizer"):
        return edited(insert_entry, run.deepspeed, _PARAMS[:1], "params", f'{{"{name}": "auto"}}', why=why)
    return edited(insert_entry, run.deepspeed, _PARAMS, name, '"auto"', why=why)


@rule("ZC219", "argument-not-passed-to-optimizer", Severity.ERROR, consumers=TRAINERS)
def argument_not_passed_to_optimizer(run: Run) -> Iterator[Finding]:
    params = section(run, "optimizer").get("params", {})
    if run.deepspeed is None or not isinstance(params, dict):
        return
    arguments = arguments_of(run)
    for name, default in _defaults(run).items():
        if name in params or (name == "lr" and schedule_sets_rate(run)):
            continue
        asked = [arguments.setting(argument) for argument in _arguments(name)]
        value = [item.value for item in asked] if name == "betas" else asked[0].value
        if not _asked_for(asked, name) or value == default:
            continue
        location, related = primary_location(run, [item.origin for item in asked if item.origin.kind != "default"])
        argument = _arguments(name)[0] if asked[0].origin.kind != "default" else _arguments(name)[-1]
        shown = asked[_arguments(name).index(argument)]
        yield Finding(
            location,
            f"`{argument}: {show(shown.value)}` ({describe_origin(shown.origin)}) does not reach the optimizer of "
            f"{run.deepspeed.name}, which has no `{name}` and silently takes its default, {show(default)}",
            f'add `"{name}": "auto"` to `optimizer.params`',
            [*related, Location(run.deepspeed, _PARAMS, label="no such key here")],
            giving(_filled(run, name), f"optimizer.params.{name}", value),
        )


def _asked_for(asked: list[Setting], name: str) -> bool:
    """Known numbers, of which somebody wrote one; the Trainer's own learning rate counts as asked for."""
    if not all(number(item.value) for item in asked):
        return False
    return name == "lr" or any(item.origin.kind in ("file", "flag", "environment") for item in asked)


@rule("ZC220", "learning-rate-missing", Severity.WARNING)
def learning_rate_missing(run: Run) -> Iterator[Finding]:
    defaults = _defaults(run)
    params = section(run, "optimizer").get("params", {})
    if run.deepspeed is None or run.consumer in TRAINERS or "lr" not in defaults or not isinstance(params, dict):
        return
    if "lr" in params or schedule_sets_rate(run) or effective_value(run, "engine") not in (None, UNKNOWN, "deepspeed"):
        return
    own_script = run.consumer == "accelerate"
    yield Finding(
        Location(run.deepspeed, ("optimizer",), "key"),
        f"the optimizer has no `lr`: DeepSpeed takes its default, {show(defaults['lr'])}"
        + (", whatever the script's DummyOptim says" if own_script else ""),
        'add `"lr": "auto"`, which accelerate fills from DummyOptim' if own_script else "write the learning rate",
        fix=_filled(run, "lr") if own_script else None,
    )
