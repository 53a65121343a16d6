"""ZC329 and ZC330: what training arguments and the model say about precision, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.arguments import given
from zerocfg.rules.effects import TRAINERS, accelerate_data
from zerocfg.rules.key import deepspeed, from_origin, recipe, setting
from zerocfg.rules.precision.dtypes import precision_of
from zerocfg.run.model import Run


@rule("ZC329", "evaluation-precision-trains", Severity.WARNING, WHOLE_RUN, consumers=TRAINERS)
def evaluation_precision_trains(run: Run) -> Iterator[Finding]:
    for kind in ("bf16", "fp16"):
        asked, plain, enabled = given(run, f"{kind}_full_eval"), given(run, kind), deepspeed(run, kind, "enabled")
        if asked is None or asked.value is not True or (plain is not None and plain.value is not False):
            continue
        if enabled.value != "auto" or precision_of(run) != kind:
            continue
        if accelerate_data(run).get("mixed_precision") or "mixed_precision" in run.flags:
            continue
        in_file = plain is None and asked.origin.kind == "file"
        yield from_origin(run, asked.origin).finding(
            f"with DeepSpeed `{kind}_full_eval` switches {kind} on for training too, which nothing else asks for",
            f"write `{kind}: true` if that is wanted, or take this argument out",
            [enabled],
            recipe(run, kind).set("true", f"say that training is in {kind}", safe=False) if in_file else None,
        )


@rule("ZC330", "fp16-of-bf16-model", Severity.WARNING, WHOLE_RUN, needs={"model"})
def fp16_of_bf16_model(run: Run) -> Iterator[Finding]:
    if run.model is None or run.model.dtype not in ("bfloat16", "bf16") or precision_of(run) != "fp16":
        return
    asked, effective = given(run, "fp16"), setting(run, "fp16.enabled")
    key = from_origin(run, asked.origin) if asked is not None and asked.value is True else effective
    if not key:
        return
    sections = deepspeed(run, "fp16", "enabled").value is True or deepspeed(run, "bf16", "enabled").value is False
    written = recipe(run)
    movable = written.get("fp16") is True and "bf16" not in written and "fp16" not in run.arguments and not sections
    yield key.finding(
        f"{run.model.name} was saved in bf16, whose range fp16 does not have; its inner values can become infinite",
        "train in bf16",
        fix=written["fp16"].rename("bf16", "train in bf16", safe=False) if movable else None,
    )
