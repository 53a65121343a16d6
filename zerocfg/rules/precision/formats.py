"""ZC3xx: bf16 and fp16, which three places may each decide in their own way."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.schema import load_schema
from zerocfg.rules.api import Example, Finding, Fix, Location, Severity, rule
from zerocfg.rules.batch.sizes import disagreement, mismatches
from zerocfg.rules.effects import (
    TRAINERS,
    anchor,
    edited,
    effective,
    failures,
    replace_at,
    section,
    told,
    words,
)
from zerocfg.rules.proof import crashes, shows
from zerocfg.run.model import UNKNOWN, Origin, Run
from zerocfg.source.edit import delete_entry, insert_entry, replace_value

_NAMES: dict[str, str] = load_schema("accelerate").root.keys["mixed_precision"].facts["setting"]
"""The word of a precision, and the setting that it turns on."""
_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}%s}\n'
_AUTO_DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    '"zero_optimization": {"stage": 2}%s}\n'
)
_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\ndeepspeed: ds.json\n"
_WITH_FILE = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
_INLINE = "distributed_type: DEEPSPEED\nnum_processes: 1\n%sdeepspeed_config:\n  zero_stage: 2\n"
_OWN_LINE = "accelerate launch --config_file accelerate.yaml train.py\n"
_TRAINER_LINE = "accelerate launch --config_file accelerate.yaml train.py --config recipe.yaml\n"


@rule(
    "ZC301",
    "fp16-and-bf16",
    Severity.ERROR,
    bad=Example(
        {"ds.json": _DS % ', "fp16": {"enabled": true}, "bf16": {"enabled": true}'}, consumer="deepspeed"
    ).finds("error", 'ds.json: "enabled": true', also=('ds.json:1:110: "enabled": true',)),
    good=Example({"ds.json": _DS % ', "fp16": {"enabled": false}, "bf16": {"enabled": true}'}, consumer="deepspeed"),
    proof=crashes("parse", "cannot be simultaneously enabled"),
    fixable=True,
)
def fp16_and_bf16(run: Run) -> Iterator[Finding]:
    """fp16 and bf16 are both switched on.

    The two are different 16-bit formats, and a model is trained in one. bf16 has the range of fp32 and needs no loss
    scale; fp16 is for devices without bf16.

    What happens: DeepSpeed stops with `AssertionError: bfloat16 and fp16 modes cannot be simultaneously enabled`,
    the Trainer with `At most one of fp16 and bf16 can be True, but not both`.

    Fix: switches fp16 off.
    """
    conflict = any(True for _ in failures(run, "ZC303"))
    for failure in failures(run, "ZC301"):
        if conflict and failure.kind.startswith("ds-"):
            continue  # accelerate stops before DeepSpeed reads its config
        location, related = anchor(run, failure.places)
        who = "DeepSpeed" if failure.kind.startswith("ds-") else "the Trainer"
        yield Finding(
            location,
            f"fp16 and bf16 are both on; {who} stops at it",
            "keep one of them",
            related,
            replace_at(failure.places[0], "false", "keep bf16", safe=False),
        )


@rule(
    "ZC302",
    "precision-disagrees-with-trainer",
    Severity.ERROR,
    bad=Example(
        {
            "recipe.yaml": _RECIPE,
            "ds.json": _AUTO_DS % ', "bf16": {"enabled": true}',
        },
        consumer="transformers",
    ).finds("error", 'ds.json: "enabled": true', "5.23.0"),
    good=Example(
        {
            "recipe.yaml": _RECIPE + "bf16: true\n",
            "ds.json": _AUTO_DS % ', "bf16": {"enabled": true}',
        },
        consumer="transformers",
    ),
    proof=crashes("init", "ds bf16.enabled=True vs hf bf16.bf16_full_eval=False"),
    consumers=TRAINERS,
    fixable=True,
)
def precision_disagrees_with_trainer(run: Run) -> Iterator[Finding]:
    """The DeepSpeed side asks for another precision than the training arguments.

    The precision is written in two or three places, and the Trainer compares them. `mixed_precision: bf16` in the
    accelerate config counts as the DeepSpeed side: the training arguments need `bf16: true` as well.

    What happens: `train()` stops, after the model was loaded, with `ds bf16.enabled=True vs hf
    bf16|bf16_full_eval=False`.

    Fix: writes the precision of the DeepSpeed side into the recipe. The other way out is "auto" in the DeepSpeed
    config, which takes the word of the training arguments.
    """
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


@rule(
    "ZC303",
    "precision-conflict",
    Severity.ERROR,
    bad=Example(
        {
            "accelerate.yaml": _WITH_FILE,
            "ds.json": _DS % ', "fp16": {"enabled": true}',
            "train.sh": "accelerate launch --config_file accelerate.yaml --mixed_precision bf16 train.py\n",
        },
        consumer="accelerate",
    ).finds("error", 'ds.json: "enabled": true', also=("train.sh: --mixed_precision bf16",)),
    good=Example(
        {
            "accelerate.yaml": _WITH_FILE,
            "ds.json": _DS % ', "bf16": {"enabled": true}',
            "train.sh": "accelerate launch --config_file accelerate.yaml --mixed_precision bf16 train.py\n",
        },
        consumer="accelerate",
    ),
    proof=crashes("arguments", "arg cannot be set to `bf16` when `fp16` is set"),
    fixable=True,
)
def precision_conflict(run: Run) -> Iterator[Finding]:
    """accelerate is told one 16-bit format and the DeepSpeed config switches on the other.

    A DeepSpeed config is often taken over from another project, and its precision with it. The training arguments'
    bf16 and fp16 count as accelerate's word.

    What happens: every process stops with `ValueError: --mixed_precision arg cannot be set to bf16 when fp16 is set in
    the DeepSpeed config file.`

    Fix: switches the format of the DeepSpeed config off, so that the launcher's or the Trainer's one is used.
    """
    for failure in failures(run, "ZC303"):
        location, related = anchor(run, failure.places)
        asked, enabled = failure.about
        by = words(failure.places[1])
        yield Finding(
            location,
            f"`{enabled}` is on here but {asked} is asked for {by}; accelerate stops at the difference",
            "say one of the two in both places",
            related,
            replace_at(failure.places[0], "false", f"train in {asked}", safe=False),
        )


@rule(
    "ZC304",
    "precision-auto-without-filler",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % ', "bf16": {"enabled": "auto"}'}, consumer="deepspeed").finds(
        "error", 'ds.json: "enabled": "auto"'
    ),
    good=Example({"ds.json": _DS % ', "bf16": {"enabled": true}'}, consumer="deepspeed"),
    proof=shows("parse", {"engine.dtype": ("float32", "bfloat16")}),
    consumers={"deepspeed"},
    fixable=True,
    versions="deepspeed>=0.17.1",
)
def precision_auto_without_filler(run: Run) -> Iterator[Finding]:
    """`"enabled": "auto"` of bf16 or fp16 reaches DeepSpeed itself.

    "auto" is a word of the Trainer and of accelerate, who put a value in its place. A script that calls
    `deepspeed.initialize` itself has nobody who does.

    What happens: DeepSpeed drops an "auto" in its typed sections and takes the default, which is false: the job
    trains in fp32, with twice the memory and a fraction of the speed, and says nothing.

    Fix: writes true.

    When to ignore: fp32 is meant; write false then.
    """
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


@rule(
    "ZC305",
    "precision-lost",
    Severity.ERROR,
    bad=Example(
        {
            "accelerate.yaml": _WITH_FILE,
            "ds.json": _DS % ', "bf16": {"enabled": false}',
            "train.sh": "accelerate launch --config_file accelerate.yaml --mixed_precision bf16 train.py\n",
        },
        consumer="accelerate",
    ).finds("error", 'ds.json: "enabled": false', also=("train.sh: --mixed_precision bf16",)),
    good=Example(
        {
            "accelerate.yaml": _WITH_FILE,
            "ds.json": _DS % ', "bf16": {"enabled": "auto"}',
            "train.sh": "accelerate launch --config_file accelerate.yaml --mixed_precision bf16 train.py\n",
        },
        consumer="accelerate",
    ),
    proof=shows("parse", {"engine.dtype": ("float32", "bfloat16")}),
    consumers={"accelerate", *TRAINERS},
    fixable=True,
)
def precision_lost(run: Run) -> Iterator[Finding]:
    """16-bit training is asked for, but DeepSpeed is told false and trains in fp32.

    Two ways lead there: a DeepSpeed config whose section says `"enabled": false`, and, under the Trainer with its own
    `deepspeed` argument, a precision that only the launcher was given: the Trainer fills "auto" from its arguments
    alone. The job needs twice the memory and is slower, and its results are those of fp32.

    What happens: nothing is said; accelerate reports bf16 while the engine keeps 4 bytes a parameter.

    Fix: writes "auto" where the DeepSpeed config says false.

    When to ignore: fp32 is meant; take the other word away then.
    """
    asked = run.effective.get("mixed_precision")
    if asked is None or str(asked.value) not in _NAMES or effective(run, "engine") != "deepspeed":
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
        location, related = anchor(run, [asked.origin])
        yield Finding(
            location,
            f"{kind} is asked for {words(asked.origin)} but not in the training arguments, from which the Trainer "
            "fills "
            f"`{kind}.enabled`; DeepSpeed silently trains in fp32",
            f"write `{kind}: true` in the training arguments",
            related + ([Location(run.deepspeed, (kind, "enabled"))] if run.deepspeed else []),
        )
    elif file is not None and file is run.deepspeed:
        location, related = anchor(run, [enabled.origin, asked.origin])
        yield Finding(
            location,
            f"`{kind}.enabled` is false here but {kind} is asked for {words(asked.origin)}; DeepSpeed silently "
            "trains in fp32",
            'write "auto" or true',
            related,
            edited(replace_value, file, path, '"auto"', why='let accelerate fill it in: "auto"', safe=False),
        )


@rule(
    "ZC307",
    "msamp-with-zero3",
    Severity.ERROR,
    bad=Example(
        {
            "accelerate.yaml": _INLINE.replace("stage: 2", "stage: 3") % "mixed_precision: bf16\n",
            "train.sh": "export ACCELERATE_FP8_BACKEND=MSAMP\n" + _OWN_LINE,
        },
        consumer="accelerate",
        note="Without an fp8 library on the machine `mixed_precision: fp8` is refused earlier; the variable is what it "
        "is turned into.",
    ).finds("error", "train.sh: accelerate launch --config_file accelerate.yaml train.py", 3),
    good=Example(
        {
            "accelerate.yaml": _INLINE % "mixed_precision: bf16\n",
            "train.sh": "export ACCELERATE_FP8_BACKEND=MSAMP\n" + _OWN_LINE,
        },
        consumer="accelerate",
    ),
    proof=crashes("arguments", "MS-AMP is not supported for ZeRO Stage 3"),
    fixable=True,
    references=("accelerate/utils/dataclasses.py@1.15.0",),
    versions="accelerate>=1.0",
)
def msamp_with_zero3(run: Run) -> Iterator[Finding]:
    """MS-AMP together with ZeRO stage 3.

    MS-AMP keeps weights and optimizer states in fp8 by itself, and cannot do so with weights that ZeRO divides. It is
    chosen by `backend: MSAMP` in `fp8_config`, or by `ACCELERATE_FP8_BACKEND`.

    What happens: every process stops with `NotImplementedError: MS-AMP is not supported for ZeRO Stage 3. Please use
    ZeRO Stage 0, 1, or 2 instead.`

    Fix: writes stage 2. The other way out is another fp8 backend.
    """
    stage = run.effective.get("zero_optimization.stage")
    for failure in failures(run, "ZC307"):
        finding = told(run, failure, "use a lower stage or another fp8 backend")
        if stage is not None:
            finding.fix = replace_at(stage.origin, "2", "use ZeRO stage 2", safe=False)
        yield finding


@rule(
    "ZC308",
    "precision-of-launcher-beaten",
    Severity.WARNING,
    bad=Example(
        {
            "accelerate.yaml": _INLINE % "mixed_precision: fp16\n",
            "recipe.yaml": "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\nbf16: true\n",
            "train.sh": _TRAINER_LINE,
        },
        consumer="transformers",
    ).finds("warning", "accelerate.yaml: mixed_precision: fp16", also=("recipe.yaml: bf16: true",)),
    good=Example(
        {
            "accelerate.yaml": _INLINE % "mixed_precision: bf16\n",
            "recipe.yaml": "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\nbf16: true\n",
            "train.sh": _TRAINER_LINE,
        },
        consumer="transformers",
    ),
    proof=shows(
        "init",
        {"env.ACCELERATE_MIXED_PRECISION": ("fp16", "bf16"), "engine.dtype": ("bfloat16",) * 2},
        extent="that the engine computes in bf16 where the launcher exports fp16.",
    ),
    consumers=TRAINERS | {"accelerate"},
    fixable=True,
)
def precision_of_launcher_beaten(run: Run) -> Iterator[Finding]:
    """The accelerate config names one 16-bit format and the training arguments, or the script's Accelerator, the other.

    The file that starts the job says one thing and the job does another. Who copies the accelerate config for a script
    of his own gets the other format.

    What happens: the training arguments win without a word: `mixed_precision: fp16` with `bf16: true` trains in
    bf16. So does `Accelerator(mixed_precision="bf16")` in a script with a loop of its own.

    Fix: removes the value that is not used.

    When to ignore: the accelerate config is shared and cannot be changed.
    """
    own_loop = run.consumer == "accelerate"
    used = run.effective.get("mixed_precision")
    if used is None or str(used.value) not in _NAMES:
        return
    for beaten in used.overridden:
        if beaten.value is UNKNOWN or str(beaten.value) not in _NAMES or beaten.value == used.value:
            continue
        if any(failure.kind == "ds-precision-conflict" for failure in run.effective.failures):
            continue
        location, related = anchor(run, [beaten.origin, used.origin])
        file = beaten.origin.file if beaten.origin.kind == "file" else None
        yield Finding(
            location,
            f"{beaten.value} is asked for {words(beaten.origin)} but {used.value} {words(used.origin)}; the "
            f"{'argument of Accelerator wins' if own_loop else 'training arguments win'} "
            f"and the job silently trains in {used.value}",
            f"say {used.value} in both places",
            related,
            edited(delete_entry, file, beaten.origin.path, why="remove the beaten value", safe=False),
        )


RULES = (
    fp16_and_bf16,
    precision_disagrees_with_trainer,
    precision_conflict,
    precision_auto_without_filler,
    precision_lost,
    msamp_with_zero3,
    precision_of_launcher_beaten,
)
