"""Putting a chosen value into a run, where the launched job will find it: the DeepSpeed file, the recipe, a flag."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocfg.resolve.candidates import MICRO, STEPS, ZERO
from zerocfg.run.model import Origin, Setting, SourceFile
from zerocfg.source.load import load_as
from zerocfg.source.node import Entry, Mapping, Scalar
from zerocfg.source.text import SourceText

if TYPE_CHECKING:
    from zerocfg.resolve.inputs import Inputs
    from zerocfg.resolve.plan import Decision

# Where there is no DeepSpeed file, accelerate makes one from its flags.
FLAGS = {
    ZERO + "stage": "zero_stage",
    ZERO + "offload_optimizer.device": "offload_optimizer_device",
    ZERO + "offload_optimizer.nvme_path": "offload_optimizer_nvme_path",
    ZERO + "offload_param.device": "offload_param_device",
    ZERO + "offload_param.nvme_path": "offload_param_nvme_path",
    STEPS: "gradient_accumulation_steps",
}
# The same values among the Trainer's arguments.
ARGUMENTS = {
    MICRO: "per_device_train_batch_size",
    STEPS: "gradient_accumulation_steps",
    "gradient_checkpointing": "gradient_checkpointing",
}


def into_engine(inputs: Inputs, chosen: dict[str, Decision]) -> None:
    """Keys of the DeepSpeed config, by their dotted names."""
    run = inputs.run
    if run.deepspeed is None and run.consumer == "deepspeed":
        text = SourceText("ds_config.json", "{}")
        run.deepspeed = SourceFile(text.name, "deepspeed", text, load_as(text, "json"))
        run.deepspeed_route = "engine"
    for name, one in chosen.items():
        if run.deepspeed is not None:
            run.deepspeed = with_value(run.deepspeed, tuple(name.split(".")), one.value)
        elif name in FLAGS:
            flag = Setting(str(one.value), Origin("computed", one.reason))
            run.flags = {**run.flags, FLAGS[name]: flag}


def into_recipe(inputs: Inputs, argument: str, one: Decision) -> None:
    """An argument of the Trainer; the recipe is emitted with it."""
    inputs.run.arguments = {**inputs.run.arguments, argument: Setting(one.value, Origin("computed", one.reason))}
    inputs.changes[argument] = one


def with_value(file: SourceFile, path: tuple[str, ...], value: Any) -> SourceFile:
    """The file with one value set, in memory only; its text stays as it is."""
    assert file.document is not None
    root = deepcopy(file.document.root)
    node = root
    for part in path[:-1]:
        assert isinstance(node, Mapping)
        entry = node.entry(part)
        if entry is None or not isinstance(entry.value, Mapping):
            entry = Entry(part, node.span, Mapping(node.span))
            node.entries = [one for one in node.entries if one.key != part]
            node.entries.append(entry)
        node = entry.value
    assert isinstance(node, Mapping)
    node.entries = [entry for entry in node.entries if entry.key != path[-1]]
    node.entries.append(Entry(path[-1], node.span, Scalar(value, node.span, str(value))))
    return replace(file, document=replace(file.document, root=root))
