"""The verdict of a smoke-run as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.smoke.certify.evidence import evidence
from zerocfg.smoke.launch.command import WRITTEN
from zerocfg.smoke.model.certificate import WORDS
from zerocfg.terminal.table import Column, folded
from zerocfg.terminal.table import table as fitted

if TYPE_CHECKING:
    from zerocfg.smoke.judge.verdict import Verdict
    from zerocfg.smoke.model.certificate import Check


_COLUMNS = (Column("check", hangs=32), Column("planned", least=12), Column("seen", least=16), Column())


def render(verdict: Verdict, width: int | None = None) -> str:
    """Reductions, the table of checks, what failed, where the weights are. ``width``: columns of a terminal."""
    where = verdict.device.name if verdict.device.kind == "cuda" else "CPU"
    ranks = verdict.reduced.ranks
    lines = [f"{verdict.run.name}: {ranks} rank{'s' if ranks != 1 else ''} on {where}"]
    lines += [f"  reduced  {words}" for words in verdict.reduced.descriptions]
    lines += [f"  noted    {message}" for message in (verdict.device.note, *verdict.outcome.cleared) if message]
    lines += ["", *table(verdict, width)]
    outcome = verdict.outcome
    if verdict.command is not None:
        lines += ["", f"command: {verdict.command.line}", *(f"  {note}" for note in verdict.command.notes)]
    if outcome.failure is not None:
        who = f" (rank {outcome.rank})" if outcome.rank is not None else ""
        lines += ["", f"The run failed{who}: {outcome.failure}"]
        lines += [f"  {line}" for line in outcome.detail]
    lines += _diagnosis(verdict)
    shown = evidence(verdict)
    for title, statements in (("proven", shown.proven), ("not proven", shown.not_proven)):
        if statements:
            lines += ["", f"{title}:", *(f"  {words}" for words in statements)]
    weights = outcome.reports[0].get("weights") if outcome.reports else None
    if weights and weights["file"]:
        folder = "weights" if verdict.command is None else WRITTEN
        place = str(verdict.kept / folder) if verdict.kept else "removed; --keep DIR keeps them"
        lines += ["", f"weights: {weights['saved']:,} parameters in {weights['file']} ({place})"]
    if verdict.kept is not None:
        lines.append(f"kept: {verdict.kept}")
    if verdict.certificate is not None:
        lines.append(f"certificate: {verdict.certificate}")
    if verdict.uncertified is not None:
        lines.append(f"certificate: {verdict.uncertified}")
    failed = sum(1 for check in verdict.checks if check.ok is False)
    passed = sum(1 for check in verdict.checks if check.ok)
    if outcome.cut is not None:
        lines += ["", f"After the weights were read back the run ended: {outcome.cut}"]
    counts = f"{passed} checks ok, {failed} failed, {outcome.seconds:.0f} s"
    if verdict.state == "incomplete":
        lines.append(f"{WORDS[verdict.state]}: not measured: {', '.join(verdict.unmeasured)}; {counts}")
    else:
        lines.append(f"{WORDS[verdict.state]}: {counts}")
    return folded("\n".join(lines) + "\n", width)


def _diagnosis(verdict: Verdict) -> list[str]:
    """The rules that explain what failed, each in one line, and where to read more."""
    if not verdict.diagnosis:
        return []
    codes = " ".join(dict.fromkeys(item.code for item in verdict.diagnosis if item.code))
    more = [f"  (`zerocfg explain {codes.split()[0]}` says more)"] if codes else []
    return ["", "why:", *(f"  {item}" for item in verdict.diagnosis), *more]


def table(verdict: Verdict, width: int | None = None) -> list[str]:
    if not verdict.checks:
        return []
    marks = {True: "ok", False: "FAIL", None: ""}
    own = [check for check in verdict.checks if not check.further or check.ok is False]
    rows = [(item.name, item.planned, item.seen, marks[item.ok]) for item in own]
    rows[_after_settings(own) : _after_settings(own)] = _further(verdict)
    return fitted(_COLUMNS, rows, width, "")


def _after_settings(own: list[Check]) -> int:
    """The row that follows the last one of the engine's settings."""
    return max((at for at, item in enumerate(own) if item.further or item.name == "device"), default=len(own) - 1) + 1


def _further(verdict: Verdict) -> list[tuple[str, str, str, str]]:
    """Rows that count the settings that are as planned."""
    words = {"acting": ("read where they act", "ok"), "parsed": ("as parsed", "ok"), "unseen": ("not observable", "")}
    found = []
    for kind, (seen, mark) in words.items():
        count = sum(1 for check in verdict.checks if check.further == kind and check.ok is not False)
        if count:
            found.append((f"{count} further setting{'s' if count != 1 else ''}", "as planned", seen, mark))
    return found
