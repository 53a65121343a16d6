"""ZC2xx: gradient clipping, by whoever asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from zerocfg.catalog.values import show
from zerocfg.catalog.versions import Release, text
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.arguments import under_deepspeed
from zerocfg.rules.effects import TRAINERS, admitted, admitting, describe_origin, under_trainer
from zerocfg.rules.fixes import giving
from zerocfg.rules.key import Key, accelerate, deepspeed, finding_at, from_origin, setting, trainer_argument
from zerocfg.rules.subjects import effective_setting, in_deepspeed
from zerocfg.run.model import Run
from zerocfg.run.stages.parser import parser_of

_CLIP = "gradient_clipping"


@rule("ZC209", "clipping-not-passed-on", Severity.ERROR, WHOLE_RUN, consumers=TRAINERS)
def clipping_not_passed_on(run: Run) -> Iterator[Finding]:
    ds = deepspeed(run)
    if not ds.section or _CLIP in ds or not under_deepspeed(run):
        return
    asked, defaults = trainer_argument(run, "max_grad_norm"), parser_of(run).defaults(_CLIP)
    if not asked or not isinstance(asked.value, (int, float)) or any(asked.value == value for _, value in defaults):
        return
    older = not all(value for _, value in defaults)  # a release before the default was a number
    because = f" ({admitted(run, 'deepspeed')})" if older else ""
    yield asked.finding(
        f"max_grad_norm {asked.value} does not reach DeepSpeed: {ds.file_name} has no `{_CLIP}`, "
        f"so the engine silently {_clips(defaults)}{because}",
        f'add "{_CLIP}": "auto" to {ds.file_name}',
        [ds, *(admitting(run, "deepspeed") if older else ())],
        giving(ds[_CLIP].set('"auto"', "let the Trainer pass it on"), _CLIP, asked.value),
    )


def _clips(defaults: Sequence[tuple[Release, float]]) -> str:
    """What an engine does that is told nothing, in each of the admitted releases that differ."""
    words = ""
    for since, value in defaults:
        words += f", and from DeepSpeed {text(since)} on " if words else ""
        words += f"clips at its default, {value}" if value else f"clips nothing, as its default is {value}"
    return words


@rule("ZC210", "clipping-cannot-be-switched-off-here", Severity.ERROR, WHOLE_RUN, versions="deepspeed>=0.19.3")
def clipping_cannot_be_switched_off(run: Run) -> Iterator[Finding]:
    exported = run.effective.environment.get("ACCELERATE_GRADIENT_CLIPPING")
    in_json = run.deepspeed is not None or "ACCELERATE_DEEPSPEED_CONFIG_FILE" in run.effective.environment
    if exported is None or in_json or not under_deepspeed(run):
        return
    if _float(exported.value) == 0:
        key = from_origin(run, exported.origin)
        yield key.finding(
            f"`gradient_clipping: {exported.value}` counts as not set; DeepSpeed silently clips at its default, 1.0",
            'write -1, or put "gradient_clipping": 0 into a DeepSpeed JSON named in `deepspeed_config_file`',
            fix=key.replace("-1", "write -1, no clipping") if run.consumer == "accelerate" else None,
        )


@rule("ZC237", "clipping-null", Severity.ERROR, in_deepspeed(_CLIP))
def clipping_null(key: Key) -> Iterator[Finding]:
    if key.value is not None:
        return
    trainer = under_trainer(key.run)
    value = '"auto"' if trainer else "0"
    yield key.finding(
        "`gradient_clipping` is null; DeepSpeed compares it with a number in the first step and stops",
        'write "auto" and set max_grad_norm' if trainer else "write 0 for no clipping, or a number",
        fix=key.replace(value, f"write {value}", safe=False) if key.run.consumer is not None else None,
    )


@rule("ZC238", "clipping-negative", Severity.NOTE, effective_setting(_CLIP))
def clipping_negative(key: Key) -> Iterator[Finding]:
    # In the YAML of accelerate 0 counts as not set, and a negative number is the only way to say it.
    if key.number is not None and key.number < 0 and key.file not in (None, key.run.accelerate):
        yield key.finding(
            f"a clipping of {show(key.value)} counts as no clipping",
            "write 0 where no clipping is meant",
            fix=key.replace("0.0", "write 0, no clipping"),
        )


@rule("ZC239", "clipping-of-script-without-effect", Severity.WARNING, WHOLE_RUN, consumers={"accelerate"})
def clipping_of_script_without_effect(run: Run) -> Iterator[Finding]:
    given, used = run.arguments.get("max_grad_norm"), setting(run, _CLIP)
    if given is None or used.number is None or not under_deepspeed(run):
        return
    asked = _float(given.value)
    if asked is None or asked == used.number:
        return
    key = deepspeed(run, _CLIP) if run.deepspeed is not None else accelerate(run, "deepspeed_config", _CLIP)
    yield finding_at(
        run,
        (from_origin(run, given.origin), used),
        f"`--max_grad_norm {show(given.value).strip(chr(34))}` has no effect under DeepSpeed, which clips at "
        f"{show(used.value)} ({describe_origin(used.origin)})",
        "write the number as `gradient_clipping` into the config",
        key.set(str(given.value), f"clip at {given.value}", safe=False) if asked > 0 else None,
    )


def _float(value: Any) -> float | None:
    """A word as its reader converts it."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None
