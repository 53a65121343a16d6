"""What ``zerocfg plan MODEL`` prints: every assumption, then the plans."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from zerocfg.cli.screens import plan_table
from zerocfg.report.table import folded
from zerocfg.run.config import VERSIONS

if TYPE_CHECKING:
    from zerocfg.resolve.model_plans import ModelPlans

OPTIMIZERS = {"adamw_fused": "AdamW, fused", "adamw": "AdamW"}


def as_text(found: ModelPlans, *, every: bool, width: int | None) -> str:
    """``width``: columns of the terminal that it is for."""
    facts, profile = found.built.inputs.facts, found.built.inputs.profile
    count = f"{facts.parameters:,} parameters" if facts.parameters else "parameters not known"
    where = profile.name if profile is not None else ""
    text = f"{found.model.name} on {where}: {count} ({found.model.origin})\n"
    text += "".join(f"  {name:<10} {value}\n" for name, value in assumptions(found).items())
    text += "  note       --lora, --seq and --batch change these; a spec (`zerocfg init`) says everything else\n"
    return folded(text, width) + "\n" + plan_table.text(found.rows, every=every, width=width)


def assumptions(found: ModelPlans) -> dict[str, str]:
    """Everything that the figures rest on and nobody said, by what it is about."""
    setup = found.rows[0].candidate.setup
    work = setup.workload
    dtype = found.model.config.get("dtype") or found.model.config.get("torch_dtype")
    adapters = setup.lora
    trained = "all parameters, with the Trainer of transformers"
    loaded = f"loaded in {dtype or 'float32 (the config names no dtype)'}"
    kept = "kept in fp32 for the optimizer unless a plan says otherwise"
    if adapters is not None:
        trained = f"LoRA of rank {adapters.rank}, PEFT's choice of layers, with TRL"
        loaded, kept = "of the model loaded in 16 bits", "those of the adapters updated"
    attention = work.attention if work is not None else "sdpa"
    loss = " and a loss without all logits" if work is not None and work.fused_loss else ""
    return {
        "trained": trained,
        "samples": f"{found.tokens} tokens each, {found.samples} of them a step, as micro batch x accumulation",
        "precision": f"{setup.precision}; parameters {loaded}, {kept}",
        "optimizer": OPTIMIZERS.get(setup.options.optimizer, setup.options.optimizer),
        "compute": f"{attention} attention{loss}; recomputation where a plan says `recomputed`",
        "releases": ", ".join(f"{name} {release}" for name, release in VERSIONS.items()),
        "host": _host(found),
    }


def _host(found: ModelPlans) -> str:
    profile = found.built.inputs.profile
    memory = profile.host.planning_gib if profile is not None and profile.host is not None else None
    if memory is None:
        return "as much memory as a plan with offload asks for (`zerocfg probe` measures it)"
    return f"{memory:,.0f} GiB of memory a node"


def as_data(found: ModelPlans) -> str:
    facts, profile = found.built.inputs.facts, found.built.inputs.profile
    data = {
        "version": 1,
        "unit": "bytes",
        "model": found.model.name,
        "hardware": profile.name if profile is not None else None,
        "parameters": facts.parameters,
        "assumed": assumptions(found),
        "plans": plan_table.data(found.rows),
    }
    return json.dumps(data, indent=2) + "\n"
