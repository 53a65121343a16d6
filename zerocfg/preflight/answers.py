"""Which ranks never answered, stopped, or could not go on; who is the cause, and who only its victim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zerocfg.preflight.messages import Missing, Problem
from zerocfg.preflight.told import Told
from zerocfg.preflight.verdict import Finding
from zerocfg.source.secrets import masked

OWN = ("torch", "port", "local")
"""Problems that a rank has by itself."""


def check(told: Told) -> list[Finding]:
    """Causes come first; where there is one, those who only waited for it are not accused."""
    found = [*_missing(told), *_stopped(told), *_own(told)]
    found += _wrong(told)
    return found or [*_unmet(told), *_broken(told)]


def _missing(told: Told) -> Iterator[Finding]:
    for rank in range(told.ranks):
        if rank in told.facts:
            continue
        last = [f"; {source} printed: {masked(text)[:200]}" for source, text in told.silent.items()][:1]
        yield Finding(
            "missing",
            f"rank {rank}",
            "never answered",
            f"{told.where(rank)} never answered: its node is down, cannot be reached, or zerocfg does not start there"
            + "".join(last),
            told.at(rank),
            (rank,),
        )


def _stopped(told: Told) -> Iterator[Finding]:
    for rank in told.facts:
        if rank in told.done or rank in told.problems:
            continue
        stage = f"in the stage `{told.stages[rank].name}`" if rank in told.stages else "before it met the others"
        yield Finding(
            "stopped",
            f"rank {rank}",
            "stopped",
            f"{told.where(rank)} answered, and stopped {stage}: it was killed or hangs; the log of its node says more",
            told.at(rank),
            (rank,),
        )


def _own(told: Told) -> Iterator[Finding]:
    for rank, problem in sorted(told.problems.items()):
        if problem.what == "port":
            cure = "; end what listens there, or set another MASTER_PORT on every node"
            yield Finding("port", "port", "taken", problem.message + cure, told.at(rank), (rank,), others="free")
        elif problem.what in OWN:
            yield _finding(told, [rank], problem, f"{told.where(rank)}: {problem.message}")


def _wrong(told: Told) -> Iterator[Finding]:
    """Data that came out wrong, once a pair."""
    seen = set()
    for rank, problem in sorted(told.problems.items()):
        ends = tuple(sorted({rank, *([problem.partner] if problem.partner is not None else [])}))
        if problem.what == "result" and ends not in seen:
            seen.add(ends)
            told_of = ends if len(ends) > 1 else ()
            yield _finding(told, told_of, problem, f"{problem.message}: training would go on with wrong numbers")


def _unmet(told: Told) -> Iterator[Finding]:
    failed = {rank: one for rank, one in told.problems.items() if one.what == "meeting"}
    late = {rank for one in told.messages if isinstance(one, Missing) for rank in one.ranks}
    if failed and 2 * len(failed) > len(told.facts) - 1 and not late:
        first = min(failed.items())
        yield _finding(
            told,
            [],
            first[1],
            f"{len(failed)} of {len(told.facts)} ranks cannot reach rank 0{_on(told, 0)}: {first[1].message}; is "
            "MASTER_ADDR its name on every node, and is MASTER_PORT open between them?",
        )
        return
    for rank, problem in sorted(failed.items()):
        yield _finding(told, [rank], problem, f"{told.where(rank)} did not meet the others: {problem.message}")


def _broken(told: Told) -> Iterator[Finding]:
    """Where the ranks came to a stop first, when none of them died."""
    failed = {rank: one for rank, one in told.problems.items() if one.what in ("exchange", "collective")}
    if not failed:
        return
    first = min(one.step for one in failed.values())
    ends = {rank: one for rank, one in failed.items() if one.step == first}
    links = {
        tuple(sorted((rank, one.partner)))
        for rank, one in ends.items()
        if one.partner is not None and getattr(ends.get(one.partner), "partner", None) == rank
    }
    for one, other in sorted(links):
        message = f"{told.where(one)} and {told.where(other)} cannot exchange data: {ends[one].message}"
        yield _finding(told, [one, other], ends[one], message)
    if not links:
        problem = min(ends.items())[1]
        yield _finding(told, [], problem, f"{problem.stage} of all ranks failed: {problem.message}")


def _finding(told: Told, ranks: Sequence[int], problem: Problem, message: str) -> Finding:
    nodes = tuple(dict.fromkeys(name for rank in ranks for name in told.at(rank)))
    what = problem.stage or "meeting"
    return Finding("broken", what, "failed", message, nodes, tuple(ranks))


def _on(told: Told, rank: int) -> str:
    return f" on {told.names[rank]}" if rank in told.names else ""
