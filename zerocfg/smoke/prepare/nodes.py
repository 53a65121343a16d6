"""This machine's place in a smoke-run over several; each of them starts `zerocfg smoke` itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.budgets import DIGITS
from zerocfg.smoke.model.error import SmokeError

if TYPE_CHECKING:
    from collections.abc import Mapping

RANK = ("MACHINE_RANK", "SLURM_NODEID", "NODE_RANK")
ADDRESS = ("MAIN_PROCESS_IP", "MASTER_ADDR")
PORT = ("MAIN_PROCESS_PORT", "MASTER_PORT")
DEFAULT_PORT = 29500


@dataclass(frozen=True)
class Nodes:
    """``rank`` of this machine among ``count``; the ranks of all meet at ``address`` and ``port`` of number 0.

    ``each``: ranks on every one of them.
    """

    count: int
    rank: int
    address: str
    port: int
    each: int = 1

    @property
    def ranks(self) -> int:
        return self.count * self.each

    @property
    def own(self) -> range:
        """The ranks on this machine."""
        return range(self.rank * self.each, (self.rank + 1) * self.each)


def here(count: int, environment: Mapping[str, str] = os.environ) -> Nodes:
    """This machine among ``count``, by the variables that an emitted launch.sh reads, or those of Slurm and torchrun.

    Raises SmokeError naming the variable that is missing or says nothing sensible.
    """
    rank = _number(RANK, environment, None, 0, count - 1)
    port = _number(PORT, environment, DEFAULT_PORT, 1, 65535)  # 0 is another free port on every node
    address = next((environment[name] for name in ADDRESS if environment.get(name)), None)
    if address is None:
        raise SmokeError(
            f"--nodes {count}: set {ADDRESS[0]} to the address of the node with {RANK[0]}=0, on every node"
        )
    return Nodes(count, rank, address, port)


def _number(
    names: tuple[str, ...], environment: Mapping[str, str], otherwise: int | None, least: int, most: int
) -> int:
    name, text = next(((name, environment[name]) for name in names if environment.get(name)), (names[0], ""))
    if not text and otherwise is not None:
        return otherwise
    if not text:
        raise SmokeError(f"set {name} to the number of this node, {least} to {most}, on every node")
    digits = text.lstrip("0") or "0"
    if not (text.isascii() and text.isdigit() and len(digits) <= DIGITS and least <= int(digits) <= most):
        raise SmokeError(f"{name} is {text!r}; a number from {least} to {most} is needed")
    return int(digits)
