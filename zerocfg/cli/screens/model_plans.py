"""What ``zerocfg plan MODEL`` prints: every assumption, then the plans or why none fits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from zerocfg.cli.screens import plan_table
from zerocfg.hardware.between_nodes import describe_network
from zerocfg.memory.overhead import GIB
from zerocfg.resolve.model.room import device_room
from zerocfg.run.config import VERSIONS
from zerocfg.terminal.table import folded

if TYPE_CHECKING:
    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.resolve.model_plans import ModelImages, ModelPlans

OPTIMIZERS = {"adamw_fused": "AdamW, fused", "adamw": "AdamW", "fused_adam": "FusedAdam"}
SHOWN = 12  # plans, where none fits


def as_text(found: ModelPlans, every: bool, width: int | None) -> str:
    """``width``: columns of the terminal that it is for."""
    facts = found.built.inputs.facts
    count = f"{facts.parameters:,} parameters" if facts.parameters else "parameters not known"
    text = f"{found.model.name} on {found.profile.name}: {count} ({found.model.origin})\n"
    text += "".join(f"  {name:<10} {value}\n" for name, value in assumptions(found).items())
    text += "".join(f"  not modelled: {gap}\n" for gap in found.gaps)
    text += "".join(f"  note       {note}\n" for note in found.notes)
    changes = "--lora, --seq and --batch" if found.images is None else "--images, --lora, --seq and --batch"
    text += f"  change     {changes}; a spec (`zerocfg init`) says everything else\n"
    if found.rows:
        return folded(text, width) + "\n" + plan_table.text(found.rows, every=every, width=width)
    problems = "".join(f"  {problem.message}\n  {problem.help}\n" for problem in found.built.problems)
    return folded(f"{text}\n{problems}", width) + plan_table.compared(found.built.inputs.considered, SHOWN, width)


def assumptions(found: ModelPlans) -> dict[str, str]:
    """Everything that the figures rest on and nobody said, by what it is about."""
    setup = found.setup
    dtype = found.model.config.get("dtype") or found.model.config.get("torch_dtype")
    adapters = setup.lora
    trained = "all parameters, with the Trainer of transformers"
    loaded = f"loaded in {dtype or 'float32 (the config names no dtype)'}"
    kept = "kept in fp32 for the optimizer unless a plan says otherwise"
    attention, loss = "sdpa", ""
    if adapters is not None:
        trained = f"LoRA of rank {adapters.rank}, PEFT's choice of layers, with TRL"
        loaded, kept = "of the model loaded in 16 bits", "those of the adapters updated"
    if setup.workload is not None:
        attention = setup.workload.attention
        loss = " and a loss without all logits" if setup.workload.fused_loss else ""
    return {
        "trained": trained,
        "samples": f"{found.tokens} tokens each, {found.samples} of them a step: micro batch x accumulation x ranks",
        **({"images": _images(found.images)} if found.images is not None else {}),
        "precision": f"{setup.precision}; parameters {loaded}, {kept}",
        "optimizer": OPTIMIZERS.get(setup.options.optimizer, setup.options.optimizer),
        "compute": f"{attention} attention{loss}; recomputation where a plan says `recomputed`",
        "releases": ", ".join(f"{name} {release}" for name, release in VERSIONS.items()),
        "hardware": _hardware(found.profile),
        **({"network": network} if (network := describe_network(found.profile)) else {}),
        "host": _host(found.profile),
    }


def _images(images: ModelImages) -> str:
    if not images.per_sample:
        return "none: text alone; --images N --pixels P says how many a sample has, and how large"
    size = f" of {images.pixels:,} pixels" if images.pixels is not None else ""
    tokens = f", {images.tokens:,} of its tokens" if images.tokens is not None else ""
    return f"{images.per_sample}{size} in a sample{tokens}"


def _hardware(profile: HardwareProfile) -> str:
    room, link = device_room(profile), profile.link_within_node
    nodes = f"{profile.nodes} nodes of " if profile.nodes > 1 else ""
    memory = f" with {room / GIB:.1f} GiB" if room is not None else ", memory not known"
    joined = f", {link.kind} of {link.gb_s:,.0f} GB/s" if link is not None and link.gb_s is not None else ""
    return f"{nodes}{profile.accelerators_per_node} x {profile.accelerator.name}{memory}{joined}"


def _host(profile: HardwareProfile) -> str:
    memory = profile.host.planning_gib if profile.host is not None else None
    if memory is None:
        return "as much memory as a plan with offload asks for (`zerocfg probe` measures it)"
    return f"{memory:,.0f} GiB of memory a node"


def as_data(found: ModelPlans) -> str:
    data = {
        "version": 1,
        "unit": "bytes",
        "model": found.model.name,
        "hardware": found.profile.name,
        "parameters": found.built.inputs.facts.parameters,
        "assumed": assumptions(found),
        "not_modelled": [{"keys": dict(gap.keys), "effect": gap.effect} for gap in found.gaps],
        "notes": list(found.notes),
        "plans": plan_table.data(found.rows),
        "problems": [{"message": problem.message, "help": problem.help} for problem in found.built.problems],
    }
    return json.dumps(data, indent=2) + "\n"
