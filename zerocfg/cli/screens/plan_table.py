"""The plans that were compared, as a table or as data: what ``zerocfg plan`` and ``zerocfg build`` print of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.memory.overhead import GIB
from zerocfg.memory.verdict import percent
from zerocfg.resolve.explain.plan_summary import COLUMNS, by_column, distinct_plans, duration
from zerocfg.resolve.search.choice import describe_plan
from zerocfg.terminal.table import TOGETHER, Column, left, table, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zerocfg.resolve.explain.alternatives import Alternative
    from zerocfg.resolve.plan import Considered
    from zerocfg.resolve.search.candidates import Candidate


_TABLE = (
    Column(),
    Column("micro batch x steps; GiB of a device", least=26),
    *(Column(name, right=True, spare=2) for name in COLUMNS),
    Column("device", right=True),
    Column("fits", right=True),
    Column("sent", right=True, spare=1),
    Column("step", right=True),
    Column("tokens/s", right=True, spare=3),
    Column(least=24),
)
"""Of one global batch the time of a step says what tokens a second say."""


_COMPARED = (Column(least=26), Column(least=24))


def text(rows: list[Alternative], *, every: bool = False, width: int | None = None) -> str:
    """The best micro batch of each way to run the job, or every row; GiB of one device, bytes that one rank sends."""
    shown = rows if every else distinct_plans(rows)
    if not shown:
        return ""
    lines = [_line(row) for row in shown]
    head = (
        f"  {len(rows)} plans for the same global batch; GiB of a device at its peak (device: the upper end of\n"
        "  what its driver may show), the chance that it fits, GiB that a rank sends in a step; activations by the\n"
        "  closed formula\n"
    )
    if len(left(_TABLE, lines, width)) < len(_TABLE):
        head += "  (a wider terminal shows more columns: the parts of the memory, tokens/s)\n"
    if width is not None:
        head = "".join(f"  {line}\n" for line in wrap(" ".join(head.split()), width - 2))
    return head + "".join(f"{line}\n" for line in table(_TABLE, lines, width))


def _line(row: Alternative) -> tuple[str, ...]:
    one = row.candidate
    time = one.time
    spent = ("-", "-", "-")
    if time is not None:
        spent = (f"{time.traffic.sent / GIB:.1f}", duration(time.seconds.expected), f"{time.tokens_per_second:,.0f}")
    mark = ">" if row.own else ""
    unknown = () if one.prediction.complete else ("activ", "other")
    parts = ("-" if name in unknown else f"{size / GIB:.1f}" for name, size in by_column(one).items())
    return (mark, _plan(one.choice.settings()), *parts, _device(one), _chance(one), *spent, row.excluded or _first(one))


def _device(candidate: Candidate) -> str:
    """The upper end of what the driver may show; without activations the lower one."""
    band = candidate.prediction.device
    return f"{band.high / GIB:.1f}" if candidate.prediction.complete else f"> {band.low / GIB:.1f}"


def _chance(candidate: Candidate) -> str:
    return "-" if candidate.certain.chance is None else percent(candidate.certain.chance)


def _first(candidate: Candidate) -> str:
    """What is said of the plan that comes first; none is best whose memory is not known."""
    return "not known to fit" if candidate.verdict == "unknown" else "best"


def _plan(settings: dict[str, object]) -> str:
    """A plan in words, of which micro batch and steps stay together."""
    return describe_plan(settings).replace(" x ", f"{TOGETHER}x{TOGETHER}")


def data(rows: list[Alternative]) -> list[dict[str, object]]:
    """Every row, for JSON; bytes and seconds."""
    return [_data(row) for row in rows]


def _data(row: Alternative) -> dict[str, object]:
    one, time = row.candidate, row.candidate.time
    band = one.prediction.device
    return {
        "settings": one.choice.settings(),
        "own": row.own,
        "verdict": one.verdict,
        "chance": one.certain.chance,
        "complete": one.complete,
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


def compared(considered: Sequence[Considered], limit: int = 6, width: int | None = None) -> str:
    """What a build compared: the best plans that it did not take, and what excluded them."""
    others = [item for item in considered if item.excluded][:limit]
    if not others:
        return ""
    found = f"  compared {len(considered)} plans; not taken:\n"
    several = len({item.settings.get("num_processes") for item in considered}) > 1
    rows = [(_ranks(other.settings, several) + _plan(other.settings), other.excluded) for other in others]
    return found + "".join(f"{line}\n" for line in table(_COMPARED, rows, width, "    "))


def _ranks(settings: dict[str, object], several: bool) -> str:
    """How many ranks a plan has, where plans differ in that."""
    count = settings.get("num_processes")
    return f"{count} rank{'s' if count != 1 else ''}, " if several else ""
