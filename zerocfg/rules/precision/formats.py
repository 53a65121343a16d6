"""ZC3xx: bf16 and fp16, which the launcher, the training arguments and the DeepSpeed config can each set."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.schema import load_schema
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Location, Severity, rule
from zerocfg.rules.batch.sizes import disagreement, mismatches
from zerocfg.rules.effects import TRAINERS, WITH_ACCELERATE, describe_origin, effective_value, under_trainer
from zerocfg.rules.failures import failures
from zerocfg.rules.key import Key, deepspeed, finding_at, from_origin, recipe, setting
from zerocfg.rules.line import all_arguments_seen, started_by
from zerocfg.rules.release_scope import uses_plugin
from zerocfg.rules.subjects import DEEPSPEED_CONFIG, FailureOfRun, each_failure
from zerocfg.run.model import UNKNOWN, Origin, Run
from zerocfg.run.templates import opened_by_script

_NAMES: dict[str, str] = load_schema("accelerate").root.keys["mixed_precision"].facts["setting"]
"""By value of `mixed_precision`: the DeepSpeed setting that it switches on."""
_PRECISION = "mixed_precision"


@rule("ZC301", "fp16-and-bf16", Severity.ERROR, each_failure("ZC301"))
def fp16_and_bf16(predicted: FailureOfRun) -> Iterator[Finding]:
    by_deepspeed, keys = predicted.failure.kind.startswith("ds-"), predicted.keys
    if by_deepspeed and any(failures(predicted.run, "ZC303")):
        return  # accelerate stops before DeepSpeed reads its config
    who = "DeepSpeed" if by_deepspeed else "the Trainer"
    yield finding_at(
        predicted.run,
        keys,
        f"fp16 and bf16 are both on; {who} stops at it",
        "keep one of them",
        keys[0].replace("false", "keep bf16", safe=False),
    )


@rule("ZC302", "precision-disagrees-with-trainer", Severity.ERROR, WHOLE_RUN, consumers=TRAINERS)
def precision_disagrees_with_trainer(run: Run) -> Iterator[Finding]:
    if any(failures(run, "ZC303")):
        return  # Trainer() stops at that before train() compares
    for mismatch in mismatches(run):
        if mismatch.key not in _NAMES.values():
            continue
        finding = disagreement(run, mismatch)
        kind = mismatch.key.split(".")[0]
        in_json = run.deepspeed is not None and mismatch.written.origin.file is run.deepspeed
        if mismatch.written.value is True:
            # "auto" would silence the Trainer too, but by training in fp32.
            finding.help = f"write `{kind}: true` in the training arguments" + (', and "auto" here' if in_json else "")
            finding.fix = _switch_on(run, kind, mismatch.asked.origin)
        elif not in_json:  # "auto" is no value for the launcher
            finding.help = f"ask for {kind} in both places: the launcher's `mixed_precision: {kind}`"
            finding.fix = None
        yield finding


def _switch_on(run: Run, kind: str, argument: Origin) -> Fix | None:
    """A fix that switches the precision on in the recipe; None if something else than the recipe sets it."""
    why = f"write {kind}: true in the training arguments"
    if argument.kind == "file":
        return from_origin(run, argument).replace("true", why, safe=False)
    if argument.kind == "default" and kind not in run.arguments:
        return recipe(run, kind).set("true", why, safe=False)
    return None


@rule("ZC303", "precision-conflict", Severity.ERROR, each_failure("ZC303"))
def precision_conflict(predicted: FailureOfRun) -> Iterator[Finding]:
    if not uses_plugin(predicted.run):
        return
    (asked, enabled), keys = predicted.failure.about, predicted.keys
    by = describe_origin(keys[1].origin)
    yield finding_at(
        predicted.run,
        keys,
        f"`{enabled}` is on here but {asked} is asked for {by}; accelerate stops at the difference",
        "say one of the two in both places",
        keys[0].replace("false", f"train in {asked}", safe=False),
    )


@rule(
    "ZC304",
    "precision-auto-without-filler",
    Severity.ERROR,
    DEEPSPEED_CONFIG,
    consumers={"deepspeed"},
    versions="deepspeed>=0.17.1",
)
def precision_auto_without_filler(config: Key) -> Iterator[Finding]:
    switches = [config[kind]["enabled"] for kind in _NAMES]
    autos = [key for key in switches if key.value == "auto"]
    if not autos or any(key.value is True for key in switches) or opened_by_script(config.run):
        return
    key, kind = autos[0], autos[0].path[0]
    yield key.finding(
        f'`{kind}.enabled` is "auto", which nobody fills for deepspeed.initialize: it counts as false and the job '
        "trains in fp32",
        "write true or false",
        autos[1:],
        key.replace("true", f"switch {kind} on", safe=False) if len(autos) == 1 else None,
    )


@rule("ZC305", "precision-lost", Severity.ERROR, WHOLE_RUN, consumers=WITH_ACCELERATE)
def precision_lost(run: Run) -> Iterator[Finding]:
    asked = run.effective.get("mixed_precision")
    if asked is None or str(asked.value) not in _NAMES or effective_value(run, "engine") != "deepspeed":
        return
    enabled = run.effective.get(_NAMES[str(asked.value)])
    if enabled is None or enabled.value is not False or run.effective.failures:
        return
    kind = str(asked.value)
    key, here = deepspeed(run, kind, "enabled"), from_origin(run, enabled.origin)
    if key.value == "auto":
        if not under_trainer(run) or (run.recipe is None and not run.arguments):
            return
        yield from_origin(run, asked.origin).finding(
            f"{kind} is asked for {describe_origin(asked.origin)} but not in the training arguments, from which the "
            f"Trainer fills `{kind}.enabled`; DeepSpeed silently trains in fp32",
            f"write `{kind}: true` in the training arguments",
            [key],
        )
    elif here.file is not None and here.file is run.deepspeed:
        yield finding_at(
            run,
            (here, from_origin(run, asked.origin)),
            f"`{kind}.enabled` is false here but {kind} is asked for {describe_origin(asked.origin)}; DeepSpeed "
            "silently trains in fp32",
            'write "auto" or true',
            here.replace('"auto"', 'let accelerate fill it in: "auto"', safe=False),
        )


@rule("ZC307", "msamp-with-zero3", Severity.ERROR, each_failure("ZC307"), versions="accelerate>=1.0")
def msamp_with_zero3(predicted: FailureOfRun) -> Iterator[Finding]:
    fix = setting(predicted.run, "zero_optimization.stage").replace("2", "use ZeRO stage 2", safe=False)
    yield predicted.finding("use a lower stage or another fp8 backend", fix)


@rule("ZC308", "precision-of-launcher-beaten", Severity.WARNING, WHOLE_RUN, consumers=WITH_ACCELERATE)
def precision_of_launcher_beaten(run: Run) -> Iterator[Finding]:
    used = run.effective.get("mixed_precision")
    if used is None or str(used.value) not in _NAMES:
        return
    for beaten in used.overridden:
        if beaten.value is UNKNOWN or str(beaten.value) not in _NAMES or beaten.value == used.value:
            continue
        if any(failure.kind == "ds-precision-conflict" for failure in run.effective.failures):
            continue
        key = from_origin(run, beaten.origin)
        yield finding_at(
            run,
            (key, from_origin(run, used.origin)),
            f"{beaten.value} is asked for {describe_origin(beaten.origin)} but {used.value} "
            f"{describe_origin(used.origin)}; the {_winner(run, used.origin)} and the job silently trains in "
            f"{used.value}",
            f"say {used.value} in both places",
            key.delete("remove the beaten value", safe=False),
        )


def _winner(run: Run, origin: Origin) -> str:
    """What decides the precision, as the subject and verb of a sentence."""
    if run.launch is not None and any(option.span == origin.span for option in run.launch.options):
        return "launcher's option wins over its file"
    if origin.kind == "environment":
        return "variable wins"
    return "argument of Accelerator wins" if run.consumer == "accelerate" else "training arguments win"


@rule("ZC332", "launcher-precision-unseen", Severity.WARNING, WHOLE_RUN, consumers={"accelerate"})
def launcher_precision_unseen(run: Run) -> Iterator[Finding]:
    used, script = run.effective.get("mixed_precision"), run.script
    if used is None or script is None or str(used.value) not in _NAMES or used.origin.file is None:
        return
    if not started_by(run, "accelerate") or _PRECISION in run.arguments or not all_arguments_seen(run):
        return
    for comparison in script.comparisons:
        if comparison.option != _PRECISION or comparison.default is not None or used.value not in comparison.values:
            continue
        yield Finding(
            from_origin(run, used.origin).at(),
            f"{used.value} is asked for {describe_origin(used.origin)}, which only Accelerator sees: the script's own "
            f"option `{_PRECISION}` is None, and what it does for {used.value} is left out, while the job trains in "
            f"{used.value}",
            f"give `--mixed_precision={used.value}` to the script too, behind its name, or compare "
            "`accelerator.mixed_precision`",
            [Location(script.file, span=comparison.origin.span, label="None here")],
        )
        return
