"""What a script sets in its training arguments when that has no effect any more."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.patterns import pattern
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, at, rule
from zerocfg.run.linking.launch_line_runs import settings
from zerocfg.run.model import UNKNOWN, LateDeepSpeed, Run, Setting
from zerocfg.run.script.arguments import resolve_option
from zerocfg.run.stages.arguments import recipe_environment

_CHOOSES = pattern(r"ACCELERATE_USE_(?!CPU)")
"""How the variables begin by which accelerate's launcher chooses DeepSpeed, FSDP or Megatron-LM."""
_LONGEST = 40


@rule(
    "ZC877",
    "deepspeed-set-too-late",
    Severity.ERROR,
    WHOLE_RUN,
    consumers={"transformers", "trl"},
    versions="transformers>=4.30",
)
def deepspeed_set_too_late(run: Run) -> Iterator[Finding]:
    if run.script is None or run.script.own_checks or _has_another_engine(run):
        return
    late = [item for item in run.script.late_deepspeed if not _may_be_made_with_it(run, item)]
    filled = sorted((item for item in late if _is_filled(run, item) is not False), key=lambda item: not item.sure)
    location = at(filled[0].origin) if filled else None
    if location is None:
        return
    first, *others = filled
    certain = _is_certain(run, first)
    yield Finding(
        location,
        f"{_assignment(first)} comes after {_class(first)} was made, which is when DeepSpeed is set up: "
        f"the Trainer never reads it and {_consequence(run, certain)}",
        _advice(first),
        [place for item in others if (place := at(item.origin, "another one")) is not None],
        severity=None if certain else Severity.WARNING,
    )


def _has_another_engine(run: Run) -> bool:
    """Whether the job has, or may have, DeepSpeed in another way, or FSDP."""
    variables = {**run.environment, **run.effective.environment, **recipe_environment(run)}
    if run.deepspeed is not None or "fsdp" in run.arguments or any(map(_CHOOSES.match, variables)):
        return True
    if run.launch is None or run.launch.launcher != "accelerate":
        return False
    return run.accelerate is None and "multi_gpu" not in run.flags  # the config in the user's home decides


def _may_be_made_with_it(run: Run, late: LateDeepSpeed) -> bool:
    """Whether the parser that makes the arguments gets a DeepSpeed config for them."""
    if not late.parsed or run.script is None:
        return False
    recipe = run.recipe.data() if run.recipe is not None else None
    default = run.script.defaults.get("deepspeed")
    written = "deepspeed" in _line(run) or (isinstance(recipe, dict) and "deepspeed" in recipe)
    return written or (default is not None and default.value is not None)


def _line(run: Run) -> dict[str, Setting]:
    """The options of the script, as the launch line has them."""
    if run.launch is None or run.launch_file is None:
        return {}
    return settings(run.launch_file, run.launch.script_options)


def _is_filled(run: Run, late: LateDeepSpeed) -> bool | None:
    """Whether the value is a config; None where that is open."""
    value = resolve_option(late.value, _line(run)).value
    return (late.filled or None) if value is UNKNOWN else bool(value)


def _is_certain(run: Run, late: LateDeepSpeed) -> bool:
    """Whether the Trainer certainly gets no DeepSpeed: the job is started by a line all of whose words are known."""
    line = run.launch
    if line is None or run.missing or any(word.value is None for word in line.arguments):
        return False
    return late.sure and bool(_is_filled(run, late))


def _assignment(late: LateDeepSpeed) -> str:
    return f"`{late.holder}.deepspeed = {late.shown}`" if _is_short(late) else f"setting `{late.holder}.deepspeed`"


def _is_short(late: LateDeepSpeed) -> bool:
    return len(late.shown) <= _LONGEST


def _class(late: LateDeepSpeed) -> str:
    return late.kind.rpartition(".")[2]


def _consequence(run: Run, certain: bool) -> str:
    if certain:
        return "trains by plain data parallelism: each process holds all parameters, gradients and optimizer states"
    return "trains without DeepSpeed" + (" unless `accelerate launch` switches it on" if run.launch is None else "")


def _advice(late: LateDeepSpeed) -> str:
    if late.parsed:
        text = late.value.value
        return f"give the script --deepspeed{f' {text}' if isinstance(text, str) else ''} on the launch line"
    return f"write deepspeed={late.shown if _is_short(late) else '...'} in the call of {_class(late)}"
