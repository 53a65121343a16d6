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
    return "\n".join(folded(_run(one.built, one.forecast, width), width) + _others(one, every, width) for one in found)


def _others(one: Shown, every: bool, width: int | None) -> str:
    text = plan_table.text(one.alternatives, every=every, width=width)
    return f"\n{text}" if text else ""


def _run(built: BuildResult, one: Forecast | str, width: int | None) -> str:
    assert built.plan is not None
    title = f"{built.name}: {built.plan.consumer} on {built.plan.hardware}"
    if isinstance(one, str):
        return f"{title}\n  nothing can be predicted: {one}\n"
    text = f"{title}, {describe_engine(one.setup.options)}, {one.setup.precision}\n"
    work = one.setup.workload
    if work is not None:
        kept = "gradient checkpointing" if work.gradient_checkpointing else "all activations kept"
        loss = ", loss without all logits" if work.fused_loss else ""
        batch = f"micro batch {work.micro_batch} x {work.sequence_length} tokens"
        text += f"  {batch}, {kept}, {work.attention} attention{loss}\n"
    network = _network(built)
    text += f"  between nodes: {network}\n" if network else ""
    text += "".join(f"  not modelled: {gap}\n" for gap in one.gaps)
    text += "\n" + _phases(one, width) + "\n" + _figures(one)
    text += _time(one)
    text += "".join(f"  note       {note}\n" for note in one.notes)
    return text + _ladder(one)


def _network(built: BuildResult) -> str:
    profile = built.plan.profile if built.plan is not None else None
    return "" if profile is None else describe_network(profile)


def _phases(one: Forecast, terminal: int | None) -> str:
    """A row for each term, a column for each phase: what is held at the phase's worst moment."""
    phases = one.prediction.estimate.phases("device")
    rows: dict[str, dict[Phase, int]] = {}
    for phase, held in phases.items():
        for term, size in held.parts:
            row = rows.setdefault(term.name, {})
            row[phase] = row.get(phase, 0) + size
    order = sorted(rows, key=lambda name: -max(rows[name].values()))
    peak = max(held.size for held in phases.values())
    unit, scale = ("GiB", GIB) if peak >= GIB // 10 else ("MiB", MIB)  # toy models

    def cell(size: int) -> str:
        return f"{size / scale:.2f}" if size else "-"

    shown = [name for name in order if max(rows[name].values()) >= 0.005 * scale]
    rest: dict[Phase, int] = {phase: sum(rows[n].get(phase, 0) for n in order if n not in shown) for phase in phases}
    if any(rest.values()):
        rows["the rest"] = rest
        shown.append("the rest")
    rows["allocated"] = {phase: held.size for phase, held in phases.items()}
    columns = [Column(f"on each device, {unit}", least=20), *(Column(f"{phase:>6}", right=True) for phase in phases)]
    cells = [(name, *(cell(rows[name].get(phase, 0)) for phase in phases)) for name in [*shown, "allocated"]]
    return "".join(f"{line}\n" for line in table(columns, cells, terminal))


def _size(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB // 10 else f"{size / MIB:.1f} MiB"


def _band(band: Band) -> str:
    low, high = _size(band.low), _size(band.high)
    return low if low == high else f"{low.removesuffix(' GiB') if high.endswith(' GiB') else low} to {high}"


def _figures(one: Forecast) -> str:
    prediction = one.prediction

    def range_of(band: Band) -> str:
        return _bound(one, band)

    allocated = range_of(prediction.allocated)
    if one.standing == "modelled" and allocated != _size(prediction.allocated.expected):
        allocated = f"{_size(prediction.allocated.expected)} ({allocated})"
    text = f"  allocated  {allocated} at the peak: torch.cuda.max_memory_allocated\n"
    text += f"  reserved   {range_of(prediction.reserved)}: torch.cuda.max_memory_reserved\n"
    text += f"  device     {range_of(prediction.device)}: what nvidia-smi shows for the process\n"
    if prediction.complete:
        text += f"  bands      {'narrow' if prediction.tier.narrow else 'wide'}: {prediction.tier.reason}\n"
    unknown = "not known: how much memory there is for a rank is not stated"
    text += f"  verdict    {unknown if one.capacity is None else _verdict(one, one.capacity)}\n"
    return text + _host(one)


def _bound(one: Forecast, band: Band) -> str:
    """A figure of memory, as far as it is one."""
    if one.standing in ("at least", "at most"):
        return f"{one.standing} {_size(band.low if one.standing == 'at least' else band.high)}"
    return _band(band) if one.standing == "modelled" else f"{_band(band)} without what is not modelled"


def _verdict(one: Forecast, capacity: int) -> str:
    """Whether it fits, how likely that is, and what is needed of what there is."""
    device = one.prediction.device
    has = f"{'each rank' if one.on_host else 'the card'} has {_number(capacity)}"
    if one.word == "unknown":
        lacking = [] if one.prediction.complete else ["activations"]
        lacking += [f"`{name}`" for gap in touching(one.gaps, "memory") for name, _ in gap.keys]
        return f"not known without {', '.join(lacking)}: needs {_bound(one, device)}, {has}"
    if one.verdict.by_host and one.room is not None:
        return (
            f"{_chance(one)}the ranks need {_size(one.host.expected)} of a node's memory, which has {_size(one.room)}"
        )
    needed = f"at least {_size(device.low)}" if one.word == "does not fit" else _bound(one, device)
    where = " on the card" if one.word != "does not fit" and one.of_host.word == "unknown" else ""
    return f"{_chance(one, where)}needs {needed}, {has}"


def _chance(one: Forecast, where: str = "") -> str:
    """``likely: 78%, ``; of figures that are bounds a bound, and nothing of what does not fit."""
    chance = chance_of(one)
    return f"{one.word}: " if one.word == "does not fit" or not chance else f"{one.word}{where}: {chance}, "


def _number(size: int) -> str:
    return _size(size).removesuffix(" GiB")


def _host(one: Forecast) -> str:
    """What the ranks of a node take of its memory and its drives; nothing where that is little."""
    text = ""
    if one.host.expected >= LITTLE:
        of = f" of {_size(one.room)}" if one.room is not None else ""
        lacking = {
            "does not fit": ": the system would end the job (exit code -9)",
            "unlikely": ": the system would most likely end the job (exit code -9)",
            "unknown": "; its size is not known",
        }
        text += f"  host       {_size(one.host.expected)}{of} of a node's memory{lacking.get(one.of_host.word, '')}\n"
    if one.nvme >= GIB // 10:
        text += f"  drives     {_size(one.nvme)} on the NVMe drives of a node\n"
    return text


def _time(one: Forecast) -> str:
    if one.time is None:
        return ""
    time, seconds = one.time, one.time.seconds
    text = f"  step       {duration(seconds.expected)} ({duration(seconds.low)} to {duration(seconds.high)})"
    text += f", {time.tokens_per_second:,.0f} tokens/s, MFU {time.mfu:.0%}\n"
    parts = sorted(time.parts, key=lambda part: -part.seconds.expected)
    text += "             " + ", ".join(f"{part.name} {duration(part.seconds.expected)}" for part in parts) + "\n"
    if one.price is not None:
        step, billion = time.cost_per_step(one.price), time.cost_per_billion_tokens(one.price)
        text += f"  cost       {step.expected:.3g} a step, {billion.expected:,.0f} for 1e9 tokens "
        text += f"({billion.low:,.0f} to {billion.high:,.0f})\n"
    return text


def _ladder(one: Forecast) -> str:
    if one.ladder is None:
        return ""
    text = "\n"
    if one.ladder.together:
        text += "  the cheapest way to make it fit:\n"
        text += "".join(_rung(rung) for rung in one.ladder.together)
    else:
        text += "  no change that zerocfg knows makes it fit on this hardware\n"
    text += "  each change alone:\n"
    return text + "".join(_rung(rung) for rung in one.ladder.single)


def _rung(rung: Rung) -> str:
    slower = f", {rung.slower:.2f} x the time" if rung.slower else ""
    word = rung.word if rung.word == "does not fit" else str(rung.verdict)
    return f"    {_band(rung.prediction.device):>18}  {word:<13}  {rung.what}: {cost_of(rung)}{slower}\n"


def as_data(found: list[Shown]) -> str:
    runs = [_data(one.built, one.forecast) | {"plans": plan_table.data(one.alternatives)} for one in found]
    return json.dumps({"version": 1, "unit": "bytes", "runs": runs}, indent=2) + "\n"


def _data(built: BuildResult, one: Forecast | str) -> dict[str, object]:
    if isinstance(one, str):
        return {"run": built.name, "error": one}
    prediction = one.prediction
    return {
        "run": built.name,
        "network": _network(built) or None,
        "verdict": one.word,
        "chance": one.verdict.chance,
        "capacity": one.capacity,
        "complete": one.complete,
        "not_modelled": [_gap_data(gap) for gap in one.gaps],
        "allocated": _ends(prediction.allocated),
        "reserved": _ends(prediction.reserved),
        "device": _ends(prediction.device),
        "bands": {"narrow": prediction.tier.narrow, "reason": prediction.tier.reason},
        "phases": {phase: _held(held) for phase, held in prediction.estimate.phases("device").items()},
        "host": _held(prediction.estimate.peak("host")),
        "nvme": _held(prediction.estimate.peak("nvme")),
        "node": {
            "host": one.host.expected,
            "loading_in_another_dtype": one.loading,
            "memory": one.room,
            "nvme": one.nvme,
            "verdict": one.of_host.word,
            "chance": one.of_host.chance,
        },
        "time": _time_data(one),
        "notes": list(one.notes),
        "changes": [_rung_data(rung) for rung in one.ladder.single] if one.ladder else [],
        "cheapest": [_rung_data(rung) for rung in one.ladder.together] if one.ladder else [],
    }


def _gap_data(gap: Gap) -> dict[str, object]:
    return {
        "keys": dict(gap.keys),
        "effect": gap.effect,
        "figures_are": gap.standing,
        "touches": list(gap.touches),
    }


def _time_data(one: Forecast) -> dict[str, object] | None:
    time = one.time
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
    if one.price is not None:
        data["cost_per_step"] = _times(time.cost_per_step(one.price))
        data["cost_per_billion_tokens"] = _times(time.cost_per_billion_tokens(one.price))
    return data


def _times(band: rates.Band) -> dict[str, float]:
    return {"low": band.low, "expected": band.expected, "high": band.high}


def _ends(band: Band) -> dict[str, int]:
    return {"low": band.low, "expected": band.expected, "high": band.high}


def _held(held: Held) -> dict[str, object]:
    parts = [
        {"name": term.name, "kind": term.kind, "size": size, "source": term.source, "holds_for": term.holds_for}
        for term, size in held.parts
    ]
    return {"moment": held.moment, "size": held.size, "terms": parts}


def _rung_data(rung: Rung) -> dict[str, object]:
    return {
        "change": rung.what,
        "cost": rung.cost,
        "slower": rung.slower,
        "verdict": rung.word,
        "chance": rung.verdict.chance,
        "device": _ends(rung.prediction.device),
    }
