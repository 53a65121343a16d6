"""The instruments of the ranks: which of them measured, and why the others did not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.smoke.model.certificate import Check
from zerocfg.smoke.worker.report_schema import ABSENT

if TYPE_CHECKING:
    from zerocfg.smoke.worker.report_schema import RankReport

NOT_MEASURED = "not measured"


def broken(reports: list[RankReport]) -> dict[str, str]:
    """Instruments that broke on a rank, each with the reason: that of the first rank that has one of its own."""
    found: dict[str, str] = {}
    for rank, report in enumerate(reports):
        for name, reason in report.get("instruments", {}).items():
            if reason and (name not in found or found[name].startswith(ABSENT)):
                found[name] = f"{reason} (rank {rank})" if len(reports) > 1 else reason
    return found


def working(reports: list[RankReport]) -> list[str]:
    """Instruments that measured on every rank that tried them."""
    wrong = broken(reports)
    names = {name: None for report in reports for name in report.get("instruments", {})}
    return [name for name in names if name not in wrong]


def check(reports: list[RankReport]) -> list[Check]:
    """A row for each instrument that broke."""
    return [unmeasured(name, reason) for name, reason in broken(reports).items()]


def unmeasured(name: str, reason: str, planned: str = "-") -> Check:
    """The row of what was not measured."""
    return Check(name, planned, f"{NOT_MEASURED}: {reason}", None, measured=False)


def why(reports: list[RankReport], *beginnings: str) -> str:
    """Why what an instrument of these names (or the beginnings of names) measures is not there."""
    for name, reason in broken(reports).items():
        if name.startswith(beginnings):
            return reason
    return "no rank reports it"
