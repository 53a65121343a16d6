"""The process groups of a rank: which backend each would have on a card, and what it has done so far."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from .callers import asker

NCCL, GLOO = "nccl", "gloo"
PATIENCE = 600.0  # seconds after which NCCL's watchdog ends the process, where nobody asks for others
MEET = 10.0  # seconds after which a hang of NCCL is an error here, so that a test ends


@dataclass
class Group:
    """``connected``: whether all ranks have made a call together. ``late``: an error that nobody has seen yet."""

    backend: str
    patience: float = PATIENCE
    connected: bool = False
    late: Exception | None = None
    key: str = ""

    def gloo_takes(self, on_card: bool) -> bool:
        """Whether gloo does the call, for tensors on the card or on the processor."""
        return self.backend == GLOO or ("cpu:gloo" in self.backend and not on_card)

    def raise_late(self) -> None:
        late, self.late = self.late, None
        if late is not None:
            raise dist.DistBackendError(f"NCCL error of an earlier call: {late}")

    def die(self, started: float, error: Exception) -> None:
        """A partner is gone: NCCL waits, and its watchdog ends the process when the patience is over."""
        while time.monotonic() < started + self.patience:
            time.sleep(0.05)
        words = f"[Rank {os.environ.get('RANK', '0')}] Watchdog caught collective operation timeout: {error}"
        print(words, file=sys.stderr, flush=True)
        os.abort()


GROUPS: dict[str, Group] = {}
"""By name."""
_default = Group(NCCL)
_generation = 0


def of(group: Any) -> Group:
    """What is known of a process group of torch."""
    name = str(group.group_name)
    if name not in GROUPS:
        GROUPS[name] = Group(_default.backend, _default.patience, key=f"nccl-double/{_generation}/{name}")
    return GROUPS[name]


def meet(group: Any) -> None:
    """All ranks of a group come to its first call, or it hangs: here it raises after `MEET` seconds."""
    known, store = of(group), distributed_c10d._world.pg_map[group][1]
    here, wanted = store.add(known.key, 1), group.size()
    deadline = time.monotonic() + MEET
    while here < wanted:
        if time.monotonic() > deadline:
            raise dist.DistBackendError(
                f"NCCL hangs: the first call of this group is a batch_isend_irecv, and {here} of {wanted} ranks make it"
            )
        time.sleep(0.005)
        here = store.add(known.key, 0)


def follow() -> None:
    """Notice which backends are asked for."""
    for name, wrap in (("init_process_group", _init), ("new_group", _new)):
        wrapped = wrap(getattr(distributed_c10d, name))
        setattr(distributed_c10d, name, wrapped)
        setattr(dist, name, wrapped)


def _init(original: Any) -> Any:
    @functools.wraps(original)
    def init_process_group(*args: Any, **named: Any) -> Any:
        global _default, _generation
        GROUPS.clear()
        _generation += 1
        limit = named.get("timeout")
        _default = Group(_on_card(asker(), args[0] if args else named.get("backend")))
        if limit is not None:
            _default.patience = limit.total_seconds()
        result = original(*args, **named)
        _note()
        return result

    return init_process_group


def _new(original: Any) -> Any:
    @functools.wraps(original)
    def new_group(*args: Any, **named: Any) -> Any:
        group = original(*args, **named)
        backend = named.get("backend", args[2] if len(args) > 2 else None)
        if backend == GLOO and isinstance(group, dist.ProcessGroup):
            of(group).backend = GLOO
        return group

    return new_group


def _on_card(module: str, backend: object) -> str:
    """The backend that whoever makes the default group asks for on a card."""
    if module == "zerocfg.hardware.measuring.collectives":
        return str(sys.modules[module].BACKENDS["cuda"])
    if module == "zerocfg_worker.sharing":
        return str(backend)
    return NCCL


def _note() -> None:
    """Tell the test, by a socket: which files a user's command writes is watched."""
    name = os.environ.get("ZEROCFG_TEST_LAUNCHES")
    if name and dist.get_world_size() > 1:
        words = f"{dist.get_world_size()} ranks: {' '.join(sys.argv)[:100]}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as test, contextlib.suppress(OSError):
            test.setblocking(False)
            test.sendto(words.encode(), name)
