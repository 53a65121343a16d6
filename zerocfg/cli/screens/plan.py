"""What ``zerocfg plan`` prints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from zerocfg.cli.screens import plan_table
from zerocfg.hardware.between_nodes import describe_network
from zerocfg.memory.overhead import GIB, MIB, Band
from zerocfg.record import record
from zerocfg.resolve.explain.forecast import LITTLE, Forecast
from zerocfg.resolve.explain.plan_summary import chance_of, cost_of, describe_engine, duration
from zerocfg.resolve.model.gaps import touching
from zerocfg.terminal.table import Column, folded, table

if TYPE_CHECKING:
    from zerocfg.memory.terms import Held, Phase
    from zerocfg.memory.time import rates
    from zerocfg.memory.verdict import Rung
    from zerocfg.resolve.build import BuildResult
    from zerocfg.resolve.explain.alternatives import Alternative
    from zerocfg.resolve.model.gaps import Gap


@record(frozen=True, slots=True)
class Shown:
    """One run: what is predicted of it, or in words why nothing is; and the other ways to run it."""

    built: BuildResult
    forecast: Forecast | str
    alternatives: list[Alternative]


def as_text(found: list[Shown], *, every: bool = False, width: int | None = None) -> str:
    """``width``: columns of the terminal that it is for."""
    return "\n".join(
        folded(_run(item.built, item.forecast, width), width) + _others(item, every, width) for item in found
    )


def _others(item: Shown, every: bool, width: int | None) -> str:
    text = plan_table.text(item.alternatives, every=every, width=width)
    return f"\n{text}" if text else ""


def _run(built: BuildResult, item: Forecast | str, width: int | None) -> str:
    assert built.plan is not None
    title = f"{built.name}: {built.plan.consumer} on {built.plan.hardware}"
    if isinstance(item, str):
        return f"{title}\n  nothing can be predicted: {item}\n"
    text = f"{title}, {describe_engine(item.setup.options)}, {item.setup.precision}\n"
    work = item.setup.workload
    if work is not None:
        kept = "gradient checkpointing" if work.gradient_checkpointing else "all activations kept"
        loss = ", loss without all logits" if work.fused_loss else ""
        batch = f"micro batch {work.micro_batch} x {work.sequence_length} tokens"
        text += f"  {batch}, {kept}, {work.attention} attention{loss}\n"
    network = _network(built)
    text += f"  between nodes: {network}\n" if network else ""
    text += "".join(f"  not modelled: {gap}\n" for gap in item.gaps)
    text += "\n" + _phases(item, width) + "\n" + _figures(item)
    text += _time(item)
    text += "".join(f"  note       {note}\n" for note in item.notes)
    return text + _ladder(item)


def _network(built: BuildResult) -> str:
    profile = built.plan.profile if built.plan is not None else None
    return "" if profile is None else describe_network(profile)


def _phases(forecast: Forecast, terminal: int | None) -> str:
    """A row for each term, a column for each phase: what is held at the phase's worst moment."""
    phases = forecast.prediction.estimate.phases("device")
    rows: dict[str, dict[Phase, int]] = {}
    for phase, memory in phases.items():
        for term, size in memory.parts:
            row = rows.setdefault(term.name, {})
            row[phase] = row.get(phase, 0) + size
    order = sorted(rows, key=lambda name: -max(rows[name].values()))
    peak = max(memory.size for memory in phases.values())
    unit, scale = ("GiB", GIB) if peak >= GIB // 10 else ("MiB", MIB)  # toy models

    def cell(size: int) -> str:
        return f"{size / scale:.2f}" if size else "-"

    shown = [name for name in order if max(rows[name].values()) >= 0.005 * scale]
    rest: dict[Phase, int] = {phase: sum(rows[n].get(phase, 0) for n in order if n not in shown) for phase in phases}
    if any(rest.values()):
        rows["the rest"] = rest
        shown.append("the rest")
    rows["allocated"] = {phase: memory.size for phase, memory in phases.items()}
    columns = [Column(f"on each device, {unit}", least=20), *(Column(f"{phase:>6}", right=True) for phase in phases)]
    cells = [(name, *(cell(rows[name].get(phase, 0)) for phase in phases)) for name in [*shown, "allocated"]]
    return "".join(f"{line}\n" for line in table(columns, cells, terminal))


def _size(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB // 10 else f"{size / MIB:.1f} MiB"


def _band(band: Band) -> str:
    low, high = _size(band.low), _size(band.high)
    return low if low == high else f"{low.removesuffix(' GiB') if high.endswith(' GiB') else low} to {high}"


def _figures(forecast: Forecast) -> str:
    prediction = forecast.prediction

    def range_of(band: Band) -> str:
        return _bound(forecast, band)

    allocated = range_of(prediction.allocated)
    if forecast.standing == "modelled" and allocated != _size(prediction.allocated.expected):
        allocated = f"{_size(prediction.allocated.expected)} ({allocated})"
    text = f"  allocated  {allocated} at the peak: torch.cuda.max_memory_allocated\n"
    text += f"  reserved   {range_of(prediction.reserved)}: torch.cuda.max_memory_reserved\n"
    text += f"  device     {range_of(prediction.device)}: what nvidia-smi shows for the process\n"
    if prediction.complete:
        text += f"  bands      {'narrow' if prediction.tier.narrow else 'wide'}: {prediction.tier.reason}\n"
    unknown = "not known: how much memory there is for a rank is not stated"
    text += f"  verdict    {unknown if forecast.capacity is None else _verdict(forecast, forecast.capacity)}\n"
    return text + _host(forecast)


def _bound(forecast: Forecast, band: Band) -> str:
    """A figure of memory, as far as it is one."""
    if forecast.standing in ("at least", "at most"):
        return f"{forecast.standing} {_size(band.low if forecast.standing == 'at least' else band.high)}"
    return _band(band) if forecast.standing == "modelled" else f"{_band(band)} without what is not modelled"


def _verdict(forecast: Forecast, capacity: int) -> str:
    """Whether it fits, how likely that is, and what is needed of what there is."""
    device = forecast.prediction.device
    has = f"{'each rank' if forecast.on_host else 'the card'} has {_number(capacity)}"
    if forecast.word == "unknown":
        lacking = [] if forecast.prediction.complete else ["activations"]
        lacking += [f"`{name}`" for gap in touching(forecast.gaps, "memory") for name, _ in gap.keys]
        return f"not known without {', '.join(lacking)}: needs {_bound(forecast, device)}, {has}"
    if forecast.verdict.by_host and forecast.room is not None:
        needed, room = _size(forecast.host.expected), _size(forecast.room)
        return f"{_chance(forecast)}the ranks need {needed} of a node's memory, which has {room}"
    needed = f"at least {_size(device.low)}" if forecast.word == "does not fit" else _bound(forecast, device)
    where = " on the card" if forecast.word != "does not fit" and forecast.of_host.word == "unknown" else ""
    return f"{_chance(forecast, where)}needs {needed}, {has}"


def _chance(forecast: Forecast, where: str = "") -> str:
    """``likely: 78%, ``; of figures that are bounds a bound, and nothing of what does not fit."""
    chance = chance_of(forecast)
    return (
        f"{forecast.word}: " if forecast.word == "does not fit" or not chance else f"{forecast.word}{where}: {chance}, "
    )


def _number(size: int) -> str:
    return _size(size).removesuffix(" GiB")


def _host(forecast: Forecast) -> str:
    """What the ranks of a node take of its memory and its drives; nothing where that is little."""
    text = ""
    if forecast.host.expected >= LITTLE:
        of = f" of {_size(forecast.room)}" if forecast.room is not None else ""
        lacking = {
            "does not fit": ": the system would end the job (exit code -9)",
            "unlikely": ": the system would most likely end the job (exit code -9)",
            "unknown": "; its size is not known",
        }
        lack = lacking.get(forecast.of_host.word, "")
        text += f"  host       {_size(forecast.host.expected)}{of} of a node's memory{lack}\n"
    if forecast.nvme >= GIB // 10:
        text += f"  drives     {_size(forecast.nvme)} on the NVMe drives of a node\n"
    return text


def _time(forecast: Forecast) -> str:
    if forecast.time is None:
        return ""
    time, seconds = forecast.time, forecast.time.seconds
    text = f"  step       {duration(seconds.expected)} ({duration(seconds.low)} to {duration(seconds.high)})"
    text += f", {time.tokens_per_second:,.0f} tokens/s, MFU {time.mfu:.0%}\n"
    parts = sorted(time.parts, key=lambda part: -part.seconds.expected)
    text += "             " + ", ".join(f"{part.name} {duration(part.seconds.expected)}" for part in parts) + "\n"
    if forecast.price is not None:
        step, billion = time.cost_per_step(forecast.price), time.cost_per_billion_tokens(forecast.price)
        text += f"  cost       {step.expected:.3g} a step, {billion.expected:,.0f} for 1e9 tokens "
        text += f"({billion.low:,.0f} to {billion.high:,.0f})\n"
    return text


def _ladder(forecast: Forecast) -> str:
    if forecast.ladder is None:
        return ""
    text = "\n"
    if forecast.ladder.together:
        text += "  the cheapest way to make it fit:\n"
        text += "".join(_rung(rung) for rung in forecast.ladder.together)
    else:
        text += "  no change that zerocfg knows makes it fit on this hardware\n"
    text += "  each change alone:\n"
    return text + "".join(_rung(rung) for rung in forecast.ladder.single)


def _rung(rung: Rung) -> str:
    slower = f", {rung.slower:.2f} x the time" if rung.slower else ""
    word = rung.word if rung.word == "does not fit" else str(rung.verdict)
    return f"    {_band(rung.prediction.device):>18}  {word:<13}  {rung.what}: {cost_of(rung)}{slower}\n"


def as_data(found: list[Shown]) -> str:
    runs = [_data(item.built, item.forecast) | {"plans": plan_table.data(item.alternatives)} for item in found]
    return json.dumps({"version": 1, "unit": "bytes", "runs": runs}, indent=2) + "\n"


def _data(built: BuildResult, item: Forecast | str) -> dict[str, object]:
    if isinstance(item, str):
        return {"run": built.name, "error": item}
    prediction = item.prediction
    return {
        "run": built.name,
        "network": _network(built) or None,
        "verdict": item.word,
        "chance": item.verdict.chance,
        "capacity": item.capacity,
        "complete": item.complete,
        "not_modelled": [_gap_data(gap) for gap in item.gaps],
        "allocated": _ends(prediction.allocated),
        "reserved": _ends(prediction.reserved),
        "device": _ends(prediction.device),
        "bands": {"narrow": prediction.tier.narrow, "reason": prediction.tier.reason},
        "phases": {phase: _moment(memory) for phase, memory in prediction.estimate.phases("device").items()},
        "host": _moment(prediction.estimate.peak("host")),
        "nvme": _moment(prediction.estimate.peak("nvme")),
        "node": {
            "host": item.host.expected,
            "loading_in_another_dtype": item.loading,
            "memory": item.room,
            "nvme": item.nvme,
            "verdict": item.of_host.word,
            "chance": item.of_host.chance,
        },
        "time": _time_data(item),
        "notes": list(item.notes),
        "changes": [_rung_data(rung) for rung in item.ladder.single] if item.ladder else [],
        "cheapest": [_rung_data(rung) for rung in item.ladder.together] if item.ladder else [],
    }


def _gap_data(gap: Gap) -> dict[str, object]:
    return {
        "keys": dict(gap.keys),
        "effect": gap.effect,
        "figures_are": gap.standing,
        "touches": list(gap.touches),
    }


def _time_data(forecast: Forecast) -> dict[str, object] | None:
    time = forecast.time
    if time is None:
        return None
    data: dict[str, object] = {
        "seconds": _times(time.seconds),
        "tokens_per_second": time.tokens_per_second,
        "samples_per_second": time.samples_per_second,
        "tflops_per_device": time.tflops,
        "mfu": time.mfu,
        "parts": [
            {"name": part.name, "seconds": _times(part.seconds), "formula": part.formula, "inputs": dict(part.inputs)}
            for part in time.parts
        ],
    }
    if forecast.price is not None:
        data["cost_per_step"] = _times(time.cost_per_step(forecast.price))
        data["cost_per_billion_tokens"] = _times(time.cost_per_billion_tokens(forecast.price))
    return data


def _times(band: rates.Band) -> dict[str, float]:
    return {"low": band.low, "expected": band.expected, "high": band.high}


def _ends(band: Band) -> dict[str, int]:
    return {"low": band.low, "expected": band.expected, "high": band.high}


def _moment(memory: Held) -> dict[str, object]:
    parts = [
        {"name": term.name, "kind": term.kind, "size": size, "source": term.source, "holds_for": term.holds_for}
        for term, size in memory.parts
    ]
    return {"moment": memory.moment, "size": memory.size, "terms": parts}


def _rung_data(rung: Rung) -> dict[str, object]:
    return {
        "change": rung.what,
        "cost": rung.cost,
        "slower": rung.slower,
        "verdict": rung.word,
        "chance": rung.verdict.chance,
        "device": _ends(rung.prediction.device),
    }
