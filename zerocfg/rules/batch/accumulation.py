"""ZC2xx: how micro batches and steps are counted."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from zerocfg.catalog.values import show
from zerocfg.catalog.versions import only_below
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.batch.hyperparameters import number
from zerocfg.rules.batch.sizes import lacks_accumulation
from zerocfg.rules.effects import TRAINERS, WITH_ACCELERATE, deepspeed_data, describe_origin, effective_value, stage_of
from zerocfg.rules.failures import failures, primary_location
from zerocfg.rules.fixes import edited, giving, present
from zerocfg.run.model import Origin, Run, SourceFile
from zerocfg.run.script import accelerator
from zerocfg.run.stages.arguments import arguments_of
from zerocfg.run.stages.batches import STEPS, TRAIN
from zerocfg.source.edit import delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path, Scalar


@rule("ZC206", "accumulation-absent", Severity.ERROR, consumers=TRAINERS)
def accumulation_absent(run: Run) -> Iterator[Finding]:
    if not lacks_accumulation(run) or run.deepspeed is None:
        return
    steps = _trainer_value(run, STEPS)
    if steps is None or steps[0] == 1:
        return
    if deepspeed_data(run).get(TRAIN) != "auto" and not any(True for _ in failures(run, "ZC203")):
        return
    value, place = steps
    location, related = primary_location(run, [place])
    yield Finding(
        Location(run.deepspeed),
        f"{run.deepspeed.name} has no `{STEPS}` and counts as 1, but the Trainer's is {show(value)} "
        f"({describe_origin(place)}); "
        "DeepSpeed refuses the batch sizes that come of it",
        f'add `"{STEPS}": "auto"` to {run.deepspeed.name}',
        [location, *related],
        giving(
            edited(insert_entry, run.deepspeed, (), STEPS, '"auto"', why="let the Trainer fill it in"), STEPS, value
        ),
    )


def _trainer_value(run: Run, name: str) -> tuple[object, Origin] | None:
    """A number that the recipe or the command line gives to the Trainer."""
    setting = arguments_of(run).values.get(name)
    if setting is None or not isinstance(setting.value, (int, float)):
        return None
    return setting.value, setting.origin


@rule("ZC240", "accumulation-null", Severity.ERROR, consumers=WITH_ACCELERATE)
def accumulation_null(run: Run) -> Iterator[Finding]:
    data = deepspeed_data(run)
    if run.deepspeed is None or data.get(STEPS, "") is not None or effective_value(run, "engine") != "deepspeed":
        return
    if run.deepspeed_route not in ("accelerate", "trainer"):
        return
    yield Finding(
        Location(run.deepspeed, (STEPS,)),
        f"`{STEPS}` is null; accelerate multiplies with it and stops in prepare()",
        'write "auto"',
        fix=edited(replace_value, run.deepspeed, (STEPS,), '"auto"', why='write "auto"'),
    )


_WHOLE_IN_JSON: tuple[Path, ...] = (
    ("scheduler", "params", "warmup_num_steps"),
    ("scheduler", "params", "lr_range_test_step_size"),
)
_WHOLE_IN_RECIPE = (STEPS, "per_device_train_batch_size")


@rule("ZC241", "count-with-a-dot", Severity.ERROR)
def count_with_a_dot(run: Run) -> Iterator[Finding]:
    places: list[tuple[SourceFile | None, Path]] = []
    if run.consumer in TRAINERS:
        places += [(run.recipe, (name,)) for name in _WHOLE_IN_RECIPE]
    if run.deepspeed_route in ("accelerate", "trainer") and not only_below(run.versions.get("deepspeed"), "0.19.3"):
        places += [(run.deepspeed, path) for path in _WHOLE_IN_JSON]
    for file, path in places:
        node = file.document.get(path) if file is not None and file.document is not None else None
        if file is None or not isinstance(node, Scalar) or not isinstance(node.value, float):
            continue
        value = node.value
        if not isfinite(value) or (file is run.deepspeed and not value.is_integer()):
            continue
        fix = None
        if value.is_integer():
            fix = edited(replace_value, file, path, str(int(value)), why="write a whole number")
        yield Finding(
            Location(file, path, "value"),
            f"`{path[-1]}: {node.raw}` is no whole number to its reader, which stops at it",
            "write it without the dot" if fix else "write a whole number",
            fix=fix,
        )


def _unmanaged(run: Run) -> bool:
    data = deepspeed_data(run)
    if only_below(run.versions.get("deepspeed"), "0.19.4"):
        return False  # the key is not read there
    value = data.get("managed_gradient_accumulation", True)
    return run.deepspeed is not None and value in (False, None) and "managed_gradient_accumulation" in data


@rule(
    "ZC245",
    "unmanaged-accumulation-with-overlap",
    Severity.ERROR,
    consumers={"deepspeed"},
    versions="deepspeed>=0.19.4",
)
def unmanaged_accumulation_with_overlap(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    if not _unmanaged(run) or run.deepspeed is None or stage not in (0, 1):
        return
    path: Path = ("zero_optimization", "overlap_comm")
    if effective_value(run, "zero_optimization.overlap_comm") is not True or not present(run.deepspeed, path):
        return
    yield Finding(
        Location(run.deepspeed, path),
        f"`overlap_comm` at ZeRO stage {stage} without managed accumulation; DeepSpeed stops when the engine is built",
        "switch overlap_comm off, or use stage 2",
        [Location(run.deepspeed, ("managed_gradient_accumulation",), label="the other key")],
        edited(replace_value, run.deepspeed, path, "false", why="switch overlap_comm off", safe=False),
    )


@rule("ZC248", "steps-per-print-zero", Severity.ERROR, consumers={"deepspeed"})
def steps_per_print_zero(run: Run) -> Iterator[Finding]:
    value = deepspeed_data(run).get("steps_per_print")
    if run.deepspeed is None or not number(value) or value != 0:
        return
    yield Finding(
        Location(run.deepspeed, ("steps_per_print",)),
        "`steps_per_print: 0` is a divisor: the first optimizer step stops",
        "leave it out: then nothing is printed",
        fix=edited(delete_entry, run.deepspeed, ("steps_per_print",), why="remove the key"),
    )


@rule("ZC249", "accelerator-steps-beaten", Severity.ERROR, consumers={"accelerate"})
def accelerator_steps_beaten(run: Run) -> Iterator[Finding]:
    if accelerator.is_open_option(run, STEPS):
        return
    asked = accelerator.accumulation(run)
    used = run.effective.get(STEPS)
    if not (asked.origin.file and asked.known and used is not None and used.known and number(used.value)):
        return
    if used.value == asked.value:
        return
    location, related = primary_location(run, (asked.origin, used.origin))
    yield Finding(
        location,
        f"`Accelerator(gradient_accumulation_steps={asked.value})` is beaten: the job accumulates {used.value} steps",
        f"write {asked.value} in the config as well, or {used.value} here",
        related,
    )
