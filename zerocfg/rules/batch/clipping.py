"""ZC2xx: gradient clipping, by whoever asks for it. See also :mod:`overridden`."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.batch.hyperparameters import number
from zerocfg.rules.effects import TRAINERS, accelerate_section, deepspeed_data, describe_origin
from zerocfg.rules.failures import primary_location
from zerocfg.rules.fixes import edited, replace_at
from zerocfg.run.model import Run
from zerocfg.source.edit import insert_entry, replace_value
from zerocfg.source.node import Path

_CLIP = "gradient_clipping"


@rule("ZC237", "clipping-null", Severity.ERROR)
def clipping_null(run: Run) -> Iterator[Finding]:
    if run.deepspeed is None or deepspeed_data(run).get(_CLIP, "") is not None:
        return
    text = '"auto"' if run.consumer in TRAINERS else "0"
    yield Finding(
        Location(run.deepspeed, (_CLIP,)),
        "`gradient_clipping` is null; DeepSpeed compares it with a number in the first step and stops",
        'write "auto" and set max_grad_norm' if run.consumer in TRAINERS else "write 0 for no clipping, or a number",
        fix=edited(replace_value, run.deepspeed, (_CLIP,), text, why=f"write {text}", safe=False)
        if run.consumer is not None
        else None,
    )


@rule("ZC238", "clipping-negative", Severity.NOTE)
def clipping_negative(run: Run) -> Iterator[Finding]:
    setting = run.effective.get(_CLIP)
    if setting is None or not number(setting.value) or not setting.value < 0 or setting.origin.file is None:
        return
    if setting.origin.file is run.accelerate:
        return  # there 0 counts as not set, and a negative number is the only way to say it
    location, related = primary_location(run, [setting.origin])
    yield Finding(
        location,
        f"a clipping of {show(setting.value)} counts as no clipping",
        "write 0 where no clipping is meant",
        related,
        replace_at(setting.origin, "0.0", "write 0, no clipping"),
    )


@rule("ZC239", "clipping-of-script-without-effect", Severity.WARNING, consumers={"accelerate"})
def clipping_of_script_without_effect(run: Run) -> Iterator[Finding]:
    given, setting = run.arguments.get("max_grad_norm"), run.effective.get(_CLIP)
    if given is None or setting is None or not number(setting.value) or run.effective.value("engine") != "deepspeed":
        return
    try:
        asked = float(given.value)
    except (TypeError, ValueError):
        return
    if asked == setting.value:
        return
    location, related = primary_location(run, [given.origin, setting.origin])
    yield Finding(
        location,
        f"`--max_grad_norm {show(given.value).strip(chr(34))}` has no effect under DeepSpeed, which clips at "
        f"{show(setting.value)} ({describe_origin(setting.origin)})",
        "write the number as `gradient_clipping` into the config",
        related,
        _told(run, str(given.value)) if asked > 0 else None,
    )


def _told(run: Run, text: str) -> Fix | None:
    """The script's number in the file that DeepSpeed's config comes from."""
    why = f"clip at {text}"
    in_json = run.deepspeed is not None
    file = run.deepspeed if in_json else run.accelerate
    parent: Path = () if in_json else ("deepspeed_config",)
    if _CLIP in (deepspeed_data(run) if in_json else accelerate_section(run)):
        return edited(replace_value, file, (*parent, _CLIP), text, why=why, safe=False)
    return edited(insert_entry, file, parent, _CLIP, text, why=why, safe=False)
