"""ZC1xx: arguments of frameworks whose parsers stop at names that they do not know."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from zerocfg.catalog.history import histories
from zerocfg.catalog.suggest import closest
from zerocfg.catalog.versions import bounds
from zerocfg.frontends.api import Facts
from zerocfg.frontends.registry import front_end
from zerocfg.record import record
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.key import Key, from_origin
from zerocfg.run.model import Origin, Run
from zerocfg.run.releases import requirement

_BEFORE = frozenset(
    "sharded_ddp fsdp_min_num_params fsdp_transformer_layer_cls_to_wrap xpu_backend evaluate_during_training "
    "per_gpu_train_batch_size per_gpu_eval_batch_size tpu_metrics_debug mp_parameters".split()
)
"""Fields of TrainingArguments in releases of transformers before those that are known."""


@record(frozen=True, slots=True)
class _Argument:
    """One argument as it is written; ``key``: its place."""

    name: str
    key: Key


@rule("ZC121", "argument-of-no-release", Severity.ERROR, WHOLE_RUN)
def argument_of_no_release(run: Run) -> Iterator[Finding]:
    framework = front_end(run.consumer)
    facts = framework.facts if framework is not None else None
    if facts is None or facts.unknown != "stops" or run.script is not None:
        return
    written = list(_written(run))
    names = {argument.name for argument in written}
    if not facts.lenient.isdisjoint((*names, *run.environment)):
        return
    known, current = _names(facts)
    unknown = [argument for argument in written if not _is_known(argument, known, facts)]
    if 5 * len(unknown) > len(written):
        return  # a file of another program, or of a copy that has arguments of its own
    releases = facts.keys().names
    for argument in unknown:
        if run.own_framework and argument.name.rstrip("0123456789") not in known:
            continue  # a fork may have it, but for a name with the value at its end
        near = closest(argument.name, current)
        if near is None and not _ends_within(run, facts):
            continue  # a newer release may have it
        meant = near if near is not None and near not in names else None
        fix = argument.key.rename(meant, f"rename the key to {meant}", safe=False) if meant is not None else None
        yield argument.key.finding(
            f"{facts.title} has no argument `{argument.name}` in any release ({releases[0]} to {releases[-1]}): "
            f"{facts.stops}",
            f"did you mean `{meant}`?" if meant is not None else "leave it out",
            fix=fix if argument.key.path else None,
            where="key",
        )


def _written(run: Run) -> Iterator[_Argument]:
    """The keys of the recipe and the options of the launch line."""
    file, line = run.framework_recipe, run.launch
    data = file.data() if file is not None else None
    for name, value in data.items() if isinstance(data, dict) else ():
        if isinstance(name, str):
            yield _Argument(name.replace("-", "_"), Key(run, file, (name,), value))
    for option in line.script_options if line is not None else ():
        if option.name.startswith("--"):
            place = Origin("flag", option.name, run.launch_file, (), option.span)
            yield _Argument(option.plain.partition("=")[0], from_origin(run, place))


def _is_known(argument: _Argument, known: frozenset[str], facts: Facts) -> bool:
    name = argument.name
    if name in known or name.removeprefix("no_") in known:
        return True
    spells = facts.abbreviates or not argument.key.path
    return spells and any(argument.startswith(name) for argument in known)


def _ends_within(run: Run, facts: Facts) -> bool:
    """Whether the project admits no release of the framework behind those that are known."""
    declared = requirement(run, facts.package)
    limits = bounds(declared.clauses) if declared is not None and declared.clauses else None
    return limits is not None and limits[1] <= facts.keys().releases[-1]


@cache
def _names(facts: Facts) -> tuple[frozenset[str], tuple[str, ...]]:
    """All names that may be arguments in some release, and those of the newest."""
    own = facts.keys()
    inherited = {name.rpartition(".")[2] for library in facts.libraries for name in histories(library).raw}
    today = [name for name in own.raw if own.today(name) is not None]
    more = [name for name in histories("transformers").raw if histories("transformers").today(name) is not None]
    return frozenset((*own.raw, *own.mentioned, *inherited, *_BEFORE)), tuple(dict.fromkeys((*today, *more)))
