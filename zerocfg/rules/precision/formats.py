"""ZC3xx: bf16 and fp16, which three places may each decide in their own way."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.schema import load_schema
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.batch.sizes import disagreement, mismatches
from zerocfg.rules.effects import TRAINERS, describe_origin, effective_value, section
from zerocfg.rules.failures import failures, primary_location, reported
from zerocfg.rules.fixes import edited, replace_at
from zerocfg.run.model import UNKNOWN, Origin, Run
from zerocfg.source.edit import delete_entry, insert_entry, replace_value

_NAMES: dict[str, str] = load_schema("accelerate").root.keys["mixed_precision"].facts["setting"]
"""The word of a precision, and the setting that it turns on."""


@rule("ZC301", "fp16-and-bf16", Severity.ERROR)
def fp16_and_bf16(run: Run) -> Iterator[Finding]:
    conflict = any(True for _ in failures(run, "ZC303"))
    for failure in failures(run, "ZC301"):
        if conflict and failure.kind.startswith("ds-"):
            continue  # accelerate stops before DeepSpeed reads its config
        location, related = primary_location(run, failure.places)
        who = "DeepSpeed" if failure.kind.startswith("ds-") else "the Trainer"
        yield Finding(
            location,
            f"fp16 and bf16 are both on; {who} stops at it",
            "keep one of them",
            related,
            replace_at(failure.places[0], "false", "keep bf16", safe=False),
        )


@rule("ZC302", "precision-disagrees-with-trainer", Severity.ERROR, consumers=TRAINERS)
def precision_disagrees_with_trainer(run: Run) -> Iterator[Finding]:
    for one in mismatches(run):
        if one.key not in _NAMES.values():
            continue
        finding = disagreement(run, one)
        kind = one.key.split(".")[0]
        in_json = run.deepspeed is not None and one.written.origin.file is run.deepspeed
        if one.written.value is True:
            # "auto" would silence the Trainer too, but by training in fp32.
            finding.help = f"write `{kind}: true` in the training arguments" + (', and "auto" here' if in_json else "")
            finding.fix = _switch_on(run, kind, one.asked.origin)
        elif not in_json:  # where the launcher is told, "auto" is no precision
            finding.help = f"ask for {kind} in both places: the launcher's `mixed_precision: {kind}`"
            finding.fix = None
        yield finding


def _switch_on(run: Run, kind: str, argument: Origin) -> Fix | None:
    """The precision in the recipe, where it is false or not written."""
    why = f"write {kind}: true in the training arguments"
    if argument.kind == "file":
        return edited(replace_value, argument.file, argument.path, "true", why=why, safe=False)
    if argument.kind == "default" and run.recipe is not None and kind not in run.arguments:
        return edited(insert_entry, run.recipe, (), kind, "true", why=why, safe=False)
    return None


@rule("ZC303", "precision-conflict", Severity.ERROR)
def precision_conflict(run: Run) -> Iterator[Finding]:
    for failure in failures(run, "ZC303"):
        location, related = primary_location(run, failure.places)
        asked, enabled = failure.about
        by = describe_origin(failure.places[1])
        yield Finding(
            location,
            f"`{enabled}` is on here but {asked} is asked for {by}; accelerate stops at the difference",
            "say one of the two in both places",
            related,
            replace_at(failure.places[0], "false", f"train in {asked}", safe=False),
        )


@rule("ZC304", "precision-auto-without-filler", Severity.ERROR, consumers={"deepspeed"}, versions="deepspeed>=0.17.1")
def precision_auto_without_filler(run: Run) -> Iterator[Finding]:
    autos = [kind for kind in _NAMES if section(run, kind).get("enabled") == "auto"]
    others = [kind for kind in _NAMES if section(run, kind).get("enabled") is True]
    if run.deepspeed is None or not autos or others:
        return
    kind = autos[0]
    path = (kind, "enabled")
    yield Finding(
        Location(run.deepspeed, path),
        f'`{kind}.enabled` is "auto", which nobody fills for deepspeed.initialize: it counts as false and the job '
        "trains in fp32",
        "write true or false",
        [Location(run.deepspeed, (other, "enabled")) for other in autos[1:]],
        edited(replace_value, run.deepspeed, path, "true", why=f"switch {kind} on", safe=False)
        if len(autos) == 1
        else None,
    )


@rule("ZC305", "precision-lost", Severity.ERROR, consumers={"accelerate", *TRAINERS})
def precision_lost(run: Run) -> Iterator[Finding]:
    asked = run.effective.get("mixed_precision")
    if asked is None or str(asked.value) not in _NAMES or effective_value(run, "engine") != "deepspeed":
        return
    enabled = run.effective.get(_NAMES[str(asked.value)])
    if enabled is None or enabled.value is not False or run.effective.failures:
        return
    kind = str(asked.value)
    file, path = enabled.origin.file, enabled.origin.path
    written = section(run, kind).get("enabled")
    if written == "auto":
        if run.consumer not in TRAINERS or (run.recipe is None and not run.arguments):
            return
        location, related = primary_location(run, [asked.origin])
        yield Finding(
            location,
            f"{kind} is asked for {describe_origin(asked.origin)} but not in the training arguments, from which the "
            f"Trainer fills `{kind}.enabled`; DeepSpeed silently trains in fp32",
            f"write `{kind}: true` in the training arguments",
            related + ([Location(run.deepspeed, (kind, "enabled"))] if run.deepspeed else []),
        )
    elif file is not None and file is run.deepspeed:
        location, related = primary_location(run, [enabled.origin, asked.origin])
        yield Finding(
            location,
            f"`{kind}.enabled` is false here but {kind} is asked for {describe_origin(asked.origin)}; DeepSpeed "
            "silently trains in fp32",
            'write "auto" or true',
            related,
            edited(replace_value, file, path, '"auto"', why='let accelerate fill it in: "auto"', safe=False),
        )


@rule("ZC307", "msamp-with-zero3", Severity.ERROR, versions="accelerate>=1.0")
def msamp_with_zero3(run: Run) -> Iterator[Finding]:
    stage = run.effective.get("zero_optimization.stage")
    for failure in failures(run, "ZC307"):
        finding = reported(run, failure, "use a lower stage or another fp8 backend")
        if stage is not None:
            finding.fix = replace_at(stage.origin, "2", "use ZeRO stage 2", safe=False)
        yield finding


@rule("ZC308", "precision-of-launcher-beaten", Severity.WARNING, consumers=TRAINERS | {"accelerate"})
def precision_of_launcher_beaten(run: Run) -> Iterator[Finding]:
    own_loop = run.consumer == "accelerate"
    used = run.effective.get("mixed_precision")
    if used is None or str(used.value) not in _NAMES:
        return
    for beaten in used.overridden:
        if beaten.value is UNKNOWN or str(beaten.value) not in _NAMES or beaten.value == used.value:
            continue
        if any(failure.kind == "ds-precision-conflict" for failure in run.effective.failures):
            continue
        location, related = primary_location(run, [beaten.origin, used.origin])
        file = beaten.origin.file if beaten.origin.kind == "file" else None
        winner = "argument of Accelerator wins" if own_loop else "training arguments win"
        yield Finding(
            location,
            f"{beaten.value} is asked for {describe_origin(beaten.origin)} but {used.value} "
            f"{describe_origin(used.origin)}; the {winner} and the job silently trains in {used.value}",
            f"say {used.value} in both places",
            related,
            edited(delete_entry, file, beaten.origin.path, why="remove the beaten value", safe=False),
        )
