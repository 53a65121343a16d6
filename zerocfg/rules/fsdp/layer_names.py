"""ZC6xx: class names of layers that are not found in the model."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import accelerate_section, edited, under_deepspeed_launcher
from zerocfg.rules.fsdp.plugin import WRAPPED, fsdp_setting
from zerocfg.rules.proof import crashes
from zerocfg.run.model import Run, SourceFile
from zerocfg.source.edit import replace_value
from zerocfg.source.node import Path

_SPEC = (
    "version: 1\nruns:\n  sft:\n    consumer: accelerate\n    script: train.py\n    accelerate: accelerate.yaml\n"
    "    model: model/config.json\n"
)
_QWEN = (
    '{"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, '
    '"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 2048}\n'
)
_MOE = (
    "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 3\n"
    "  zero3_save_16bit_model: true\n"
)
_KEY = "transformer_layer_cls_to_wrap"


def _example(key: str) -> Example:
    files = {
        "zerocfg.yaml": _SPEC,
        "accelerate.yaml": WRAPPED % 2 + key,
        "model/config.json": _QWEN,
    }
    return Example(files, consumer="accelerate")


def _names(value: object) -> list[str]:
    if isinstance(value, list):
        return [str(part) for part in value]
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else []


@rule(
    "ZC618",
    "layer-of-another-model",
    Severity.ERROR,
    bad=_example("  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n").finds(
        "error", "accelerate.yaml: LlamaDecoderLayer"
    ),
    good=_example("  fsdp_transformer_layer_cls_to_wrap: Qwen2DecoderLayer\n"),
    proof=crashes("init", "Could not find the transformer layer class LlamaDecoderLayer in the model", ranks=2),
    fixable=True,
    references=("accelerate/utils/fsdp_utils.py@1.15.0",),
    needs={"model"},
)
def layer_of_another_model(run: Run) -> Iterator[Finding]:
    """The layer class to wrap belongs to another architecture than the model.

    A config that was copied from a run with another model stops, and only after the model was loaded on every
    process.

    What happens: `ValueError: Could not find the transformer layer class LlamaDecoderLayer in the model.` Where the
    key is left out, FSDP takes the layers that the model names itself.

    Fix: the decoder layer of the model at hand is written.
    """
    found = fsdp_setting(run, _KEY)
    if found is None or run.model is None or run.model.layer_class is None:
        return
    _, file, path, value = found
    wrong = [name for name in _names(value) if name in run.model.foreign_classes]
    if not wrong:
        return
    own = run.model.layer_class
    yield Finding(
        Location(file, path, "value"),
        f"{run.model.name} ({run.model.model_type}) has no {wrong[0]}: wrapping stops at it",
        f"write {own}, or remove the key",
        fix=edited(replace_value, file, path, own, why=f"write {own}") if len(_names(value)) == 1 else None,
    )


@rule(
    "ZC641",
    "expert-layers-misspelled",
    Severity.ERROR,
    bad=(
        Example(
            {"accelerate.yaml": _MOE + "  deepspeed_moe_layer_cls_names: [LlamaMLP]\n"},
            consumer="accelerate",
        ).finds("error", "accelerate.yaml: deepspeed_moe_layer_cls_names: [LlamaMLP]"),
        Example(
            {"accelerate.yaml": _MOE + "  deepspeed_moe_layer_cls_names: LlamaMLP, LlamaAttention\n"},
            consumer="accelerate",
        ).finds("error", "accelerate.yaml: deepspeed_moe_layer_cls_names: LlamaMLP, LlamaAttention"),
    ),
    good=Example(
        {"accelerate.yaml": _MOE + "  deepspeed_moe_layer_cls_names: LlamaMLP,LlamaAttention\n"},
        consumer="accelerate",
    ),
    proof=crashes("init", "Could not find a transformer layer class called", ranks=2),
    fixable=True,
    references=("accelerate/utils/dataclasses.py@1.15.0",),
)
def expert_layers_misspelled(run: Run) -> Iterator[Finding]:
    """`deepspeed_moe_layer_cls_names` is written as a list, or with spaces.

    The classes are those of the expert blocks, which ZeRO 3 has to gather as a whole; the names are right, and the
    job stops all the same, after the model was loaded.

    What happens: the value becomes a text that is split at commas and not stripped: `Exception: Could not find a
    transformer layer class called ' LlamaAttention' to wrap in the model.` A list becomes one name in brackets.

    Fix: the names are joined by commas without spaces.
    """
    value = accelerate_section(run).get("deepspeed_moe_layer_cls_names")
    if run.accelerate is None or not under_deepspeed_launcher(run):
        return
    if not isinstance(value, list) and not (isinstance(value, str) and any(p != p.strip() for p in value.split(","))):
        return
    yield _misspelled(run.accelerate, ("deepspeed_config", "deepspeed_moe_layer_cls_names"), value)


def _misspelled(file: SourceFile, path: Path, value: object) -> Finding:
    names = ",".join(name.strip() for name in _names(value))
    plain = names.replace(",", "").replace("_", "").isalnum()
    return Finding(
        Location(file, path),
        f"`{path[-1]}` becomes {show(str(value))}, split at commas: no class is called so, and the job stops",
        f"write {names}",
        fix=edited(replace_value, file, path, names, why="join the names by commas") if plain else None,
    )


RULES = (layer_of_another_model, expert_layers_misspelled)
