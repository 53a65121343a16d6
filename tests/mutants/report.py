"""What a run found: a line a survivor, and the table."""

from __future__ import annotations

import platform
from collections import Counter
from dataclasses import dataclass
from datetime import date

from . import equivalent
from .faults import SEVERITY
from .session import Outcome, Session, Wanted


@dataclass(frozen=True)
class Row:
    """One group: how many faults there are, how many were drawn, and what became of them."""

    group: str
    severities: bool
    all: int
    drawn: int
    killed: int
    equivalent: int
    seconds: float

    @property
    def survived(self) -> int:
        return self.drawn - self.killed - self.equivalent

    @property
    def percent(self) -> float:
        return 100 * (self.killed + self.equivalent) / self.drawn if self.drawn else 100.0


def rows(session: Session) -> list[Row]:
    known = equivalent.listed()
    found = []
    for (group, severities), every in session.counted.items():
        here = [one for one in _judged(session) if (one.group, one.fault.kind == SEVERITY) == (group, severities)]
        if here:
            same = sum(not one.killed and _key(one) in known for one in here)
            spent = sum(one.seconds for one in here)
            found.append(Row(group, severities, every, len(here), sum(one.killed for one in here), same, spent))
    return found


def line(one: Outcome) -> str | None:
    """What is told of a fault: that nobody noticed it, or that the list of equivalent ones is wrong about it."""
    fault, tests = one.fault, f"{one.tried} of {one.seen} tests" if one.tried < one.seen else f"{one.seen} tests"
    said = f"{fault.module}:{fault.line} {fault.where} [{fault.kind}] {fault.change}"
    if not _is_judged(one):
        return None
    if one.ended is not None:
        return f"no answer  {said} ({one.ended.strip().splitlines()[-1]})"
    if _key(one) in equivalent.listed():
        return f"listed as equivalent, but killed  {said} (by {one.by})" if one.killed else None
    return None if one.killed else f"survived  {said} ({tests})"


def kinds(session: Session) -> str:
    """How many survived, by kind."""
    known = equivalent.listed()
    found = Counter(one.fault.kind for one in _judged(session) if not one.killed and _key(one) not in known)
    return ", ".join(f"{kind} {number}" for kind, number in found.most_common()) or "none"


def table(found: list[Row]) -> str:
    """Markdown."""
    lines = [
        "| what | faults | drawn | killed | equivalent | survived | killed or equivalent | CPU s a fault |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in found:
        name = f"{row.group}, severities" if row.severities else row.group
        lines.append(
            f"| {name} | {row.all} | {row.drawn} | {row.killed} | {row.equivalent} | {row.survived} "
            f"| {row.percent:.0f} % | {row.seconds / row.drawn:.2f} |"
        )
    return "\n".join(lines)


def page(found: list[Row], wanted: Wanted) -> str:
    return (
        "# How many faults do the tests notice?\n\n"
        f"Drawn on {date.today().isoformat()} with seed {wanted.seed}, Python {platform.python_version()}, "
        f"at most {wanted.budget:g} CPU seconds of tests a fault. `make mutants` draws again.\n\n{table(found)}\n"
    )


def _judged(session: Session) -> list[Outcome]:
    """Without the few that could not be put into what runs."""
    return [one for one in session.outcomes if _is_judged(one)]


def _is_judged(one: Outcome) -> bool:
    return one.ended is None or "InvisibleError" not in one.ended


def _key(one: Outcome) -> tuple[str, str]:
    return one.fault.place, one.fault.change
