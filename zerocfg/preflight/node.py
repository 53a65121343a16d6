"""The ranks of one node of a job (a program of `zerocfg.cluster.on_node`); what they print are its events."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from zerocfg.cluster.on_node import host
from zerocfg.preflight.messages import PREFIX
from zerocfg.preflight.start import follow, ranks_of_node

if TYPE_CHECKING:
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


def run(arguments: list[str], tell: Channel) -> None:
    """Start the ranks of this node. Events: "line", one of a rank."""
    request = Request(**json.loads(arguments[0]))
    node = int(next((os.environ[name] for name in NODE if os.environ.get(name)), "0"))
    address, port = os.environ["MAIN_PROCESS_IP"], os.environ["MAIN_PROCESS_PORT"]
    named = [*request.arguments, "--name", host()]

    def pass_on(_: str, line: str) -> None:
        if line.startswith(PREFIX):
            tell("line", text=line.rstrip("\n"))

    follow(ranks_of_node(node, request.nodes, request.ranks, address, port, named), pass_on)
