"""ZC4xx: values of the DeepSpeed config that are left to "auto"."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import show
from zerocfg.catalog.versions import only_below
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import (
    TRAINERS,
    anchor,
    changed_before,
    edited,
    failures,
    told,
    without,
)
from zerocfg.rules.proof import crashes
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.run.parser import parser_of
from zerocfg.source.edit import delete_entry
from zerocfg.source.node import Path, Scalar, dotted, walk

_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": %s}}\n'
_AUTO_DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    '"zero_optimization": {"stage": %s}}\n'
)
_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\ndeepspeed: ds.json\n%s"
_SPEC = (
    "version: 1\nruns:\n  sft:\n    consumer: accelerate\n    script: train.py\n    accelerate: accelerate.yaml\n"
    "    deepspeed: ds.json\n    model: model/config.json\n"
)
_YAML_FILE = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
_NESTED = (
    '{"model_type": "gemma3", "mm_tokens_per_image": 4, "text_config": {"model_type": "gemma3_text", '
    '"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32, '
    '"intermediate_size": 128, "vocab_size": 2048}, "vision_config": {"model_type": "siglip_vision_model", '
    '"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 64, "num_attention_heads": 2, '
    '"image_size": 28, "patch_size": 14}}\n'
)


_BREAKS_LATER = (
    "gradient_clipping",
    "steps_per_print",
    "data_types.grad_accum_dtype",
    "data_types.param_dtype",
    "data_types.buffer_dtype",
)
"""Keys at whose "auto" the engine stops after the config was parsed."""
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
    ).finds("error", 'ds.json: "overlap_comm": "auto"'),
    good=Example(
        {"ds.json": _AUTO_DS % '2, "overlap_comm": true', "recipe.yaml": _RECIPE % ""}, consumer="transformers"
    ),
    proof=crashes("init", "`zero_optimization.overlap_comm` not found in kwargs"),
    consumers={"accelerate", *TRAINERS},
    fixable=True,
)
def auto_that_nobody_fills(run: Run) -> Iterator[Finding]:
    """A literal "auto" that neither the Trainer nor accelerate fills.

    "auto" works for some twenty keys, so it looks as if it worked for all. The job stops after it waited for its
    machines and loaded the model.

    What happens: each of them fills its own list of keys; accelerate stops at any other "auto": `ValueError:
    overlap_comm not found in kwargs. Please specify overlap_comm without auto (set to correct value)`, after the
    model was loaded.

    Nothing is said where the project admits only releases of transformers before 4.30: that Trainer started the engine
    without accelerate, and DeepSpeed took the text as it stood.

    Fix: the key is removed, so that DeepSpeed's default applies.
    """
    if run.consumer in TRAINERS and only_below(run.versions.get("transformers"), "4.30"):
        return
    for failure in failures(run, "ZC406"):
        (name,) = failure.about
        who = "neither the Trainer nor accelerate fills" if run.consumer in TRAINERS else "accelerate does not fill"
        location, related = anchor(run, failure.places)
        place = failure.places[0] if failure.places else None
        yield Finding(
            location,
            f'`{name}` is "auto", which {who}; prepare() stops at it',
            "write a value",
            related,
            edited(delete_entry, place.file, place.path, why="leave it to DeepSpeed's default", safe=False)
            if place and place.kind == "file"
            else None,
        )


@rule(
    "ZC407",
    "hidden-size-missing",
    Severity.ERROR,
    bad=Example(
        {
            "zerocfg.yaml": _SPEC,
            "accelerate.yaml": _YAML_FILE,
            "ds.json": _AUTO_DS % '2, "reduce_bucket_size": "auto"',
            "model/config.json": _NESTED,
        },
        consumer="accelerate",
    ).finds("error", 'ds.json: "reduce_bucket_size": "auto"'),
    good=Example(
        {
            "zerocfg.yaml": _SPEC,
            "accelerate.yaml": _YAML_FILE,
            "ds.json": _AUTO_DS % '2, "reduce_bucket_size": 5000000',
            "model/config.json": _NESTED,
        },
        consumer="accelerate",
    ),
    proof=crashes("init", "Can find neither `model.config.hidden_size` nor `model.config.hidden_sizes`"),
    references=("transformers/integrations/deepspeed.py@5.23.0", "accelerate/accelerator.py@1.15.0"),
    needs={"model"},
    fixable=True,
)
def hidden_size_missing(run: Run) -> Iterator[Finding]:
    """Bucket sizes are "auto", and the model's config has no hidden size to work them out from.

    Models of several modalities keep the size in a part of their config. A file that served text models for months
    stops the first such model, after it was loaded.

    What happens: `ValueError: Can find neither model.config.hidden_size nor model.config.hidden_sizes, therefore it's
    not possible to automatically fill out the following auto entries` (the Trainer: `The model's config file has
    neither hidden_size nor hidden_sizes entry`). The Trainer also looks into text_config, accelerate does not; and
    below stage 3 the Trainer leaves the stage-3 sizes to accelerate.

    Fix: the keys are removed, so that DeepSpeed's defaults apply.
    """
    for failure in failures(run, "ZC407"):
        finding = told(run, failure, "write numbers of elements, or leave the keys out")
        places = [place for place in failure.places if place.kind == "file"]
        if places and all(place.file is places[0].file for place in places):
            paths = [place.path for place in places]
            finding.fix = without(places[0].file, paths, "leave them to DeepSpeed's defaults", safe=False)
        yield finding


@rule(
    "ZC415",
    "auto-without-filler",
    Severity.ERROR,
    bad=(
        Example({"ds.json": _AUTO_DS % "2"}, consumer="deepspeed").finds(
            "error",
            'ds.json: "train_micro_batch_size_per_gpu": "auto"',
            1,
            also=('ds.json: "gradient_accumulation_steps": "auto"',),
        ),
        Example(
            {"ds.json": (_DS % "2").replace("{", '{"gradient_clipping": "auto", ', 1)},
            consumer="deepspeed",
            proof=crashes("step", "'>' not supported between instances of 'str' and 'float'"),
        ).finds("error", 'ds.json: "gradient_clipping": "auto"'),
    ),
    good=Example({"ds.json": _DS % "2"}, consumer="deepspeed"),
    proof=crashes("parse", "non-int of type 'str'"),
    consumers={"deepspeed"},
)
def auto_without_filler(run: Run) -> Iterator[Finding]:
    """A literal "auto" in a config that deepspeed.initialize reads itself.

    The file was written for the Trainer or accelerate, which fill it. Without them half of it stops the job, and the
    other half is replaced by defaults that nobody chose.

    What happens: DeepSpeed fills none. At its top level, and in the parameters of optimizer and scheduler, it stops
    at the text (`TypeError: '>' not supported between instances of 'str' and 'int'`; for gradient_clipping only at
    the first step); in its typed sections it silently takes the default.
    """
    if run.deepspeed is None or changed_before(run):
        return
    stopping: list[Path] = []
    dropped: list[Path] = []
    parser = parser_of(run)
    for path in _autos(run):
        name = dotted(path)
        if name in _TOLD or "gather" in name:
            continue
        if (
            name in _BREAKS_LATER
            or _stops_parsing(path)
            or path[:2] in (("optimizer", "params"), ("scheduler", "params"))
        ):
            stopping.append(path)
        elif path[0] in ("zero_optimization", "fp16", "bf16") and "zenflow" not in path and parser.typed(path[0]):
            dropped.append(path)
    if stopping:
        yield Finding(
            Location(run.deepspeed, stopping[0]),
            f'{_named(stopping)} "auto", which deepspeed.initialize does not fill; it stops at the text',
            "write a value, or let accelerate or the Trainer read this file",
            [Location(run.deepspeed, path) for path in stopping[1:]],
        )
    if dropped:
        default = run.effective.value(dotted(dropped[0])) if len(dropped) == 1 else UNKNOWN
        yield Finding(
            Location(run.deepspeed, dropped[0]),
            f'{_named(dropped)} "auto", which nobody fills here: DeepSpeed silently takes its default'
            + (f" ({show(default)})" if default not in (None, UNKNOWN, "auto") else ""),
            "write a value or leave the key out",
            [Location(run.deepspeed, path) for path in dropped[1:]],
            severity=Severity.WARNING,
        )


def _stops_parsing(path: Path) -> bool:
    """Whether DeepSpeed stops at "auto" there as it parses; in the place of a section ZC108 says so."""
    schema = load_schema("deepspeed")
    key = schema.find(tuple(str(part) for part in path))
    return key is not None and key.facts.get("auto_raw") == "error" and key.section(schema) is None


def _named(paths: list[Path]) -> str:
    """ "`a` is", "`a` and 3 more are"."""
    more = f" and {len(paths) - 1} more are" if len(paths) > 1 else " is"
    return f"`{dotted(paths[0])}`{more}"


RULES = (
    auto_that_nobody_fills,
    hidden_size_missing,
    auto_without_filler,
)
