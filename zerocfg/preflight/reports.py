"""The lines of all ranks, sorted: who said what, and which ranks make up a node."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from zerocfg.preflight.messages import Done, Facts, Message, NodeFacts, Problem, Stage, read
from zerocfg.preflight.verdict import Node


@dataclass
class Reports:
    """``ranks``: how many were expected. ``silent``: the last line of each source that reports nothing, by its name."""

    ranks: int
    messages: list[Message]
    facts: dict[int, Facts]
    done: dict[int, Done]
    problems: dict[int, Problem]
    stages: dict[int, Stage]
    nodes: tuple[Node, ...]
    names: dict[int, str]
    """Of the node of each rank, as far as it is known; that of one which never answered follows from its neighbours."""
    described: dict[str, NodeFacts]
    silent: dict[str, str] = field(default_factory=dict)

    def at(self, rank: int) -> tuple[str, ...]:
        """The node of a rank, or nothing."""
        return (self.names[rank],) if rank in self.names else ()

    def where(self, rank: int) -> str:
        """A rank and its node in words."""
        return f"rank {rank} on {self.names[rank]}" if rank in self.names else f"rank {rank}"


def sort(lines: Iterable[tuple[str, str]], ranks: int | None, hosts: Sequence[str]) -> Reports:
    """``lines`` with the name of whoever printed them; ``ranks`` None: as many as they say. ``hosts``: the nodes of the
    job in their order, each with as many ranks as the others; empty where nobody knows."""
    messages: list[Message] = []
    silent: dict[str, str] = {}
    heard = set()
    for source, text in lines:
        message = read(text)
        if message is not None:
            messages.append(message)
            heard.add(source)
        elif text.strip():
            silent[source] = text.strip()
    facts = {item.rank: item for item in messages if isinstance(item, Facts)}
    world = ranks if ranks is not None else max((fact.world for fact in facts.values()), default=0)
    names = _names(facts)
    of_node: dict[str, list[int]] = defaultdict(list)
    for rank in sorted(facts):
        of_node[names[rank]].append(rank)
    return Reports(
        ranks=world,
        messages=messages,
        facts=facts,
        done={item.rank: item for item in messages if isinstance(item, Done)},
        problems={item.rank: item for item in reversed(messages) if isinstance(item, Problem)},
        stages={item.rank: item for item in messages if isinstance(item, Stage)},
        nodes=tuple(Node(name, tuple(found)) for name, found in of_node.items()),
        names=_missing_names(facts, names, world, hosts) | names,
        described={names[rank]: fact.facts for rank, fact in sorted(facts.items()) if fact.facts is not None},
        silent={source: text for source, text in silent.items() if source not in heard},
    )


def _names(facts: dict[int, Facts]) -> dict[int, str]:
    """Name of the node by rank: its host, with its number where several nodes are one host."""
    alike = Counter(host for host, _ in {(fact.host, fact.node) for fact in facts.values()})
    return {rank: fact.host if alike[fact.host] == 1 else f"{fact.host}#{fact.node}" for rank, fact in facts.items()}


def _missing_names(facts: dict[int, Facts], names: dict[int, str], world: int, hosts: Sequence[str]) -> dict[int, str]:
    """Nodes of ranks that never answered: those of ``hosts``, or of the ranks beside them where every node has as many
    ranks, one after the other."""
    missing = [rank for rank in range(world) if rank not in facts]
    if hosts and world % len(hosts) == 0:
        return {rank: hosts[rank // (world // len(hosts))] for rank in missing}
    each = max((fact.local_rank for fact in facts.values()), default=0) + 1
    if any(rank % each != fact.local_rank for rank, fact in facts.items()):
        return {}
    nodes = {rank // each: names[rank] for rank in facts}
    return {rank: nodes[rank // each] for rank in missing if rank // each in nodes}
