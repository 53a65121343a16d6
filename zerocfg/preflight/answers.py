"""Which ranks never answered, stopped, or could not go on; who is the cause, and who only its victim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zerocfg.preflight.messages import Missing, Problem
from zerocfg.preflight.reports import Reports
from zerocfg.preflight.verdict import Finding
from zerocfg.source.secrets import masked

OWN = ("torch", "port", "local")
"""Problems that a rank has by itself."""


def check(reports: Reports) -> list[Finding]:
    """Causes come first; where there is one, those who only waited for it are not accused."""
    found = [*_missing(reports), *_stopped(reports), *_own(reports)]
    found += _wrong(reports)
    return found or [*_unmet(reports), *_broken(reports)]


def _missing(reports: Reports) -> Iterator[Finding]:
    for rank in range(reports.ranks):
        if rank in reports.facts:
            continue
        last = [f"; {source} printed: {masked(text)[:200]}" for source, text in reports.silent.items()][:1]
        yield Finding(
            "missing",
            f"rank {rank}",
            "never answered",
            f"{reports.where(rank)} never answered: its node is down, cannot be reached, or zerocfg does not start "
            f"there{''.join(last)}",
            reports.at(rank),
            (rank,),
        )


def _stopped(reports: Reports) -> Iterator[Finding]:
    for rank in reports.facts:
        if rank in reports.done or rank in reports.problems:
            continue
        stage = f"in the stage `{reports.stages[rank].name}`" if rank in reports.stages else "before it met the others"
        yield Finding(
            "stopped",
            f"rank {rank}",
            "stopped",
            f"{reports.where(rank)} answered, and stopped {stage}: it was killed or hangs; the log of its node says "
            "more",
            reports.at(rank),
            (rank,),
        )


def _own(reports: Reports) -> Iterator[Finding]:
    for rank, problem in sorted(reports.problems.items()):
        if problem.what == "port":
            cure = "; end what listens there, or set another MASTER_PORT on every node"
            yield Finding("port", "port", "taken", problem.message + cure, reports.at(rank), (rank,), others="free")
        elif problem.what in OWN:
            yield _finding(reports, [rank], problem, f"{reports.where(rank)}: {problem.message}")


def _wrong(reports: Reports) -> Iterator[Finding]:
    """Data that came out wrong, once a pair."""
    seen = set()
    for rank, problem in sorted(reports.problems.items()):
        ends = tuple(sorted({rank, *([problem.partner] if problem.partner is not None else [])}))
        if problem.what == "result" and ends not in seen:
            seen.add(ends)
            ranks_of = ends if len(ends) > 1 else ()
            yield _finding(reports, ranks_of, problem, f"{problem.message}: training would go on with wrong numbers")


def _unmet(reports: Reports) -> Iterator[Finding]:
    failed = {rank: item for rank, item in reports.problems.items() if item.what == "meeting"}
    late = {rank for message in reports.messages if isinstance(message, Missing) for rank in message.ranks}
    if failed and 2 * len(failed) > len(reports.facts) - 1 and not late:
        first = min(failed.items())
        yield _finding(
            reports,
            [],
            first[1],
            f"{len(failed)} of {len(reports.facts)} ranks cannot reach rank 0{_on(reports, 0)}: {first[1].message}; is "
            "MASTER_ADDR its name on every node, and is MASTER_PORT open between them?",
        )
        return
    for rank, problem in sorted(failed.items()):
        yield _finding(reports, [rank], problem, f"{reports.where(rank)} did not meet the others: {problem.message}")


def _broken(reports: Reports) -> Iterator[Finding]:
    """Where the ranks came to a stop first, when none of them died."""
    failed = {rank: item for rank, item in reports.problems.items() if item.what in ("exchange", "collective")}
    if not failed:
        return
    first = min(item.step for item in failed.values())
    ends = {rank: item for rank, item in failed.items() if item.step == first}
    links = {
        tuple(sorted((rank, end.partner)))
        for rank, end in ends.items()
        if end.partner is not None and getattr(ends.get(end.partner), "partner", None) == rank
    }
    for link, other in sorted(links):
        message = f"{reports.where(link)} and {reports.where(other)} cannot exchange data: {ends[link].message}"
        yield _finding(reports, [link, other], ends[link], message)
    if not links:
        problem = min(ends.items())[1]
        yield _finding(reports, [], problem, f"{problem.stage} of all ranks failed: {problem.message}")


def _finding(reports: Reports, ranks: Sequence[int], problem: Problem, message: str) -> Finding:
    nodes = tuple(dict.fromkeys(name for rank in ranks for name in reports.at(rank)))
    what = problem.stage or "meeting"
    return Finding("broken", what, "failed", message, nodes, tuple(ranks))


def _on(reports: Reports, rank: int) -> str:
    return f" on {reports.names[rank]}" if rank in reports.names else ""
