"""batch_isend_irecv: as the first call of a group all of its ranks have to make it."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from . import cards, groups


def install() -> None:
    wrapped = _batch(distributed_c10d.batch_isend_irecv)
    distributed_c10d.batch_isend_irecv = wrapped
    dist.batch_isend_irecv = wrapped


def _batch(original: Any) -> Any:
    @functools.wraps(original)
    def batch_isend_irecv(p2p_op_list: list[Any]) -> Any:
        group = p2p_op_list[0].group or dist.group.WORLD
        known = groups.of(group)
        if not known.connected and not known.gloo_takes(any(cards.holds(one.tensor) for one in p2p_op_list)):
            groups.meet(group)
            known.connected = True
        return original(p2p_op_list)

    return batch_isend_irecv
