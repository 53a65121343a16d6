"""Which ranks, links and nodes are slow, from repeated measurements: robust statistics, without torch.

Every figure is compared with the fleet's median of the same sweep, so that what slows all of them for a while slows
nobody. Medians of a fleet are the lower ones, for which half of it may be slow: of two the faster is the measure.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from zerocfg.preflight.messages import Collective, Local, Message, Pair

SHARE = 0.10  # slower than the median by this share of its time
DEVIATIONS = 3.0  # and by so many scaled median absolute deviations of the fleet
ERRORS = 4.0  # and by so many standard errors of its own median; with 3 ranks that share processors were accused
SCALED = 1.4826  # a MAD of a normal distribution is its standard deviation divided by this
OF_MEDIAN = 1.2533  # the standard error of a normal distribution's median, in those of its mean
CONFIRMED = 2  # attempts that have to agree
FEWEST_PAIRS = 3  # below that nobody can tell which one is the exception

Key = TypeVar("Key", bound=Hashable)
Series = Mapping[tuple[int, int], float]
"""A time by attempt and sweep."""


@dataclass(frozen=True)
class Excess:
    """How much slower something is than the median: ``ratio`` of the times; above ``threshold`` it is slow.

    ``time`` and ``median``: seconds of one unit of work, the fleet's the lower median; medians over the sweeps both, so
    that the ratio, which is that of the sweeps, may differ a little from theirs.
    """

    time: float
    median: float
    ratio: float
    threshold: float

    @property
    def slow(self) -> bool:
        return self.ratio > self.threshold


@dataclass(frozen=True)
class Suspect:
    """What is slow. ``ranks``: one, or the two ends of a link; none where it is a ``node``."""

    kind: Literal["rank", "link", "node"]
    what: str
    ranks: tuple[int, ...] = ()
    node: str = ""


def compare(series: Mapping[Key, Series]) -> dict[Key, Excess]:
    """Each of several like things against their median; empty for fewer than two.

    There are two kinds of noise: how far the things lie apart (which says little of few), and how exact the median of
    one thing's sweeps is. The more things there are, the farther one of them lies out by chance.
    """
    common = set.intersection(*(set(mapping) for mapping in series.values())) if series else set()
    if len(series) < 2 or not common:
        return {}
    medians = {sweep: statistics.median_low(mapping[sweep] for mapping in series.values()) for sweep in common}
    # Of speeds and not of times: a time has no upper end, and would be the less exact the slower something is.
    speeds = {key: [medians[sweep] / mapping[sweep] for sweep in common] for key, mapping in series.items()}
    centres = {key: statistics.median(found) for key, found in speeds.items()}
    centre = statistics.median_high(centres.values())
    apart = SCALED * statistics.median_low(abs(item - centre) for item in centres.values())
    times = {key: statistics.median(mapping[sweep] for sweep in common) for key, mapping in series.items()}
    median = statistics.median_low(times.values())
    # The tail of a normal distribution beyond these is that beyond the constants, divided among all things.
    deviations, errors = (math.sqrt(limit**2 + 2 * math.log(len(series))) for limit in (DEVIATIONS, ERRORS))
    found = {}
    for key, item in speeds.items():
        spread = SCALED * statistics.median(abs(speed - centres[key]) for speed in item)
        exact = OF_MEDIAN * spread / math.sqrt(len(item))
        least = min(1 / (1 + SHARE), centre - deviations * apart, centre - errors * exact)
        found[key] = Excess(times[key], median, 1 / centres[key], 1 / least if least > 0 else math.inf)
    return found


def suspects(messages: Iterable[Message]) -> set[Suspect]:
    """What took longer than the median by `SHARE` in one attempt, by chance or not: it is measured again."""
    known = list(messages)
    found = [
        *_ranks(local_series(known)).items(),
        *_partners(link_series(known)).items(),
        *_links(link_series(known), set()).items(),
        *_nodes(node_series(known)).items(),
    ]
    return {suspect for suspect, excess in found if excess.ratio > 1 + SHARE}


def accused(messages: Iterable[Message]) -> dict[Suspect, Excess]:
    """What was suspected in every attempt, of which `CONFIRMED` are needed, and is slow by all of them together."""
    attempts: dict[int, list[Message]] = defaultdict(list)
    for message in messages:
        if isinstance(message, Local | Pair | Collective):
            attempts[message.attempt].append(message)
    if len(attempts) < CONFIRMED:
        return {}
    suspected = set.intersection(*(suspects(all_messages) for all_messages in attempts.values()))
    all_messages = [message for found in attempts.values() for message in found]
    ranks = _ranks(local_series(all_messages)) | _partners(link_series(all_messages))
    found = {suspect: excess for suspect, excess in ranks.items() if suspect in suspected and excess.slow}
    # The partners of a slow rank are its victims.
    slow = {suspect.ranks[0] for suspect in found}
    others = _links(link_series(all_messages), slow) | _nodes(node_series(all_messages))
    return found | {suspect: excess for suspect, excess in others.items() if suspect in suspected and excess.slow}


def _ranks(series: Mapping[tuple[str, str], Mapping[int, Series]]) -> dict[Suspect, Excess]:
    return {
        Suspect("rank", what, (rank,)): excess
        for (what, _), ranks in series.items()
        for rank, excess in compare(ranks).items()
    }


def _partners(links: Mapping[str, Mapping[tuple[int, int], Series]]) -> dict[Suspect, Excess]:
    """Each rank by its exchanges, each of them against the median of its like: the lower median over its partners, so
    that one slow partner, or one slow link, does not count. Two ranks, with each other alone, are alike."""
    of_rank: dict[int, list[Series]] = defaultdict(list)
    for pairs in links.values():
        sweeps = set().union(*pairs.values())
        medians = {
            at: statistics.median_low(mapping[at] for mapping in pairs.values() if at in mapping) for at in sweeps
        }
        for pair, mapping in pairs.items():
            for rank in pair:
                of_rank[rank].append({at: seconds / medians[at] for at, seconds in mapping.items()})
    series = {}
    for rank, found in of_rank.items():
        common = set.intersection(*(set(mapping) for mapping in found))
        if common:
            series[rank] = {at: statistics.median_low(mapping[at] for mapping in found) for at in common}
    return {Suspect("rank", "exchanges", (rank,)): excess for rank, excess in compare(series).items()}


def _links(links: Mapping[str, Mapping[tuple[int, int], Series]], without: set[int]) -> dict[Suspect, Excess]:
    found: dict[Suspect, Excess] = {}
    for like, pairs in links.items():
        others = {pair: mapping for pair, mapping in pairs.items() if not without & set(pair)}
        if len(others) >= FEWEST_PAIRS:
            found |= {
                Suspect("link", f"exchange {like}".strip(), pair): excess for pair, excess in compare(others).items()
            }
    return found


def _nodes(series: Mapping[int, Mapping[str, Series]]) -> dict[Suspect, Excess]:
    return {
        Suspect("node", "all-reduce", (), node): excess
        for nodes in series.values()
        for node, excess in compare(nodes).items()
    }


def local_series(messages: Iterable[Message]) -> dict[tuple[str, str], dict[int, Series]]:
    """(what, like) -> rank -> seconds of a unit."""
    found: dict[tuple[str, str], dict[int, dict[tuple[int, int], float]]] = defaultdict(lambda: defaultdict(dict))
    for message in messages:
        if isinstance(message, Local):
            found[message.what, message.like][message.rank][message.attempt, message.sweep] = 1 / message.rate
    return {key: dict(ranks) for key, ranks in found.items()}


def link_series(messages: Iterable[Message]) -> dict[str, dict[tuple[int, int], Series]]:
    """like -> pair -> seconds of an exchange."""
    found: dict[str, dict[tuple[int, int], dict[tuple[int, int], float]]] = defaultdict(lambda: defaultdict(dict))
    for message in messages:
        if isinstance(message, Pair):
            found[message.like][min(message.rank, message.partner), max(message.rank, message.partner)][
                message.attempt, message.sweep
            ] = message.seconds
    return {like: dict(pairs) for like, pairs in found.items()}


def node_series(messages: Iterable[Message]) -> dict[int, dict[str, Series]]:
    """Ranks of a node -> node -> seconds for a gigabyte of an all-reduce."""
    found: dict[int, dict[str, dict[tuple[int, int], float]]] = defaultdict(lambda: defaultdict(dict))
    for message in messages:
        if isinstance(message, Collective) and message.node:
            found[message.ranks][message.node][message.attempt, message.sweep] = 1 / message.busbw_gb_s
    return {ranks: dict(nodes) for ranks, nodes in found.items()}
