"""Whether all ranks take part in what calls collectives: a measurement, or a training that is only compared.

A rank that leaves out a collective hangs its partners. So each rank votes, over the store of the process group and
not by a collective, right before the first one; only when all have voted does any of them go on.
"""

from __future__ import annotations

import datetime
from typing import Any

from . import group

PATIENCE = 30.0
"""Seconds between the first and the last vote. Ranks vote right after a step in which they waited for each other,
unless they say otherwise."""
YES, NO = b"yes", b"no"


class Vote:
    """One vote of all ranks, under a ``key`` that each of them uses once."""

    def __init__(self, key: str, patience: float | None = None) -> None:
        self._key = f"zerocfg/{key}"
        self._patience = PATIENCE if patience is None else patience
        self._cast = False

    def all_ready(self) -> bool:
        """Vote for it and wait; True on every rank, or on none."""
        self._cast = True
        ranks = group.size()
        if ranks == 1:
            return True
        store = _store()
        if store.add(f"{self._key}/ready", 1) == ranks:
            return self._decided(YES)
        try:
            store.wait([f"{self._key}/decision"], datetime.timedelta(seconds=self._patience))
        except RuntimeError:  # the time is over: torch.distributed.DistStoreError, a RuntimeError in older releases
            return self._decided(NO)
        return bool(store.get(f"{self._key}/decision") == YES)

    def decline(self) -> None:
        """Vote against it, unless this rank voted for it before. Waits for nobody."""
        if not self._cast and group.size() > 1:
            self._decided(NO)

    def _decided(self, decision: bytes) -> bool:
        """Propose a decision; what was decided first counts for all."""
        return bool(_store().compare_set(f"{self._key}/decision", "", decision.decode()) == YES)


def _store() -> Any:
    from torch.distributed import distributed_c10d

    return distributed_c10d._get_default_store()
