"""The plans that were compared, as a table or as data: what ``zerocfg plan`` and ``zerocfg build`` print of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocfg.memory.outside import GIB
from zerocfg.resolve.candidates import MICRO, OPTIMIZER_DEVICE, PARAM_DEVICE, STAGE, STEPS

if TYPE_CHECKING:
    from zerocfg.memory.terms import Kind
    from zerocfg.resolve.alternatives import Alternative
    from zerocfg.resolve.candidates import Candidate
    from zerocfg.resolve.plan import Considered

COLUMNS: dict[str, tuple[Kind, ...]] = {
    "param": ("parameters",),
    "grad": ("gradients",),
    "optim": ("optimizer",),
    "buffer": ("buffers", "temporaries"),
    "activ": ("activations", "logits"),
    "other": ("outside",),
}
"""Columns of the table and the kinds of terms that they sum."""


def words(settings: dict[str, Any]) -> str:
    """A plan in a few words: ``ZeRO-3, optimizer on cpu, 2 x 8, recomputed``."""
    found = []
    if STAGE in settings:
        found.append(f"ZeRO-{settings[STAGE]}")
    places = [settings.get(name, "none") for name in (OPTIMIZER_DEVICE, PARAM_DEVICE)]
    if places[0] == places[1] != "none":
        found.append(f"all on {places[0]}")
    else:
        found += [
            f"{what} on {place}"
            for what, place in zip(("optimizer", "parameters"), places, strict=True)
            if place != "none"
        ]
    if MICRO in settings:
        found.append(
            f"{settings[MICRO]} x {settings[STEPS]}" if STEPS in settings else f"micro batch {settings[MICRO]}"
        )
    if settings.get("gradient_checkpointing"):
        found.append("recomputed")
    return ", ".join(found) or "as it is"


def text(rows: list[Alternative], *, every: bool = False) -> str:
    """The best micro batch of each way to run the job, or every row; GiB of one device, bytes that one rank sends."""
    shown = rows if every else ways(rows)
    if not shown:
        return ""
    lines = [("", "micro batch x steps; GiB of a device", *COLUMNS, "device", "sent", "step", "tokens/s", "")]
    lines += [_line(row) for row in shown]
    widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
    found = (
        f"  {len(rows)} plans for the same global batch; GiB of a device at its peak (device: the most that its\n"
        "  driver may show), GiB that a rank sends in a step; activations by the closed formula\n"
    )
    for line in lines:
        cells = [
            cell.ljust(width) if n in (0, 1, len(widths) - 1) else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        found += ("  " + "  ".join(cells)).rstrip() + "\n"
    return found


def ways(rows: list[Alternative]) -> list[Alternative]:
    """The first of each combination of stage, offload and recomputation, and the run's own."""
    found, seen = [], set()
    for row in rows:
        settings = row.candidate.choice.settings()
        way = (
            settings.get(STAGE),
            settings.get(OPTIMIZER_DEVICE),
            settings.get(PARAM_DEVICE),
            settings.get("gradient_checkpointing"),
        )
        if way not in seen or row.own:
            seen.add(way)
            found.append(row)
    return found


def _line(row: Alternative) -> tuple[str, ...]:
    one = row.candidate
    time = one.time
    spent = ("-", "-", "-")
    if time is not None:
        spent = (f"{time.traffic.sent / GIB:.1f}", duration(time.seconds.expected), f"{time.tokens_per_second:,.0f}")
    best = "best" if not row.excluded else row.excluded
    mark = ">" if row.own else ""
    parts = (f"{size / GIB:.1f}" for size in by_column(one).values())
    return (mark, words(one.choice.settings()), *parts, f"{one.prediction.device.high / GIB:.1f}", *spent, best)


def by_column(one: Candidate) -> dict[str, int]:
    """Bytes of a device at the peak, by column."""
    found = dict.fromkeys(COLUMNS, 0)
    for term, size in one.prediction.worst.parts:
        column = next((name for name, kinds in COLUMNS.items() if term.kind in kinds), "other")
        found[column] += size
    found["other"] += one.prediction.device.expected - one.prediction.worst.size
    return found


def duration(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def data(rows: list[Alternative]) -> list[dict[str, Any]]:
    """Every row, for JSON; bytes and seconds."""
    return [_data(row) for row in rows]


def _data(row: Alternative) -> dict[str, Any]:
    one, time = row.candidate, row.candidate.time
    band = one.prediction.device
    return {
        "settings": one.choice.settings(),
        "own": row.own,
        "verdict": one.word,
        "excluded": row.excluded,
        "device": {"low": band.low, "expected": band.expected, "high": band.high},
        "terms": [{"name": term.name, "kind": term.kind, "size": size} for term, size in one.prediction.worst.parts],
        "moment": one.prediction.worst.moment,
        "host": one.host,
        "nvme": one.nvme,
        "sent": time.traffic.sent if time else None,
        "step_seconds": time.seconds.expected if time else None,
        "tokens_per_second": time.tokens_per_second if time else None,
    }


def compared(considered: list[Considered], limit: int = 6) -> str:
    """What a build compared: the best plans that it did not take, and what excluded them."""
    others = [one for one in considered if one.excluded][:limit]
    if not others:
        return ""
    found = f"  compared {len(considered)} plans; not taken:\n"
    several = len({one.settings.get("num_processes") for one in considered}) > 1
    rows = [(_ranks(one.settings, several) + words(one.settings), one.excluded) for one in others]
    width = max(len(plan) for plan, _ in rows)
    return found + "".join(f"    {plan:<{width}}  {why}\n" for plan, why in rows)


def _ranks(settings: dict[str, Any], several: bool) -> str:
    """How many ranks a plan has, where plans differ in that."""
    count = settings.get("num_processes")
    return f"{count} rank{'s' if count != 1 else ''}, " if several else ""
