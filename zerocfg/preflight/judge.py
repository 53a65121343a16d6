"""The judge: lines of all ranks in, a verdict out. Pure; a rank that printed half of its lines is judged by these."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence

from zerocfg.preflight import answers, differences, slow
from zerocfg.preflight.expectations import Expectations
from zerocfg.preflight.messages import Clock, Collective, Local, Message, Pair
from zerocfg.preflight.reports import Reports, sort
from zerocfg.preflight.slow import Excess, Suspect
from zerocfg.preflight.verdict import Figure, Finding, Together, Verdict

LEAST_CPU = 0.5  # of a processor, that the ranks have as a rule where they can be measured


def judge(
    lines: Iterable[tuple[str, str]],
    ranks: int | None = None,
    expected: Expectations | None = None,
    hosts: Sequence[str] = (),
) -> Verdict:
    """What the ranks of a job say about its nodes.

    Args:
        lines: with the name of whoever printed each, in any order of the ranks; other lines are passed over.
        ranks: how many were started; None: as many as they say themselves.
        expected: releases and hardware that every node must have; without it most nodes are right.
        hosts: the nodes of the job in the order of their ranks, so that one that never answered has a name.
    """
    wanted = expected or Expectations()
    reports = sort(lines, ranks, hosts)
    findings = [
        *answers.check(reports),
        *differences.check(reports.described, wanted),
        *_clocks(reports, wanted.limits.clock_s),
        *_slow(reports),
        *_shared(reports),
    ]
    return Verdict(
        nodes=reports.nodes,
        ranks=reports.ranks,
        findings=tuple(findings),
        figures=tuple(_figures(reports)),
        together=tuple(_together(reports)),
        seconds=max((item.seconds for item in reports.done.values()), default=None),
    )


def _clocks(reports: Reports, limit: float) -> Iterator[Finding]:
    for message in reports.messages:
        if isinstance(message, Clock) and abs(message.ahead_s) - message.within_s > limit:
            way = "ahead of" if message.ahead_s > 0 else "behind"
            node = reports.names.get(message.rank, f"the node of rank {message.rank}")
            yield Finding(
                "clock",
                "clock",
                f"{message.ahead_s:+.3f} s",
                f"the clock of {node} is {abs(message.ahead_s):.3f} s {way} that of rank 0 "
                f"(exact to {message.within_s:.3f} s): synchronize it (chrony, ntpd), or times of its files and logs "
                "mislead",
                reports.at(message.rank),
                (message.rank,),
                others=f"<= {limit:g} s",
            )


def _slow(reports: Reports) -> Iterator[Finding]:
    found = slow.accused(reports.messages)
    if _processors(reports) < LEAST_CPU:
        # What takes several ranks then shows when the scheduler has both of them run, and no link.
        found = {suspect: excess for suspect, excess in found.items() if suspect.kind == "rank"}
    units = {item.what: item.unit for item in reports.messages if isinstance(item, Local)}
    accused = {suspect.ranks for suspect in found if suspect.kind == "rank"}
    for suspect, excess in found.items():
        figure, others = _rates(reports, suspect, excess, units)
        percent = f"{(excess.ratio - 1) * 100:.0f}%"
        if suspect.kind == "rank":
            rank = suspect.ranks[0]
            message = f"{reports.where(rank)} takes {percent} longer for {suspect.what} than the fleet's median"
            message += _starved(reports, rank) if suspect.what != "exchanges" else ""
            message += f" (alarm from {(excess.threshold - 1) * 100:.0f}% on): in a training step all wait for it"
            yield Finding("slow", suspect.what, figure, message, reports.at(rank), (rank,), others)
        elif suspect.kind == "link":
            one, other = suspect.ranks
            nodes = tuple(dict.fromkeys([*reports.at(one), *reports.at(other)]))
            message = f"{reports.where(one)} and {reports.where(other)} take {percent} longer to exchange data than "
            message += "the median of such pairs, and neither is slow with others: look at the link between them"
            yield Finding("slow", suspect.what, figure, message, nodes, suspect.ranks, others)
        else:
            names = tuple(dict.fromkeys(name for rank in _ranks(reports, suspect.node) for name in reports.at(rank)))
            if any((rank,) in accused for rank in _ranks(reports, suspect.node)):
                continue  # a slow rank slows the collectives of its node
            message = (
                f"the ranks of {' '.join(names)} take {percent} longer for an all-reduce among themselves than those "
            )
            message += "of the median node: look at its links (NVLink, PCIe), and at what else runs there"
            yield Finding("slow", "all-reduce in the node", figure, message, names, others=others)


def _shared(reports: Reports) -> Iterator[Finding]:
    """Ranks that had little of their processors measured the scheduler."""
    share = _processors(reports)
    if share < LEAST_CPU:
        message = f"the ranks had {share:.2f} CPUs each while they measured: more runs than there are processors for, "
        message += "and a slow rank may go unseen; links are not judged"
        yield Finding("shared", "processors", f"{share:.2f} CPUs", message, others="1.00 CPUs", fails=False)


def _processors(reports: Reports) -> float:
    """That a rank had as a rule while it measured; without end where it was a device that worked."""
    had = [message.cpu for message in reports.messages if isinstance(message, Local) and message.cpu is not None]
    return statistics.median(had) if had else math.inf


def _ranks(reports: Reports, node: str) -> list[int]:
    return [rank for rank, fact in reports.facts.items() if fact.node == node]


def _starved(reports: Reports, rank: int) -> str:
    """What a rank on a CPU had of it, where that explains its rate."""
    shares: dict[bool, list[float]] = {True: [], False: []}
    for message in reports.messages:
        if isinstance(message, Local) and message.cpu is not None:
            shares[message.rank == rank].append(message.cpu)
    if not (shares[True] and shares[False]):
        return ""
    had, others = statistics.median(shares[True]), statistics.median(shares[False])
    if had * (1 + slow.SHARE) >= others:
        return ""
    return f"; it had {had:.2f} CPUs meanwhile, the others {others:.2f}: something else runs there, or a limit holds it"


def _rates(reports: Reports, suspect: Suspect, excess: Excess, units: dict[str, str]) -> tuple[str, str]:
    """The figure and the fleet's median as they are shown."""
    if suspect.kind == "rank" and suspect.what in units:
        unit, of_one, median = units[suspect.what], 1 / excess.time, 1 / excess.median
    elif suspect.kind == "rank":  # exchanges of different kinds have no rate in common
        return f"{excess.ratio:.2f} x the time", f"{excess.median:.2f} x"
    elif suspect.kind == "link":
        sent = next(message.megabytes for message in reports.messages if isinstance(message, Pair)) / 1e3
        unit, of_one, median = "GB/s", sent / excess.time, sent / excess.median
    else:
        unit, of_one, median = "GB/s", 1 / excess.time, 1 / excess.median
    return f"{of_one:.4g} {unit}", f"{median:.4g} {unit}"


def _figures(reports: Reports) -> Iterator[Figure]:
    """Of each node the slowest rank's figures, in the last attempt."""
    last = _last(reports.messages)
    units = {item.what: item.unit for item in last if isinstance(item, Local)}
    worst: dict[tuple[str, str], tuple[Excess, str]] = {}
    for (what, _), ranks in slow.local_series(last).items():
        for rank, excess in slow.compare(ranks).items():
            key = (reports.names.get(rank, f"rank {rank}"), what)
            if key not in worst or excess.ratio > worst[key][0].ratio:
                worst[key] = (excess, units[what])
    order = {node.name: at for at, node in enumerate(reports.nodes)}
    for (node, what), (excess, unit) in sorted(worst.items(), key=lambda item: order.get(item[0][0], len(order))):
        yield Figure(node, what, unit, 1 / excess.time, 1 / excess.median, excess.ratio)


def _together(reports: Reports) -> Iterator[Together]:
    found: dict[tuple[str, int], list[float]] = {}
    for item in _last(reports.messages):
        if isinstance(item, Collective) and not item.node:
            found.setdefault((item.what, item.ranks), []).append(item.busbw_gb_s)
    for (what, ranks), rates in found.items():
        yield Together(what, ranks, statistics.median(rates))


def _last(messages: Sequence[Message]) -> list[Message]:
    """The measurements of the last attempt that began."""
    measured = [message for message in messages if isinstance(message, Local | Pair | Collective)]
    last = max((item.attempt for item in measured), default=0)
    return [item for item in measured if item.attempt == last]
