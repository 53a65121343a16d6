"""ZC329 and ZC330: what training arguments and the model say about precision, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.arguments import given
from zerocfg.rules.effects import TRAINERS, accelerate_data, recipe_data, section
from zerocfg.rules.failures import primary_location
from zerocfg.rules.fixes import edited
from zerocfg.rules.precision.dtypes import precision_of
from zerocfg.run.model import Run
from zerocfg.source.edit import insert_entry, rename_key


@rule("ZC329", "evaluation-precision-trains", Severity.WARNING, consumers=TRAINERS)
def evaluation_precision_trains(run: Run) -> Iterator[Finding]:
    for kind in ("bf16", "fp16"):
        asked, plain = given(run, f"{kind}_full_eval"), given(run, kind)
        if asked is None or asked.value is not True or (plain is not None and plain.value is not False):
            continue
        if section(run, kind).get("enabled") != "auto" or run.deepspeed is None or precision_of(run) != kind:
            continue
        if accelerate_data(run).get("mixed_precision") or "mixed_precision" in run.flags:
            continue
        location, _ = primary_location(run, [asked.origin])
        fix = None
        if plain is None and asked.origin.kind == "file":
            fix = edited(insert_entry, run.recipe, (), kind, "true", why=f"say that training is in {kind}", safe=False)
        yield Finding(
            location,
            f"with DeepSpeed `{kind}_full_eval` switches {kind} on for training too, which nothing else asks for",
            f"write `{kind}: true` if that is wanted, or take this argument out",
            [Location(run.deepspeed, (kind, "enabled"))],
            fix,
        )


@rule("ZC330", "fp16-of-bf16-model", Severity.WARNING, needs={"model"})
def fp16_of_bf16_model(run: Run) -> Iterator[Finding]:
    if run.model is None or run.model.dtype not in ("bfloat16", "bf16") or precision_of(run) != "fp16":
        return
    setting = run.effective.get("fp16.enabled")
    asked = given(run, "fp16")
    place = asked.origin if asked is not None and asked.value is True else setting.origin if setting else None
    if place is None:
        return
    location, _ = primary_location(run, [place])
    fix = None
    sections = section(run, "fp16").get("enabled") is True or section(run, "bf16").get("enabled") is False
    written = recipe_data(run)
    if written.get("fp16") is True and "bf16" not in written and "fp16" not in run.arguments and not sections:
        fix = edited(rename_key, run.recipe, ("fp16",), "bf16", why="train in bf16", safe=False)
    yield Finding(
        location,
        f"{run.model.name} was saved in bf16, whose range fp16 does not have; its inner values can become infinite",
        "train in bf16",
        fix=fix,
    )
