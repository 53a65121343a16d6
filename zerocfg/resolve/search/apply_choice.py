"""Applies a chosen value to the run, where the launched job will read it: the DeepSpeed file, the recipe, a flag."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocfg.catalog.counterparts import paths
from zerocfg.resolve.search.choice import LIGER, STEPS, ZERO
from zerocfg.run.model import Origin, Setting, SourceFile
from zerocfg.source.load import load_as
from zerocfg.source.node import Entry, Mapping, Scalar
from zerocfg.source.text import SourceText

if TYPE_CHECKING:
    from collections.abc import Mapping as Decided

    from zerocfg.resolve.inputs import Inputs
    from zerocfg.resolve.plan import Decision
    from zerocfg.run.model import Run

_AS_FLAGS = (
    ZERO + "stage",
    ZERO + "offload_optimizer.device",
    ZERO + "offload_optimizer.nvme_path",
    ZERO + "offload_param.device",
    ZERO + "offload_param.nvme_path",
    STEPS,
)
"""Settings that become launcher options where there is no DeepSpeed file: accelerate builds one from them."""


def argument_of(setting: str) -> str:
    """The Trainer's argument that has to agree with a chosen setting."""
    return setting if setting in ("gradient_checkpointing", LIGER) else paths("training-arguments")[setting][-1]


def apply_to_engine(run: Run, chosen: Decided[str, Decision]) -> Run:
    """The run with these keys of the DeepSpeed config, by their dotted names."""
    if run.deepspeed is None and run.consumer == "deepspeed":
        text = SourceText("ds_config.json", "{}")
        file = SourceFile(text.name, "deepspeed", text, load_as(text, "json"))
        run = replace(run, deepspeed=file, deepspeed_route="engine")
    for name, decision in chosen.items():
        if run.deepspeed is not None:
            run = replace(run, deepspeed=with_value(run.deepspeed, tuple(name.split(".")), decision.value))
        elif name in _AS_FLAGS:
            flag = Setting(str(decision.value), Origin("computed", decision.reason))
            run = replace(run, flags={**run.flags, paths("accelerate")[name][-1]: flag})
    return run


def apply_to_recipe(inputs: Inputs, argument: str, decision: Decision) -> Inputs:
    """The inputs with an argument of the Trainer; the recipe is emitted with it."""
    arguments = {**inputs.run.arguments, argument: Setting(decision.value, Origin("computed", decision.reason))}
    return replace(inputs, run=replace(inputs.run, arguments=arguments), changes={**inputs.changes, argument: decision})


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
            node.entries = [item for item in node.entries if item.key != part]
            node.entries.append(entry)
        node = entry.value
    assert isinstance(node, Mapping)
    node.entries = [entry for entry in node.entries if entry.key != path[-1]]
    node.entries.append(Entry(path[-1], node.span, Scalar(value, node.span, str(value))))
    return replace(file, document=replace(file.document, root=root))


def with_chosen(inputs: Inputs, decisions: Decided[str, Decision]) -> Inputs:
    """The inputs that remember these values as chosen."""
    return replace(inputs, chosen={**inputs.chosen, **decisions})


def in_engine(inputs: Inputs, decisions: Decided[str, Decision]) -> Inputs:
    """The inputs with these keys in the DeepSpeed config of the run."""
    return replace(inputs, run=apply_to_engine(inputs.run, decisions))
