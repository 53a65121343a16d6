"""What a preflight found, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "missing",  # a rank never answered
    "stopped",  # a rank answered, and came to no end
    "broken",  # a rank could not do what it had to
    "port",
    "clock",
    "slow",
    "shared",  # the ranks have too little of their processors to be measured
    "release",
    "hardware",
    "limit",
    "environment",
    "memory",
    "disk",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something is wrong. ``nodes``: those that are to be left out or mended; none where nobody knows which one.

    ``what`` was looked at, ``figure`` is what was seen there, ``others`` the fleet's median, what most nodes have, or
    what was expected; empty where there is no such thing. ``fails``: else it is only worth a look.
    """

    kind: Kind
    what: str
    figure: str
    message: str
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    others: str = ""
    fails: bool = True


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured rate of a node's slowest rank, and the fleet's median. ``ratio``: how many times as long it takes."""

    node: str
    what: str
    unit: str
    rate: float
    median: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Together:
    """A collective of all ranks: bus bandwidth in GB/s, as nccl-tests defines it."""

    what: str
    ranks: int
    busbw_gb_s: float


@dataclass(frozen=True, slots=True)
class Node:
    """``name`` as the scheduler knows it; ``ranks`` that answered there."""

    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """``ranks``: how many were expected. ``seconds`` of the slowest rank that came to its end; None where none did."""

    nodes: tuple[Node, ...]
    ranks: int
    findings: tuple[Finding, ...] = ()
    figures: tuple[Figure, ...] = ()
    together: tuple[Together, ...] = ()
    seconds: float | None = None

    @property
    def failing(self) -> tuple[str, ...]:
        """Names of the nodes that a job should not use, those that never answered included."""
        named = (name for finding in self.findings if finding.fails for name in finding.nodes)
        return tuple(dict.fromkeys(named))

    @property
    def passing(self) -> tuple[Node, ...]:
        """The other nodes that answered."""
        failing = set(self.failing)
        return tuple(node for node in self.nodes if node.name not in failing)

    @property
    def passed(self) -> bool:
        return bool(self.nodes) and not any(finding.fails for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """0: all pass; 1: something fails; 2: nothing answered, so that nothing could be tried."""
        if not self.nodes:
            return 2
        return 0 if self.passed else 1
