"""ZC4xx: ZeRO stages, values left to "auto". See also :mod:`saving` and :mod:`communication`."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import (
    TRAINERS,
    accelerate_section,
    anchor,
    edited,
    effective,
    failures,
    section,
    stage_of,
    told,
    under_deepspeed_launcher,
)
from zerocfg.rules.proof import cited, crashes, shows
from zerocfg.run.engine import DEFAULTS, truth
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry
from zerocfg.source.node import Path, Scalar, dotted, walk

_STAGE: Path = ("zero_optimization", "stage")
_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": %s}}\n'
_AUTO_DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    '"zero_optimization": {"stage": %s}}\n'
)
_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\ndeepspeed: ds.json\n%s"
_YAML = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  zero_stage: %s\n"


@rule(
    "ZC403",
    "stage-auto",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % '"auto"'}, consumer="deepspeed"),
    good=Example({"ds.json": _DS % "2"}, consumer="deepspeed"),
    proof=shows("parse", {"engine.stage": (0, 2)}),
)
def stage_auto(run: Run) -> Iterator[Finding]:
    """`"stage": "auto"` in the DeepSpeed config.

    What happens: DeepSpeed drops it and takes 0: no ZeRO at all, without a word. accelerate and the Trainer replace
    it by the stage that the launcher was told, or by 2.
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
        severity=severity,
    )


@rule(
    "ZC404",
    "init-flag-without-stage-3",
    Severity.NOTE,
    bad=Example({"accelerate.yaml": _YAML % 2 + "  zero3_init_flag: true\n"}, consumer="accelerate"),
    good=Example({"accelerate.yaml": _YAML % 2 + "  zero3_init_flag: false\n"}, consumer="accelerate"),
    proof=shows("arguments", {"log": ("Init flag is only applicable", "^(?!.*Init flag is only)")}),
    fixable=True,
)
def init_flag_without_stage_3(run: Run) -> Iterator[Finding]:
    """`zero3_init_flag: true` with another stage than 3.

    What happens: accelerate warns and resets it. (At stage 3 it is true by default, and `from_pretrained` shards on
    load whatever it says.)
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
            "ds.json": '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, '
            '"zero_optimization": {"stage": 3}}\n',
        }
    ),
    good=Example({"ds.json": _DS % "2"}, consumer="deepspeed"),
    proof=cited("deepspeed/runtime/zero/stage3.py@0.19.8"),
)
def more_sharding_than_needed(run: Run) -> Iterator[Finding]:
    """ZeRO stage 3 where the states fit at stage 2.

    Stage 3 gathers every parameter before each use, forward and backward: about half as many bytes again on the
    wire as stage 2. When the states of stage 2 take less than half of the accelerator's memory, that buys nothing
    but memory that is free.

    When to ignore: long sequences or large batches need the memory for activations.
    """
    if run.hardware is None or run.model is None or run.hardware.memory_gib is None or stage_of(run) != 3:
        return
    states = run.hardware.states_gib.get(2)
    offload = effective(run, "zero_optimization.offload_param.device")
    if states is None or states > run.hardware.memory_gib / 2 or offload in ("cpu", "nvme"):
        return
    place = run.effective.get("zero_optimization.stage")
    location, related = anchor(run, [place.origin] if place else [])
    yield Finding(
        location,
        f"ZeRO stage 3, but at stage 2 the states of {run.model.name} take {states:.1f} of "
        f"{run.hardware.memory_gib:.0f} GiB an accelerator on {run.hardware.name}",
        "stage 2 moves a third fewer bytes",
        related,
    )


_TEXT_CRASHES = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "steps_per_print",
    "communication_data_type",
    "gradient_allreduce_op",
    "data_types.grad_accum_dtype",
    "data_types.param_dtype",
    "data_types.buffer_dtype",
    "torch_autocast.dtype",
)
_TOLD = ("zero_optimization.stage", "fp16.enabled", "bf16.enabled")


def _autos(run: Run) -> Iterator[Path]:
    """Every literal "auto" of the DeepSpeed config."""
    if run.deepspeed is not None and run.deepspeed.document is not None and run.deepspeed.document.root is not None:
        for path, node, entry in walk(run.deepspeed.document.root):
            if entry is not None and isinstance(node, Scalar) and node.value == "auto":
                yield path


@rule(
    "ZC406",
    "auto-that-nobody-fills",
    Severity.ERROR,
    bad=Example(
        {"ds.json": _AUTO_DS % '2, "overlap_comm": "auto"', "recipe.yaml": _RECIPE % ""}, consumer="transformers"
    ),
    good=Example(
        {"ds.json": _AUTO_DS % '2, "overlap_comm": true', "recipe.yaml": _RECIPE % ""}, consumer="transformers"
    ),
    proof=crashes("init", "`zero_optimization.overlap_comm` not found in kwargs"),
    consumers={"accelerate", "transformers", "trl"},
)
def auto_that_nobody_fills(run: Run) -> Iterator[Finding]:
    """A literal "auto" that neither the Trainer nor accelerate fills.

    What happens: each of them fills its own list of keys; accelerate stops at any other "auto": `ValueError:
    overlap_comm not found in kwargs. Please specify overlap_comm without auto (set to correct value)`, after the
    model was loaded.
    """
    for failure in failures(run, "ZC406"):
        name = failure.message.split("`")[1]
        who = "neither the Trainer nor accelerate fills" if run.consumer in TRAINERS else "accelerate does not fill"
        location, related = anchor(run, failure.places)
        yield Finding(location, f'`{name}` is "auto", which {who}; prepare() stops at it', "write a value", related)


@rule(
    "ZC407",
    "hidden-size-missing",
    Severity.ERROR,
    bad=Example(
        {
            "zerocfg.yaml": "version: 1\nruns:\n  sft:\n    script: train.py\n    deepspeed: ds.json\n"
            "    recipe: recipe.yaml\n"
            "    consumer: transformers\n    model: {parameters: 350000000}\n",
            "ds.json": _AUTO_DS % '2, "reduce_bucket_size": "auto"',
            "recipe.yaml": _RECIPE % "",
        },
    ),
    good=Example(
        {
            "zerocfg.yaml": "version: 1\nruns:\n  sft:\n    script: train.py\n    deepspeed: ds.json\n"
            "    recipe: recipe.yaml\n"
            "    consumer: transformers\n    model: {parameters: 350000000, hidden_size: 1024}\n",
            "ds.json": _AUTO_DS % '2, "reduce_bucket_size": "auto"',
            "recipe.yaml": _RECIPE % "",
        },
    ),
    proof=cited("transformers/integrations/deepspeed.py@5.23.0, accelerate/accelerator.py@1.15.0"),
)
def hidden_size_missing(run: Run) -> Iterator[Finding]:
    """Bucket sizes are "auto", and the model's config has no hidden size to work them out from.

    What happens: `ValueError: The model's config file has neither hidden_size nor hidden_sizes entry, therefore
    it's not possible to automatically fill out the following auto entries`. The Trainer also looks into
    text_config, accelerate does not; and below stage 3 the Trainer leaves the stage-3 sizes to accelerate.
    """
    for failure in failures(run, "ZC407"):
        yield told(run, failure, "write numbers of elements, or leave the keys out")


@rule(
    "ZC410",
    "legacy-stage-1",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % '1, "legacy_stage1": true'}, consumer="deepspeed"),
    good=Example({"ds.json": _DS % "1"}, consumer="deepspeed"),
    proof=crashes("init", "deprecated version of ZeRO Stage 1 is not supported"),
    fixable=True,
)
def legacy_stage_1(run: Run) -> Iterator[Finding]:
    """`"legacy_stage1": true`.

    What happens: `Exception: The deprecated version of ZeRO Stage 1 is not supported in deepspeed >= 0.5.9`.
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
    ),
    good=Example({"ds.json": _AUTO_DS % "0", "recipe.yaml": _RECIPE % ""}, consumer="transformers"),
    proof=crashes("arguments", "Please specify the ZeRO optimization config in the DeepSpeed config"),
)
def zero_section_missing(run: Run) -> Iterator[Finding]:
    """A DeepSpeed config without `zero_optimization`, read by accelerate or the Trainer.

    What happens: `ValueError: Please specify the ZeRO optimization config in the DeepSpeed config.` DeepSpeed
    itself would take stage 0.
    """
    for failure in failures(run, "ZC411"):
        location, related = anchor(run, failure.places)
        if run.deepspeed is not None:
            location = Location(run.deepspeed)
        yield Finding(
            location,
            "no `zero_optimization` section; accelerate, also under the Trainer, refuses such a DeepSpeed config",
            'add "zero_optimization": {"stage": 0}, or the stage that you want',
            related,
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
    ),
    good=Example(
        {"ds.json": _AUTO_DS % "2", "recipe.yaml": _RECIPE % "auto_find_batch_size: false\n"},
        consumer="transformers",
    ),
    proof=crashes("arguments", "isn't supported yet with DeepSpeed Zero-3"),
)
def refused_with_deepspeed(run: Run) -> Iterator[Finding]:
    """Training arguments that the Trainer refuses together with DeepSpeed.

    What happens: `ValueError: DeepSpeed can't be used with save_only_model along with load_best_model_at_end.` and
    `auto_find_batch_size isn't supported yet with DeepSpeed Zero-3.`
    """
    for failure in failures(run, "ZC412"):
        yield told(run, failure)


@rule(
    "ZC415",
    "auto-without-filler",
    Severity.ERROR,
    bad=Example({"ds.json": _AUTO_DS % "2"}, consumer="deepspeed"),
    good=Example({"ds.json": _DS % "2"}, consumer="deepspeed"),
    proof=crashes("parse", "non-int of type 'str'"),
    consumers={"deepspeed"},
)
def auto_without_filler(run: Run) -> Iterator[Finding]:
    """A literal "auto" in a config that deepspeed.initialize reads itself.

    What happens: DeepSpeed fills none. At its top level, and in the parameters of optimizer and scheduler, it stops
    at the text (`TypeError: '>' not supported between instances of 'str' and 'int'`; for gradient_clipping only at
    the first step); in its typed sections it silently takes the default.
    """
    if run.deepspeed is None:
        return
    stopping: list[Path] = []
    dropped: list[Path] = []
    for path in _autos(run):
        name = dotted(path)
        if name in _TOLD or "gather" in name:
            continue
        if name in _TEXT_CRASHES or path[:2] in (("optimizer", "params"), ("scheduler", "params")):
            stopping.append(path)
        elif path[0] in ("zero_optimization", "fp16", "bf16") and "zenflow" not in path:
            dropped.append(path)
    if stopping:
        yield Finding(
            Location(run.deepspeed, stopping[0]),
            f'{_named(stopping)} "auto", which deepspeed.initialize does not fill; it stops at the text',
            "write a value, or let accelerate or the Trainer read this file",
            [Location(run.deepspeed, path) for path in stopping[1:]],
        )
    if dropped:
        default = DEFAULTS.get(dotted(dropped[0])) if len(dropped) == 1 else None
        yield Finding(
            Location(run.deepspeed, dropped[0]),
            f'{_named(dropped)} "auto", which nobody fills here: DeepSpeed silently takes its default'
            + (f" ({show(default)})" if default is not None else ""),
            "write a value or leave the key out",
            [Location(run.deepspeed, path) for path in dropped[1:]],
            severity=Severity.WARNING,
        )


def _named(paths: list[Path]) -> str:
    """ "`a` is", "`a` and 3 more are"."""
    more = f" and {len(paths) - 1} more are" if len(paths) > 1 else " is"
    return f"`{dotted(paths[0])}`{more}"


RULES = (
    stage_auto,
    init_flag_without_stage_3,
    more_sharding_than_needed,
    auto_that_nobody_fills,
    auto_without_filler,
    hidden_size_missing,
    legacy_stage_1,
    zero_section_missing,
    refused_with_deepspeed,
)
