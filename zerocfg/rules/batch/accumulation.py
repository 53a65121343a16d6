"""ZC2xx: gradient accumulation: who counts the steps, and how many."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from zerocfg.catalog.values import show, whole_number
from zerocfg.catalog.versions import only_below
from zerocfg.rules.api import WHOLE_RUN, Finding, Location, Severity, rule
from zerocfg.rules.arguments import under_deepspeed
from zerocfg.rules.batch.sizes import EACH_DIFFERENCE, DifferenceOfRun, disagreement, lacks_accumulation
from zerocfg.rules.calls import ACCELERATOR
from zerocfg.rules.effects import TRAINERS, WITH_ACCELERATE, describe_origin, effective_value, stage_of, under_trainer
from zerocfg.rules.failures import failures
from zerocfg.rules.fixes import giving
from zerocfg.rules.key import Key, accelerate, deepspeed, finding_at, from_origin, recipe, setting, trainer_argument
from zerocfg.rules.subjects import DEEPSPEED_CONFIG, EACH_CALL, CallOfRun, FailureOfRun, each_failure, in_deepspeed
from zerocfg.run.model import Run
from zerocfg.run.script import accelerator
from zerocfg.run.script.arguments import resolve_option
from zerocfg.run.stages.batches import STEPS, TRAIN

_TO_THE_SCRIPT = "leave it to the script's option"


@rule("ZC201", "accumulation-disagrees", Severity.ERROR, EACH_DIFFERENCE, consumers=TRAINERS)
def accumulation_disagrees(refused: DifferenceOfRun) -> Iterator[Finding]:
    run, difference = refused.run, refused.difference
    if difference.key != STEPS:
        return
    if difference.written.origin.kind == "computed" and run.deepspeed is not None:
        counted = f", for which accelerate puts {show(difference.written.value)}"
        asked = from_origin(run, difference.asked.origin, difference.asked.value)
        yield _without_steps(run, counted, asked, "train() stops at the difference")
    else:
        yield disagreement(run, difference)


@rule("ZC206", "accumulation-absent", Severity.ERROR, WHOLE_RUN, consumers=TRAINERS)
def accumulation_absent(run: Run) -> Iterator[Finding]:
    asked = trainer_argument(run, STEPS)
    if not lacks_accumulation(run) or asked.number in (None, 1):
        return
    if deepspeed(run).get(TRAIN) == "auto" or any(failures(run, "ZC203")):
        yield _without_steps(run, " and counts as 1", asked, "DeepSpeed refuses the batch sizes that come of it")


def _without_steps(run: Run, counted: str, asked: Key, consequence: str) -> Finding:
    """A DeepSpeed config that says nothing where the Trainer is asked for something."""
    ds = deepspeed(run)
    return ds.finding(
        f"{ds.file_name} has no `{STEPS}`{counted}, but the Trainer's is {show(asked.value)} "
        f"({describe_origin(asked.origin)}); {consequence}",
        f'add `"{STEPS}": "auto"` to {ds.file_name}',
        [asked],
        giving(ds[STEPS].set('"auto"', "let the Trainer fill it in"), STEPS, asked.value),
    )


@rule("ZC207", "accumulation-auto-without-trainer", Severity.ERROR, each_failure("ZC207"), consumers={"accelerate"})
def accumulation_auto_without_trainer(predicted: FailureOfRun) -> Iterator[Finding]:
    key = accelerate(predicted.run, "deepspeed_config", STEPS)
    if isinstance(key.value, float):
        return  # ZC104 says it
    yield predicted.finding(
        "write a whole number, or leave the key out: the script's own number then counts",
        message=f"{predicted.failure.message} and stops: only the Trainer fills an accumulation that is no whole "
        "number",
        fix=key.delete("leave it to the script") if key.value == "auto" else None,
    )


@rule("ZC208", "accumulation-two-numbers", Severity.WARNING, WHOLE_RUN)
def accumulation_two_numbers(run: Run) -> Iterator[Finding]:
    stated = accelerator.accumulation(run)
    if run.consumer == "accelerate" and stated.known and stated.origin.file is not None:
        return  # ZC249
    if run.consumer == "accelerate" and run.deepspeed_route == "accelerate":
        yield from _beaten_by_file(run)
    if under_trainer(run) or run.accelerate is None:
        return
    key, given = accelerate(run, "deepspeed_config", STEPS), run.arguments.get(STEPS)
    exported = run.effective.environment.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS")
    if given is None or exported is None or exported.origin.file is not run.accelerate:
        return
    numbers = whole_number(str(key.value)), whole_number(str(given.value))
    if None in numbers or numbers[0] == numbers[1]:
        return
    yield finding_at(
        run,
        (from_origin(run, exported.origin), from_origin(run, given.origin)),
        f"`{STEPS}` is {key.value} here but {given.value} on the launch line; with its own Accelerator() the script "
        "silently gets the first, and the Trainer stops at the difference",
        "keep one of the two",
        key.delete(_TO_THE_SCRIPT, safe=False),
    )


def _argument_wins(run: Run) -> bool:
    """Whether `Accelerator()` writes its own number into the DeepSpeed config, as it did before accelerate 0.23."""
    return run.deepspeed is not None and only_below(run.declared("accelerate"), "0.23")


def _beaten_by_file(run: Run) -> Iterator[Finding]:
    """The number of a DeepSpeed file, or the 1 that accelerate puts in for it."""
    given, ds = run.arguments.get(STEPS), deepspeed(run)
    asked = None if given is None else whole_number(str(given.value))
    if given is None or asked is None or not ds.section:
        return
    key = ds[STEPS]
    written = key.count if key else 1
    if written is None or written == asked or _argument_wins(run):
        return
    yield (key or ds).finding(
        f"`{STEPS}` is {written} here{'' if key else ', because the key is absent,'} but {given.value} on the "
        "launch line; accelerate takes this file's and logs a warning",
        f'write `"{STEPS}": "auto"`: the script\'s number then counts',
        [from_origin(run, given.origin)],
        key.set('"auto"', _TO_THE_SCRIPT, safe=False),
    )


@rule("ZC240", "accumulation-null", Severity.ERROR, in_deepspeed(STEPS), consumers=WITH_ACCELERATE)
def accumulation_null(key: Key) -> Iterator[Finding]:
    if key.value is not None or not under_deepspeed(key.run):
        return
    if key.run.deepspeed_route in ("accelerate", "trainer"):
        yield key.finding(
            f"`{STEPS}` is null; accelerate multiplies with it and stops in prepare()",
            'write "auto"',
            fix=key.replace('"auto"', 'write "auto"'),
        )


@rule("ZC241", "count-with-a-dot", Severity.ERROR, WHOLE_RUN)
def count_with_a_dot(run: Run) -> Iterator[Finding]:
    keys: list[Key] = []
    if under_trainer(run):
        keys += [recipe(run, name) for name in (STEPS, "per_device_train_batch_size")]
    if run.deepspeed_route in ("accelerate", "trainer") and not only_below(run.declared("deepspeed"), "0.19.3"):
        params = deepspeed(run, "scheduler", "params")
        keys += [params[name] for name in ("warmup_num_steps", "lr_range_test_step_size")]
    for key in keys:
        if not isinstance(key.value, float) or not isfinite(key.value):
            continue
        whole = key.value.is_integer()
        if whole or key.file is run.recipe:
            yield key.finding(
                f"`{key.name}: {key.raw}` is no whole number to its reader, which stops at it",
                "write it without the dot" if whole else "write a whole number",
                fix=key.replace(str(int(key.value)), "write a whole number") if whole else None,
                where="value",
            )


@rule(
    "ZC245",
    "unmanaged-accumulation-with-overlap",
    Severity.ERROR,
    DEEPSPEED_CONFIG,
    consumers={"deepspeed"},
    versions="deepspeed>=0.19.4",
)
def unmanaged_accumulation_with_overlap(config: Key) -> Iterator[Finding]:
    managed, stage = config["managed_gradient_accumulation"], stage_of(config.run)
    overlap = config["zero_optimization"]["overlap_comm"]
    if not managed or managed.value not in (False, None) or stage not in (0, 1):
        return
    if overlap and effective_value(config.run, "zero_optimization.overlap_comm") is True:
        yield overlap.finding(
            f"`overlap_comm` at ZeRO stage {stage} without managed accumulation; DeepSpeed stops when the engine is "
            "built",
            "switch overlap_comm off, or use stage 2",
            [managed.at(label="the other key")],
            overlap.replace("false", "switch overlap_comm off", safe=False),
        )


@rule("ZC248", "steps-per-print-zero", Severity.ERROR, DEEPSPEED_CONFIG, consumers={"deepspeed"})
def steps_per_print_zero(config: Key) -> Iterator[Finding]:
    key = config["steps_per_print"]
    if key.is_number(0):
        yield key.finding(
            "`steps_per_print: 0` is a divisor: the first optimizer step stops",
            "leave it out: then nothing is printed",
            fix=key.delete("remove the key"),
        )


@rule("ZC249", "accelerator-steps-beaten", Severity.ERROR, WHOLE_RUN, consumers={"accelerate"})
def accelerator_steps_beaten(run: Run) -> Iterator[Finding]:
    stated, used = accelerator.accumulation(run), setting(run, STEPS)
    if accelerator.is_open_option(run, STEPS) or stated.origin.file is None or not stated.known:
        return
    if used.number not in (None, stated.value) and not _argument_wins(run):
        yield finding_at(
            run,
            (from_origin(run, stated.origin), used),
            f"`Accelerator(gradient_accumulation_steps={stated.value})` is beaten: the job accumulates {used.value} "
            "steps",
            f"write {stated.value} in the config as well, or {used.value} here",
        )


@rule("ZC251", "accumulation-given-twice", Severity.ERROR, EACH_CALL)
def accumulation_given_twice(made: CallOfRun) -> Iterator[Finding]:
    call = made.call
    given = call.arguments.get("gradient_accumulation_steps")
    plugin = call.objects.get("gradient_accumulation_plugin")
    if given is None or given.origin.file is None or plugin is None or call.derived or call.name != ACCELERATOR:
        return
    steps = resolve_option(given, made.run.arguments)
    if steps.known and whole_number(str(steps.value)) not in (None, 1):
        place = Location(given.origin.file, span=given.origin.span)
        yield Finding(
            place,
            f"`gradient_accumulation_steps` is {show(steps.value)} and a `gradient_accumulation_plugin` is "
            "given as well: Accelerator() raises ValueError",
            f"leave it out, and give the number to {plugin.rpartition('.')[2]}(num_steps=...)",
        )
