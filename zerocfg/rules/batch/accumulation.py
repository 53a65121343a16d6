"""ZC2xx: how micro batches and steps are counted."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from zerocfg.catalog.values import show
from zerocfg.catalog.versions import only_below
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.batch.hyperparameters import number
from zerocfg.rules.batch.sizes import lacks_accumulation
from zerocfg.rules.effects import (
    TRAINERS,
    anchor,
    deepspeed_data,
    edited,
    effective,
    failures,
    giving,
    present,
    stage_of,
    words,
)
from zerocfg.rules.proof import cited, crashes
from zerocfg.run.arguments import arguments_of
from zerocfg.run.batches import STEPS, TRAIN
from zerocfg.run.model import Origin, Run, SourceFile
from zerocfg.run.script import accelerator
from zerocfg.source.edit import delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path, Scalar

_READERS = (*TRAINERS, "accelerate")
_DS = '{"train_micro_batch_size_per_gpu": 1, %s"zero_optimization": {"stage": %s}}\n'
_AUTO = '{"train_micro_batch_size_per_gpu": "auto", %s"gradient_clipping": "auto", "zero_optimization": {"stage": 2}}\n'
_BARE = '{"train_micro_batch_size_per_gpu": "auto", %s"zero_optimization": {"stage": 2}}\n'
_STEPS = '"gradient_accumulation_steps": %s, '
_RECIPE = "output_dir: out\nmax_steps: 4\ndeepspeed: ds.json\n"
_YAML = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"


def _own(more: str, stage: str = "2") -> Example:
    return Example({"ds.json": _DS % (more, stage)}, consumer="deepspeed")


def _trained(more: str, recipe: str = "per_device_train_batch_size: 1\n") -> Example:
    return Example({"ds.json": _AUTO % more, "recipe.yaml": _RECIPE + recipe}, consumer="transformers")


@rule(
    "ZC206",
    "accumulation-absent",
    Severity.ERROR,
    bad=Example(
        {
            "recipe.yaml": _RECIPE + "per_device_train_batch_size: 1\ngradient_accumulation_steps: 4\n",
            "ds.json": _BARE % '"train_batch_size": "auto", ',
        },
        consumer="transformers",
    ).finds("error", "ds.json", 1, 4, also=("recipe.yaml: gradient_accumulation_steps: 4",)),
    good=Example(
        {
            "recipe.yaml": _RECIPE + "per_device_train_batch_size: 1\ngradient_accumulation_steps: 4\n",
            "ds.json": _BARE % '"train_batch_size": "auto", "gradient_accumulation_steps": "auto", ',
        },
        consumer="transformers",
    ),
    proof=crashes("parse", "Check batch related parameters"),
    consumers=TRAINERS,
    fixable=True,
    references=("accelerate/utils/dataclasses.py@1.15.0", "transformers/integrations/deepspeed.py@5.23.0"),
)
def accumulation_absent(run: Run) -> Iterator[Finding]:
    """The Trainer accumulates gradients but the DeepSpeed config does not mention it.

    A key that is not there cannot be wrong, one would think; but accelerate puts one in, and the message that follows
    names numbers that nobody wrote.

    What happens: the Trainer fills train_batch_size with processes * micro batch * accumulation, while accelerate
    adds an accumulation of 1 to a file without the key; DeepSpeed then refuses the product: `Check batch related
    parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 32 != 8 * 1 *
    1`.

    Fix: adds `"gradient_accumulation_steps": "auto"`, which the Trainer fills with its own number.
    """
    if not lacks_accumulation(run) or run.deepspeed is None:
        return
    steps = _trainer_value(run, STEPS)
    if steps is None or steps[0] == 1:
        return
    if deepspeed_data(run).get(TRAIN) != "auto" and not any(True for _ in failures(run, "ZC203")):
        return
    value, place = steps
    location, related = anchor(run, [place])
    yield Finding(
        Location(run.deepspeed),
        f"{run.deepspeed.name} has no `{STEPS}` and counts as 1, but the Trainer's is {show(value)} "
        f"({words(place)}); "
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


@rule(
    "ZC240",
    "accumulation-null",
    Severity.ERROR,
    bad=(
        _trained(_STEPS % "null").finds("error", 'ds.json: "gradient_accumulation_steps": null'),
        Example({"accelerate.yaml": _YAML, "ds.json": _AUTO % (_STEPS % "null")}, consumer="accelerate").finds(
            "error", 'ds.json: "gradient_accumulation_steps": null'
        ),
    ),
    good=(
        _trained(_STEPS % '"auto"'),
        Example({"accelerate.yaml": _YAML, "ds.json": _AUTO % (_STEPS % '"auto"')}, consumer="accelerate"),
    ),
    proof=crashes("init", "unsupported operand type.s. for .: 'int' and 'NoneType'"),
    consumers=set(_READERS),
    fixable=True,
    references=("accelerate/accelerator.py@1.15.0",),
)
def accumulation_null(run: Run) -> Iterator[Finding]:
    """`"gradient_accumulation_steps": null` in a DeepSpeed config that accelerate or the Trainer read.

    For DeepSpeed itself null is the same as an absent key, so the file works in a loop of its own and dies here, after
    the model was loaded.

    What happens: accelerate works out the batch size before DeepSpeed sees the file: `TypeError: unsupported operand
    type(s) for *: 'int' and 'NoneType'`.

    Fix: writes "auto", which is how "not decided here" is spelt for these two.
    """
    data = deepspeed_data(run)
    if run.deepspeed is None or data.get(STEPS, "") is not None or effective(run, "engine") != "deepspeed":
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


@rule(
    "ZC241",
    "count-with-a-dot",
    Severity.ERROR,
    bad=(
        _trained(_STEPS % '"auto"', "per_device_train_batch_size: 1\ngradient_accumulation_steps: 2.0\n").finds(
            "error", "recipe.yaml: 2.0", "2.0"
        ),
        Example(
            _trained(_STEPS % '"auto"', "per_device_train_batch_size: 2.0\n").files,
            consumer="transformers",
            proof=crashes("init", "batch_size should be a positive integer value, but got batch_size=2.0"),
        ).finds("error", "recipe.yaml: 2.0", "2.0"),
        Example(
            _trained(
                _STEPS % '"auto"' + '"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10.0}}, ',
                "per_device_train_batch_size: 1\nwarmup_steps: 10\n",
            ).files,
            consumer="transformers",
            proof=crashes("init", "warmup_num_steps must be a positive integer, got 10.0"),
        ).finds("error", "ds.json: 10.0", "10.0"),
    ),
    good=_trained(
        _STEPS % '"auto"' + '"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}, ',
        "warmup_steps: 10\ngradient_accumulation_steps: 2\nper_device_train_batch_size: 2\n",
    ),
    proof=crashes("step", "'float' object cannot be interpreted as an integer"),
    fixable=True,
    references=("deepspeed/runtime/lr_schedules.py@0.19.8",),
)
def count_with_a_dot(run: Run) -> Iterator[Finding]:
    """A number of steps or samples that is written with a dot, where a whole number is insisted on.

    2.0 and 2 are the same number to a reader and to most parsers, and a config that a program wrote often holds the
    first. Here it costs a start: model, data and engine are all there when it is noticed.

    What happens: `TypeError: 'float' object cannot be interpreted as an integer` in the first step for
    `gradient_accumulation_steps`, `batch_size should be a positive integer value, but got batch_size=2.0`,
    `warmup_num_steps must be a positive integer, got 10.0`. deepspeed.initialize reads a 10.0 in its file as 10;
    accelerate and the Trainer keep the dot.

    Fix: writes the number without the dot.
    """
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
    bad=_own('"managed_gradient_accumulation": false, ', '1, "overlap_comm": true').finds(
        "error", 'ds.json: "overlap_comm": true', 1, 2, also=('ds.json: "managed_gradient_accumulation": false',)
    ),
    good=(
        _own('"managed_gradient_accumulation": false, ', '1, "overlap_comm": false'),
        _own('"managed_gradient_accumulation": false, ', '2, "overlap_comm": true'),
    ),
    proof=crashes("init", "supports ZeRO overlap_comm only with ZeRO stage 2"),
    consumers={"deepspeed"},
    fixable=True,
    versions="deepspeed>=0.19.4",
    references=("deepspeed/runtime/engine.py@0.19.8",),
)
def unmanaged_accumulation_with_overlap(run: Run) -> Iterator[Finding]:
    """`managed_gradient_accumulation: false` with `overlap_comm` at ZeRO stage 0 or 1.

    Below stage 2 gradients are reduced when step() is called, so there is no backward pass left to overlap with.

    What happens: `AssertionError: managed_gradient_accumulation=False supports ZeRO overlap_comm only with ZeRO stage
    2` when the engine is built (stage 3 passes too).

    Fix: writes `"overlap_comm": false` (unsafe: stage 2 may be what is meant).
    """
    stage = stage_of(run)
    if not _unmanaged(run) or run.deepspeed is None or stage not in (0, 1):
        return
    path: Path = ("zero_optimization", "overlap_comm")
    if effective(run, "zero_optimization.overlap_comm") is not True or not present(run.deepspeed, path):
        return
    yield Finding(
        Location(run.deepspeed, path),
        f"`overlap_comm` at ZeRO stage {stage} without managed accumulation; DeepSpeed stops when the engine is built",
        "switch overlap_comm off, or use stage 2",
        [Location(run.deepspeed, ("managed_gradient_accumulation",), label="the other key")],
        edited(replace_value, run.deepspeed, path, "false", why="switch overlap_comm off", safe=False),
    )


@rule(
    "ZC248",
    "steps-per-print-zero",
    Severity.ERROR,
    bad=_own('"steps_per_print": 0, ').finds("error", 'ds.json: "steps_per_print": 0', 0),
    good=_own('"steps_per_print": 100, '),
    proof=crashes("step", "ZeroDivisionError: integer modulo by zero"),
    consumers={"deepspeed"},
    fixable=True,
    references=("deepspeed/runtime/engine.py@0.19.8",),
)
def steps_per_print_zero(run: Run) -> Iterator[Finding]:
    """`"steps_per_print": 0` in a config that deepspeed.initialize reads.

    Meant as "never print", it ends the job at its first optimizer step. Under accelerate and the Trainer the same file
    works, because they write their own number over it.

    What happens: `ZeroDivisionError: integer modulo by zero` in engine.step().

    Fix: removes the key; without it DeepSpeed prints nothing.
    """
    value = deepspeed_data(run).get("steps_per_print")
    if run.deepspeed is None or not number(value) or value != 0:
        return
    yield Finding(
        Location(run.deepspeed, ("steps_per_print",)),
        "`steps_per_print: 0` is a divisor: the first optimizer step stops",
        "leave it out: then nothing is printed",
        fix=edited(delete_entry, run.deepspeed, ("steps_per_print",), why="remove the key"),
    )


_LAUNCHED = "accelerate launch --config_file accelerate.yaml train.py\n"
_STEPS_YAML = (
    "distributed_type: DEEPSPEED\nnum_processes: 1\n"
    "deepspeed_config:\n  zero_stage: 2\n  gradient_accumulation_steps: %s\n"
)
_LOOP = "from accelerate import Accelerator\n\naccelerator = Accelerator(gradient_accumulation_steps=8)\n"


@rule(
    "ZC249",
    "accelerator-steps-beaten",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": _STEPS_YAML % 4, "train.sh": _LAUNCHED, "train.py": _LOOP}).finds(
        "error", "train.py: 8", 8, 4, 8, 4, also=("accelerate.yaml: gradient_accumulation_steps: 4",)
    ),
    good=Example({"accelerate.yaml": _STEPS_YAML % 8, "train.sh": _LAUNCHED, "train.py": _LOOP}),
    proof=cited("accelerate/accelerator.py@1.15.0"),
    consumers={"accelerate"},
    references=("accelerate/accelerator.py@1.15.0",),
)
def accelerator_steps_beaten(run: Run) -> Iterator[Finding]:
    """`Accelerator(gradient_accumulation_steps=...)` in a script that is launched with another number.

    The launcher exports the number of the config, and `Accelerator()` reads that variable before it looks at its own
    argument. Where a DeepSpeed config file states a number, that one is taken in the end.

    What happens: the job accumulates as often as the config says. No error is raised, and the batch an optimizer step
    has, and with it the learning rate that suits it, are other ones than the script was written for.

    Instead: write the number in one place only.

    Nothing is said where the argument is an option of the script that the launch line leaves at its default: the
    config is then the only place that asks for a number.

    When to ignore: the argument is meant as a default.
    """
    if accelerator.left_open(run, STEPS):
        return
    asked = accelerator.accumulation(run)
    used = run.effective.get(STEPS)
    if not (asked.origin.file and asked.known and used is not None and used.known and number(used.value)):
        return
    if used.value == asked.value:
        return
    location, related = anchor(run, (asked.origin, used.origin))
    yield Finding(
        location,
        f"`Accelerator(gradient_accumulation_steps={asked.value})` is beaten: the job accumulates {used.value} steps",
        f"write {asked.value} in the config as well, or {used.value} here",
        related,
    )


RULES = (
    accumulation_absent,
    accumulation_null,
    count_with_a_dot,
    unmanaged_accumulation_with_overlap,
    steps_per_print_zero,
    accelerator_steps_beaten,
)
