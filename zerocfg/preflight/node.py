"""The ranks of one node of a job. As a program of `zerocfg.cluster.on_node`, what they print are its events."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from zerocfg.cluster.on_node import host
from zerocfg.hardware.launcher import PORT
from zerocfg.preflight.messages import PREFIX
from zerocfg.preflight.start import Start, follow, ranks_of_node

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocfg.cluster.events import Channel

NODE = ("MACHINE_RANK", "SLURM_NODEID")


@dataclass(frozen=True)
class Request:
    """``ranks`` on each of ``nodes`` nodes; ``arguments`` of the rank program."""

    nodes: int
    ranks: int
    arguments: list[str]

    def text(self) -> str:
        return json.dumps(asdict(self))


def starts(request: Request, environment: Mapping[str, str]) -> list[Start]:
    """The ranks of this node, by the variables that tell launch.sh its place.

    Raises ValueError, one line, where these name no node of the request.
    """
    name = next((name for name in NODE if environment.get(name)), None)
    if name is None and request.nodes > 1:
        raise ValueError(f"{NODE[0]} is not set: the number of this node, 0 to {request.nodes - 1}")
    number = environment[name] if name else "0"
    if not number.isdecimal() or int(number) >= request.nodes:
        raise ValueError(f"{name} is {number!r}: a number from 0 to {request.nodes - 1} was expected")
    address = environment.get("MAIN_PROCESS_IP")
    if not address and request.nodes > 1:
        raise ValueError("MAIN_PROCESS_IP is not set: the address of the first node")
    port = environment.get("MAIN_PROCESS_PORT") or PORT
    if not port.isdecimal():
        raise ValueError(f"MAIN_PROCESS_PORT is {port!r}: a number was expected")
    named = [*request.arguments, "--name", host()]
    return ranks_of_node(int(number), request.nodes, request.ranks, address or "127.0.0.1", port, named)


def run(arguments: list[str], tell: Channel) -> None:
    """Start the ranks of this node. Events: "line", one of a rank."""
    request = Request(**json.loads(arguments[0]))

    def pass_on(_: str, line: str) -> None:
        if line.startswith(PREFIX):
            tell("line", text=line.rstrip("\n"))

    follow(starts(request, os.environ), pass_on)
