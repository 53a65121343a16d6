"""Plans summarized for tables, pictures and pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.memory.options import Options, TorchOptions
from zerocfg.memory.verdict import percent
from zerocfg.resolve.search.choice import ENGINE, OPTIMIZER_DEVICE, PARAM_DEVICE, STAGE

if TYPE_CHECKING:
    from zerocfg.memory.terms import Kind
    from zerocfg.memory.verdict import Rung
    from zerocfg.resolve.explain.alternatives import Alternative
    from zerocfg.resolve.explain.forecast import Forecast
    from zerocfg.resolve.search.candidates import Candidate

COLUMNS: dict[str, tuple[Kind, ...]] = {
    "param": ("parameters",),
    "grad": ("gradients",),
    "optim": ("optimizer",),
    "buffer": ("buffers", "temporaries"),
    "activ": ("activations", "logits"),
    "other": ("outside",),
}
"""The columns, and the kinds of terms that each one sums."""


NAMES = {
    "param": "parameters",
    "grad": "gradients",
    "optim": "optimizer",
    "buffer": "buffers and temporaries",
    "activ": "activations and logits",
    "other": "context, communication, allocator",
}
"""The columns' full names."""


def chance_of(forecast: Forecast) -> str:
    """The chance of the verdict, of figures that are bounds as a bound: ``at least 78%``; empty where none is known."""
    bound = {"at most": "at least ", "at least": "at most "}.get(forecast.standing, "")
    return "" if forecast.verdict.chance is None else f"{bound}{percent(forecast.verdict.chance)}"


def cost_of(rung: Rung) -> str:
    """What a change costs, and whether a node has too little memory for it."""
    return f"{rung.cost} (the node's memory limits it)" if rung.verdict.by_host else rung.cost


def describe_engine(options: Options | TorchOptions) -> str:
    """The engine of a plan: ``ZeRO-3, optimizer on the host``."""
    shared = f"layers shared by {options.tensor_parallel} ranks" if options.tensor_parallel > 1 else ""
    if isinstance(options, TorchOptions):
        return shared or {"single": "one process", "ddp": "DDP", "fsdp1": "FSDP", "fsdp2": "FSDP 2"}[options.kind]
    words = [f"ZeRO-{options.stage}"]
    for part, device in (("optimizer", options.offload_optimizer), ("parameters", options.offload_param)):
        if device != "none":
            words.append(f"{part} on {'the host' if device == 'cpu' else 'NVMe'}")
    return ", ".join([*words, shared] if shared else words)


def distinct_plans(rows: list[Alternative]) -> list[Alternative]:
    """The first of each combination of stage, offload and recomputation, and the run's own."""
    found, seen = [], set()
    for row in rows:
        settings = row.candidate.choice.settings()
        way = (
            settings.get(ENGINE),
            settings.get(STAGE),
            settings.get(OPTIMIZER_DEVICE),
            settings.get(PARAM_DEVICE),
            settings.get("gradient_checkpointing"),
        )
        if way not in seen or row.own:
            seen.add(way)
            found.append(row)
    return found


def by_column(candidate: Candidate) -> dict[str, int]:
    """Bytes of a device at the peak, by column."""
    found = dict.fromkeys(COLUMNS, 0)
    for term, size in candidate.prediction.worst.parts:
        column = next((name for name, kinds in COLUMNS.items() if term.kind in kinds), "other")
        found[column] += size
    found["other"] += candidate.prediction.device.expected - candidate.prediction.worst.size
    return found


def duration(value: float) -> str:
    """Seconds, or milliseconds below one."""
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"
