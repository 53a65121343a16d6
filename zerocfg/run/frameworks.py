"""Frameworks around the Trainer that have recipes of their own: LLaMA-Factory, axolotl and ms-swift.

Their keys are theirs to judge. What zerocfg knows is what they hand on to the Trainer: the DeepSpeed config that a
recipe names, and the few fields whose values arrive as they are written. Established on llamafactory 0.9.5, axolotl
0.19.0 and ms-swift 4.6.0; the names of DeepSpeed configs also on ms-swift 2.6.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import yaml_number
from zerocfg.record import field, record, replace
from zerocfg.run.model import UNKNOWN, Consumer, Origin, Run, Setting, SourceFile

if TYPE_CHECKING:
    from zerocfg.source.launch.line import LaunchLine

_SHARED = (
    "deepspeed gradient_accumulation_steps learning_rate max_grad_norm weight_decay adam_beta1 adam_beta2 adam_epsilon "
    "max_steps"
).split()
"""Fields of TrainingArguments that keep their name and a written value in all three."""


@record(frozen=True, slots=True)
class Framework:
    """One framework.

    ``handed_on``: its keys, with the field of TrainingArguments that gets the value as written. ``extends``: its
    recipes hold the fields of TrainingArguments themselves, and one that is absent has transformers' default; of these
    the framework sets ``own`` itself. ``modules``: the Python modules that train. ``presets`` and ``shipped``:
    DeepSpeed configs that come with it, by name or by the start of their path.
    """

    name: Consumer
    modules: tuple[str, ...]
    handed_on: Mapping[str, str] = field(default_factory=dict)
    extends: bool = False
    own: frozenset[str] = frozenset()
    presets: frozenset[str] = frozenset()
    shipped: tuple[str, ...] = ()


FRAMEWORKS: dict[str, Framework] = {
    one.name: one
    for one in (
        # hparams/parser.py: HfArgumentParser over Seq2SeqTrainingArguments and four dataclasses of its own.
        Framework(
            "llamafactory",
            ("llamafactory.launcher", "llamafactory.train.tuner"),
            extends=True,
            own=frozenset(
                "remove_unused_columns label_names ddp_find_unused_parameters resume_from_checkpoint report_to "
                "generation_max_length generation_num_beams fp8".split()
            ),
            shipped=("examples/deepspeed/",),
        ),
        # core/builders/base.py and causal.py: TrainingArguments are made of the recipe, field by field.
        Framework(
            "axolotl",
            ("axolotl.cli.train",),
            handed_on={**{name: name for name in _SHARED}, "micro_batch_size": "per_device_train_batch_size"},
            shipped=("deepspeed_configs/",),
        ),
        # arguments/sft_args.py: Seq2SeqTrainingArguments with other defaults; `bf16` and `fp16` as given.
        Framework(
            "swift",
            ("swift.cli.sft", "swift.cli.pt", "swift.cli.rlhf"),
            handed_on={name: name for name in (*_SHARED, "per_device_train_batch_size", "bf16", "fp16")},
            presets=frozenset(
                "zero0 zero1 zero2 zero2_offload zero3 zero3_offload "
                "default-zero2 default-zero3 zero2-offload zero3-offload".split()  # the names of ms-swift 2
            ),
        ),
    )
}

_STAGES = frozenset("pt sft rm ppo dpo kto".split())


def recognise(data: Mapping[Any, Any]) -> Consumer | None:
    """The framework whose recipe this is, by combinations of keys that no other one has."""
    if "finetuning_type" in data and ("model_name_or_path" in data or "stage" in data):
        return "llamafactory"
    stage = data.get("stage")
    known = isinstance(stage, str) and stage in _STAGES
    if known and "model_name_or_path" in data and ("template" in data or "cutoff_len" in data):
        return "llamafactory"
    if "base_model" in data and data.keys() & _AXOLOTL:
        return "axolotl"
    if data.keys() & {"tuner_type", "train_type", "sft_type"} and data.keys() & {"model", "model_type", "dataset"}:
        return "swift"
    return None


_AXOLOTL = frozenset(
    "datasets pretraining_dataset micro_batch_size sequence_len num_epochs adapter sample_packing val_set_size "
    "dataset_prepared_path".split()
)


def started_by_line(line: LaunchLine, arguments: Mapping[str, Setting]) -> Consumer | None:
    """The framework that a launch line starts: its program, its module, its script, or options that are its own."""
    if line.launcher in FRAMEWORKS:
        return FRAMEWORKS[line.launcher].name
    script = (line.script.value or "") if line.script is not None else ""
    module = script if line.module else script.removesuffix(".py").replace("\\", "/").replace("/", ".")
    for one in FRAMEWORKS.values():
        if any(module == name or module.endswith("." + name) for name in one.modules):
            return one.name
    given = {name: setting.value for name, setting in arguments.items()}
    return "llamafactory" if recognise(given) == "llamafactory" else None


def ships_config(consumer: str | None, path: object) -> bool:
    """Whether a DeepSpeed config named in this way comes with the framework, so that it need not lie here."""
    one = FRAMEWORKS.get(consumer or "")
    if one is None or not isinstance(path, str):
        return False
    inside = path.replace("\\", "/")
    return inside in one.presets or any(inside.startswith(start) or f"/{start}" in inside for start in one.shipped)


def has_defaults(consumer: str | None) -> bool:
    """Whether a training argument that is not written has the default of TrainingArguments."""
    one = FRAMEWORKS.get(consumer or "")
    return one is None or one.extends


def with_framework(run: Run, consumer: Consumer, recipe: SourceFile | None = None) -> Run:
    """The run with a framework as its reader: of its recipe and its line only what it hands on is left as arguments."""
    one = FRAMEWORKS[consumer]
    data = recipe.data() if recipe is not None else None
    data = data if isinstance(data, dict) else {}
    fields = _fields(one)
    found = {
        fields[key]: Setting(_read(fields[key], value), Origin("file", file=recipe, path=(key,)))
        for key, value in data.items()
        if key in fields and not (key == "deepspeed" and not value)
    }
    found |= {fields[name]: setting for name, setting in _overrides(run).items() if name in fields}
    if one.name == "axolotl":
        found |= _axolotl_precision(data, recipe, run)
    if data.get("pure_bf16"):  # LLaMA-Factory trains in bf16 without telling the Trainer
        found |= {name: Setting(UNKNOWN, found[name].origin) for name in ("bf16", "fp16") if name in found}
    return replace(run, consumer=consumer, framework_recipe=recipe, recipe=None, recipe_reader=None, arguments=found)


def _fields(one: Framework) -> Mapping[str, str]:
    if not one.extends:
        return one.handed_on
    return {name: name for name in load_schema("training-arguments").root.keys if name not in one.own}


def _read(name: str, value: Any) -> Any:
    """`2e-5` is a number to all three; a key without a value, an interpolation, a word where a number or a yes or no
    belongs say nothing that is known."""
    kind = (load_schema("training-arguments").root.keys[name].facts.get("cli") or {}).get("type")
    if isinstance(value, str):
        wanted = kind not in ("int", "float", "bool") or not isinstance(yaml_number(value), str)
        return value if wanted and "${" not in value else UNKNOWN
    if kind in ("int", "float"):
        return value if isinstance(value, (int, float)) else UNKNOWN
    return value if isinstance(value, bool) or (name == "deepspeed" and isinstance(value, dict)) else UNKNOWN


def _overrides(run: Run) -> dict[str, Setting]:
    """The arguments of a line: options, and words `key=value` that LLaMA-Factory merges into its recipe."""
    found = dict(run.arguments)
    for word in run.launch.arguments if run.launch is not None else ():
        name, equals, text = (word.value or "").partition("=")
        if equals and name.isidentifier():
            found[name] = Setting(text, Origin("flag", name, run.launch_file, (), word.span))
    return found


def _axolotl_precision(data: Mapping[Any, Any], recipe: SourceFile | None, run: Run) -> dict[str, Setting]:
    """`bf16: true` turns fp16 off; `auto` is resolved by the device, and everything else depends on other keys."""
    if data.get("bf16") is not True or {"bf16", "fp16"} & run.arguments.keys():
        return {}
    origin = Origin("file", file=recipe, path=("bf16",))
    return {"bf16": Setting(True, origin), "fp16": Setting(False, origin)}
