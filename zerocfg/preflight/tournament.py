"""Who measures with whom: rounds in which every rank has one partner at most."""

from __future__ import annotations

import math


def rounds(ranks: int) -> list[list[tuple[int, int]]]:
    """Rounds of pairs: first those of neighbours in the ring, then those of a round-robin tournament.

    Up to ten ranks every two of them meet. Of a longer tournament 2 log2(ranks) rounds are taken, evenly spread, so
    that all rounds together have N log N pairs.
    """
    if ranks < 2:
        return []
    turns = ranks + ranks % 2 - 1
    most = max(3, 2 * math.ceil(math.log2(ranks)))
    if turns <= most + 2:  # with the ring it would be as many
        return [_turn(ranks, turn) for turn in range(turns)]
    taken = [_turn(ranks, at * turns // most) for at in range(most)]
    seen = {pair for item in taken for pair in item}
    neighbours = [tuple(sorted((rank, (rank + 1) % ranks))) for rank in range(ranks)]
    ring: list[list[tuple[int, int]]] = [[], [], []]
    for at, (neighbour, other) in enumerate(neighbours):
        # The edges of an odd ring take a third round.
        if (neighbour, other) not in seen:
            ring[2 if at == ranks - 1 and ranks % 2 else at % 2].append((neighbour, other))
    return [item for item in ring if item] + taken


def _turn(ranks: int, turn: int) -> list[tuple[int, int]]:
    """One round by the circle method: the last one stays where it is, the others move on by one each round."""
    players = ranks + ranks % 2
    pairs = [(players - 1, turn)]
    pairs += [((turn + at) % (players - 1), (turn - at) % (players - 1)) for at in range(1, players // 2)]
    return sorted((min(pair), max(pair)) for pair in pairs if max(pair) < ranks)
