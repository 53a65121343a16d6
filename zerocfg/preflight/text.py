"""A verdict as text and as JSON, and the forms in which schedulers and launchers take the nodes that pass."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from zerocfg.terminal.table import Column, folded, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocfg.preflight.verdict import Verdict

SHOWN = 16
"""Nodes up to which the figures of all are shown; of a larger fleet those of the nodes with findings."""
_COLUMNS = (
    Column("node", hangs=20),
    Column("what", least=12),
    Column("figure", right=True, least=10),
    Column("fleet's median", right=True, least=10),
    Column("verdict"),
)


def render(verdict: Verdict, width: int | None = None) -> str:
    """A table of figures and findings, then what each finding means. ``width``: columns of a terminal."""
    if not verdict.nodes:
        return "preflight: no rank answered; nothing could be tried\n"
    spent = "" if verdict.seconds is None else f", {verdict.seconds:.0f} s"
    lines = [f"preflight: {_count(len(verdict.nodes), 'node')}, {_count(verdict.ranks, 'rank')}{spent}", ""]
    lines += table(_COLUMNS, list(_rows(verdict)), width)
    if verdict.together:
        rates = ", ".join(f"{item.what} {item.busbw_gb_s:.3g} GB/s" for item in verdict.together)
        lines += ["", f"together  {rates}"]
    if verdict.findings:
        lines += ["", *(f"  {'FAIL' if finding.fails else 'note'}  {finding.message}" for finding in verdict.findings)]
    lines += ["", *_summary(verdict)]
    return folded("\n".join(lines) + "\n", width)


def _rows(verdict: Verdict) -> Iterator[tuple[str, str, str, str, str]]:
    for item in verdict.findings:
        nodes = " ".join(item.nodes) or ("?" if item.fails else "all")
        what = item.what if not item.ranks or item.what.startswith("rank ") else f"{item.what} ({_ranks(item.ranks)})"
        yield nodes, what, item.figure, item.others, "FAIL" if item.fails else "note"
    named = {name for finding in verdict.findings for name in finding.nodes}
    small = len(verdict.nodes) <= SHOWN
    slow = {(name, item.what) for item in verdict.findings if item.kind == "slow" for name in item.nodes}
    for figure in verdict.figures:
        if (small or figure.node in named) and (figure.node, figure.what) not in slow:
            rate, median = (f"{value:.4g} {figure.unit}" for value in (figure.rate, figure.median))
            yield figure.node, figure.what, rate, median, "ok"


def _ranks(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _summary(verdict: Verdict) -> Iterator[str]:
    failing, passing = verdict.failing, verdict.passing
    if verdict.passed:
        yield f"passed: {_count(len(passing), 'node')}"
        return
    if not failing:
        yield "FAILED, and no node can be named"
        return
    yield f"FAILED: {_count(len(failing), 'node')} of {len(set(failing) | {node.name for node in verdict.nodes})}"
    yield f"sbatch {exclude(verdict)}"


def exclude(verdict: Verdict) -> str:
    """The option of sbatch and srun that leaves the failing nodes out; empty where none fails."""
    return f"--exclude={','.join(verdict.failing)}" if verdict.failing else ""


def passing_nodes(verdict: Verdict) -> str:
    """Names of the nodes that pass, one a line."""
    return "".join(f"{node.name}\n" for node in verdict.passing)


def hostfile(verdict: Verdict) -> str:
    """The nodes that pass as DeepSpeed's launcher reads them, with as many slots as ranks answered there."""
    return "".join(f"{node.name} slots={len(node.ranks)}\n" for node in verdict.passing)


def as_json(verdict: Verdict) -> str:
    """Everything that the text is made of."""
    found = dataclasses.asdict(verdict)
    found |= {"passed": verdict.passed, "failing": verdict.failing, "passing": [node.name for node in verdict.passing]}
    return json.dumps(found, indent=2) + "\n"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"
