"""ZC4xx: ZeRO stages. See also :mod:`autos`, :mod:`saving` and :mod:`communication`."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import (
    accelerate_section,
    anchor,
    changed_before,
    edited,
    effective,
    failures,
    fits_at,
    gathers,
    replace_at,
    section,
    stage_of,
    told,
    tuned,
    under_deepspeed_launcher,
)
from zerocfg.rules.proof import crashes, logged, printed, shows, unprinted
from zerocfg.run.engine import truth
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path

_STAGE: Path = ("zero_optimization", "stage")
_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": %s}}\n'
_AUTO_DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    '"zero_optimization": {"stage": %s}}\n'
)
_LOGGED = (
    '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "log_level": "info", '
    '"comms_logger": {"enabled": true, "verbose": true}, "zero_optimization": {"stage": %s}}\n'
)
_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\ndeepspeed: ds.json\n%s"
_YAML = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  zero_stage: %s\n"


@rule(
    "ZC403",
    "stage-auto",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % '"auto"'}, consumer="deepspeed").finds("error", 'ds.json: "auto"', 0),
    good=Example({"ds.json": _DS % "2"}, consumer="deepspeed"),
    proof=shows("parse", {"engine.stage": (0, 2)}),
    fixable=True,
)
def stage_auto(run: Run) -> Iterator[Finding]:
    """`"stage": "auto"` in the DeepSpeed config.

    The stage decides what is sharded, and whether the model fits. Who starts the job changes it: the same file trains
    with ZeRO 2 under the Trainer and without ZeRO in a loop of one's own.

    What happens: DeepSpeed drops it and takes 0: no ZeRO at all, without a word. accelerate and the Trainer replace
    it by the stage that the launcher was told, or by 2.

    Fix: stage 2 is written, which accelerate and the Trainer take; which stage was meant is a guess.

    When to ignore: the file is always launched by accelerate with `--zero_stage`.
    """
    if section(run, "zero_optimization").get("stage") != "auto" or run.deepspeed is None:
        return
    if run.consumer == "deepspeed":
        severity, becomes = None, "deepspeed.initialize silently takes 0: no ZeRO at all"
    elif "ACCELERATE_DEEPSPEED_ZERO_STAGE" in run.effective.environment:
        return
    elif run.consumer is not None:
        severity, becomes = Severity.WARNING, "nobody names a stage, so accelerate takes its default, 2"
    else:
        severity, becomes = (
            Severity.WARNING,
            "accelerate and the Trainer take 2, deepspeed.initialize takes 0",
        )
    yield Finding(
        Location(run.deepspeed, _STAGE, "value"),
        f'the stage is "auto": {becomes}',
        "write the stage as a number",
        fix=edited(replace_value, run.deepspeed, _STAGE, "2", why="write stage 2", safe=False),
        severity=severity,
    )


@rule(
    "ZC404",
    "init-flag-without-stage-3",
    Severity.NOTE,
    bad=Example({"accelerate.yaml": _YAML % 2 + "  zero3_init_flag: true\n"}, consumer="accelerate").finds(
        "note", "accelerate.yaml: zero3_init_flag: true", 2
    ),
    good=Example({"accelerate.yaml": _YAML % 2 + "  zero3_init_flag: false\n"}, consumer="accelerate"),
    proof=shows("arguments", {"log": logged("Init flag is only applicable")}),
    fixable=True,
)
def init_flag_without_stage_3(run: Run) -> Iterator[Finding]:
    """`zero3_init_flag: true` with another stage than 3.

    It asks for a model that is sharded while it is built, so that it never has to fit on one machine. Below stage 3
    every rank builds the whole model, and needs the memory for it.

    What happens: `DeepSpeed Zero3 Init flag is only applicable for ZeRO Stage 3. Setting it to False.` At stage 3 it is
    true by default, and `from_pretrained` shards on load whatever it says.

    Fix: the key is removed.

    When to ignore: the file is a template in which only the stage is changed.
    """
    if accelerate_section(run).get("zero3_init_flag") is not True or run.accelerate is None:
        return
    stage = stage_of(run)
    if stage is None or stage == 3 or not under_deepspeed_launcher(run):
        return
    path: Path = ("deepspeed_config", "zero3_init_flag")
    yield Finding(
        Location(run.accelerate, path),
        f"`zero3_init_flag: true` has no effect at stage {stage}; accelerate warns and resets it",
        "remove it",
        fix=edited(delete_entry, run.accelerate, path, why="remove the key"),
    )


@rule(
    "ZC405",
    "more-sharding-than-needed",
    Severity.NOTE,
    bad=Example(
        {
            "zerocfg.yaml": "version: 1\nruns:\n  sft:\n    consumer: deepspeed\n    script: train.py\n"
            "    deepspeed: ds.json\n    model: {parameters: 350000000, hidden_size: 1024}\n"
            "    hardware: 8xA100-80GB\n",
            "train.py": "import deepspeed\n",
            "ds.json": _LOGGED % 3,
        }
    ).finds("note", 'ds.json: "stage": 3', 3, 2, "3.7", 79, 2),
    good=Example({"ds.json": _LOGGED % 2}, consumer="deepspeed"),
    proof=shows(
        "step",
        {
            "log": (
                printed("comm op: all_gather_into_tensor", times=40),
                unprinted("comm op: all_gather_into_tensor", times=4),
            )
        },
        ranks=2,
    ),
    needs={"model", "hardware"},
    fixable=True,
)
def more_sharding_than_needed(run: Run) -> Iterator[Finding]:
    """ZeRO stage 3 where the states fit at stage 2.

    Stage 3 gathers every parameter in every micro batch, and of a model larger than `stage3_max_reuse_distance` (a
    billion by default) once more for the backward pass: half as many bytes on the wire again as stage 2, and with many
    accumulation steps up to three times as many. When the states of stage 2 take less than half of the accelerator's
    memory, and the whole run fits there as far as it can be predicted, that buys nothing but memory that is free. Of a
    small model stage 3 even holds more: its bucket stays allocated, and all parameters are gathered at a time.

    What happens: in two steps of a small model stage 2 gathers twice, once after each step, and stage 3 ninety times.

    Fix: stage 2.

    When to ignore: long sequences or large batches need the memory for activations, and the spec does not say how long
    they are (`sequence_length`).
    """
    hardware, memory = run.hardware, run.memory
    if hardware is None or memory is None or run.model is None or stage_of(run) != 3 or not fits_at(run, 2):
        return
    if effective(run, "zero_optimization.offload_param.device") in ("cpu", "nvme"):
        return
    place = run.effective.get("zero_optimization.stage")
    location, related = anchor(run, [place.origin] if place else [])
    states, more = memory.states_gib[2], memory.states_gib.get(3, 0.0)
    no_less = run.model.largest_block is not None and more >= states
    yield Finding(
        location,
        f"ZeRO stage 3, but at stage 2 the states of {run.model.name} take {states:.1f} of "
        f"{hardware.memory_gib:.0f} GiB an accelerator on {hardware.name}"
        + (f", and at stage 3 {more:.1f}" if no_less else ""),
        _gain(run),
        related,
        replace_at(place.origin, "2", "use stage 2", safe=False) if place else None,
    )


def _gain(run: Run) -> str:
    """What stage 2 saves on the wire. It sends the parameters once after the step and the gradients in every micro
    batch; stage 3 sends the gradients and gathers the parameters, once or twice, in every micro batch."""
    said = effective(run, "gradient_accumulation_steps")
    steps = said if isinstance(said, int) and said > 0 else 1
    fewer = 1 - (steps + 1) / (steps * (gathers(run) + 1))
    if fewer == 0:
        return "stage 2 sends as many bytes in far fewer messages"
    with_steps = f" with {steps} accumulation steps" if steps > 1 else ""
    return f"stage 2 sends {fewer:.0%} fewer bytes{with_steps}"


@rule(
    "ZC410",
    "legacy-stage-1",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % '1, "legacy_stage1": true'}, consumer="deepspeed").finds(
        "error", 'ds.json: "legacy_stage1": true', "0.5.9"
    ),
    good=Example({"ds.json": _DS % "1"}, consumer="deepspeed"),
    proof=crashes("init", "deprecated version of ZeRO Stage 1 is not supported"),
    fixable=True,
)
def legacy_stage_1(run: Run) -> Iterator[Finding]:
    """`"legacy_stage1": true`.

    The old stage 1 is gone since 2021; the key still stands in copied files. The job stops after the model was loaded.

    What happens: `Exception: The deprecated version of ZeRO Stage 1 is not supported in deepspeed >= 0.5.9` when the
    engine is built.

    Fix: the key is removed.
    """
    path: Path = ("zero_optimization", "legacy_stage1")
    stage = stage_of(run)
    if (
        run.deepspeed is None
        or stage not in (1, 2)
        or not truth(section(run, "zero_optimization").get("legacy_stage1"))
    ):
        return
    yield Finding(
        Location(run.deepspeed, path),
        "`legacy_stage1` was removed in DeepSpeed 0.5.9; the engine refuses it",
        "remove it",
        fix=edited(delete_entry, run.deepspeed, path, why="remove the key"),
    )


@rule(
    "ZC411",
    "zero-section-missing",
    Severity.ERROR,
    bad=Example(
        {
            "ds.json": '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}\n',
            "recipe.yaml": _RECIPE % "",
        },
        consumer="transformers",
    ).finds("error", "ds.json", 0),
    good=Example({"ds.json": _AUTO_DS % "0", "recipe.yaml": _RECIPE % ""}, consumer="transformers"),
    proof=crashes("arguments", "Please specify the ZeRO optimization config in the DeepSpeed config"),
    fixable=True,
)
def zero_section_missing(run: Run) -> Iterator[Finding]:
    """A DeepSpeed config without `zero_optimization`, read by accelerate or the Trainer.

    The same file works where the script calls deepspeed.initialize itself, so it looks sound.

    What happens: `ValueError: Please specify the ZeRO optimization config in the DeepSpeed config.` DeepSpeed
    itself would take stage 0.

    Fix: `"zero_optimization": {"stage": 0}` is added, which is what DeepSpeed would have taken. Whoever needs ZeRO
    writes another stage.
    """
    for failure in () if tuned(run) or changed_before(run) else failures(run, "ZC411"):
        location, related = anchor(run, failure.places)
        if run.deepspeed is not None:
            location = Location(run.deepspeed)
        yield Finding(
            location,
            "no `zero_optimization` section; accelerate, also under the Trainer, refuses such a DeepSpeed config",
            'add "zero_optimization": {"stage": 0}, or the stage that you want',
            related,
            edited(
                insert_entry,
                run.deepspeed,
                (),
                "zero_optimization",
                '{"stage": 0}',
                why="write the section",
                safe=False,
            ),
        )


@rule(
    "ZC412",
    "refused-with-deepspeed",
    Severity.ERROR,
    bad=Example(
        {
            "ds.json": _AUTO_DS % '3, "stage3_gather_16bit_weights_on_model_save": true',
            "recipe.yaml": _RECIPE % "auto_find_batch_size: true\n",
        },
        consumer="transformers",
    ).finds("error", "recipe.yaml: auto_find_batch_size: true"),
    good=Example(
        {"ds.json": _AUTO_DS % "2", "recipe.yaml": _RECIPE % "auto_find_batch_size: false\n"},
        consumer="transformers",
    ),
    proof=crashes("arguments", "isn't supported yet with DeepSpeed Zero-3"),
    fixable=True,
)
def refused_with_deepspeed(run: Run) -> Iterator[Finding]:
    """Training arguments that the Trainer refuses together with DeepSpeed.

    Both work without DeepSpeed, so a recipe stops when a DeepSpeed config is added to it. To load the best checkpoint
    its optimizer states are needed, and another batch size would need the stage 3 engine to be built again.

    What happens: `ValueError: DeepSpeed can't be used with save_only_model along with load_best_model_at_end.` and
    `auto_find_batch_size isn't supported yet with DeepSpeed Zero-3.`

    Fix: `save_only_model`, or `auto_find_batch_size`, becomes false.
    """
    for failure in failures(run, "ZC412"):
        finding = told(run, failure, "write false")
        if failure.places:
            finding.fix = replace_at(failure.places[0], "false", "switch it off", safe=False)
        yield finding


RULES = (
    stage_auto,
    init_flag_without_stage_3,
    more_sharding_than_needed,
    legacy_stage_1,
    zero_section_missing,
    refused_with_deepspeed,
)
