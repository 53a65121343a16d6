"""Where the ranks meet: torch's store on the first of them. Who does not come is named, and the others go on."""

from __future__ import annotations

import datetime
import errno
import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from zerocfg.hardware.measuring.library import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocfg.hardware.launcher import Place

LATE = 10.0  # seconds that the others wait for rank 0's word, beyond its own patience


class PortTakenError(Exception):
    """Somebody listens at the port at which rank 0 has to."""


class Meeting:
    """The store of all ranks that came."""

    def __init__(self, place: Place, environment: Mapping[str, str], patience: float) -> None:
        """Opens the store. Raises PortTakenError, and what torch raises when nobody answers within ``patience``."""
        self.place, self.patience = place, patience
        address = environment["MASTER_ADDR"]
        port = int(environment.get("MASTER_PORT") or place.environment["MASTER_PORT"])
        # torchrun's agent keeps a store at that port already, for as long as the job lives.
        own = place.rank == 0 and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        try:
            store = _store(address, port, own, patience)
        except Exception:
            if own and _taken(port):
                raise PortTakenError(f"port {port} (MASTER_PORT) of {socket.gethostname()} is taken") from None
            raise
        restarts = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
        self.store: Any = torch.distributed.PrefixStore(f"zerocfg-preflight-{restarts}", store)
        self.lines = 0

    def present(self) -> list[int]:
        """The ranks that came within the patience of rank 0, in their order. Raises what torch raises."""
        self.store.set(f"here/{self.place.rank}", "1")
        if self.place.rank == 0:
            deadline = time.monotonic() + self.patience
            # Those that did not come, because every rank reads it: of all that came it would be N squared bytes.
            missing = [rank for rank in range(self.place.world) if not self._came(rank, deadline)]
            self.store.set("absent", json.dumps(missing))
        self.store.wait(["absent"], datetime.timedelta(seconds=self.patience + LATE))
        absent = set(json.loads(self.store.get("absent")))
        return [rank for rank in range(self.place.world) if rank not in absent]

    def _came(self, rank: int, deadline: float) -> bool:
        key = [f"here/{rank}"]
        while not self.store.check(key):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def post(self, line: str) -> None:
        """Leave a line for rank 0."""
        self.store.set(f"line/{self.place.rank}/{self.lines}", line)
        self.lines += 1
        self.store.set(f"lines/{self.place.rank}", str(self.lines))

    def posted(self, rank: int) -> list[str]:
        """The lines that a rank has left so far."""
        count = int(self.store.get(f"lines/{rank}")) if self.store.check([f"lines/{rank}"]) else 0
        return [self.store.get(f"line/{rank}/{number}").decode() for number in range(count)]

    def leave(self) -> None:
        """Say that this rank posts nothing any more."""
        self.store.set(f"left/{self.place.rank}", "1")

    def left(self, rank: int) -> bool:
        """Whether a rank has left."""
        return bool(self.store.check([f"left/{rank}"]))


def _store(address: str, port: int, own: bool, patience: float) -> object:
    """Raises TimeoutError where somebody accepts the connection and says nothing: torch would wait for ever."""
    limit = datetime.timedelta(seconds=patience)
    found: list[object] = []
    failed: list[Exception] = []

    def connect() -> None:
        try:
            found.append(torch.distributed.TCPStore(address, port, None, own, limit, wait_for_workers=False))
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(patience + LATE)
    if failed:
        raise failed[0]
    if not found:
        raise TimeoutError(f"whoever listens at {address}:{port} does not answer as rank 0 would")
    return found[0]


def _taken(port: int) -> bool:
    try:
        with socket.create_server(("", port)):
            return False
    except OSError as error:
        return error.errno == errno.EADDRINUSE
