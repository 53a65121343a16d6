"""The operators of c10d, done by gloo's backend object.

torch's own kernels cannot be called for this: from Python they run with the interpreter's lock, which gloo's threads
need when they drop a tensor, and then both wait for ever.
"""

from __future__ import annotations

import datetime
from typing import Any

import torch
import torch.distributed as dist

METHODS: dict[str, tuple[str, str]] = {
    "allreduce_": ("allreduce", "AllreduceOptions"),
    "allreduce_coalesced_": ("allreduce_coalesced", "AllreduceCoalescedOptions"),
    "allgather_": ("allgather", "AllgatherOptions"),
    "_allgather_base_": ("_allgather_base", "AllgatherOptions"),
    "allgather_coalesced_": ("allgather_coalesced", "AllgatherOptions"),
    "allgather_into_tensor_coalesced_": ("_allgather_base", "AllgatherOptions"),
    "reduce_scatter_": ("reduce_scatter", "ReduceScatterOptions"),
    "_reduce_scatter_base_": ("_reduce_scatter_base", "ReduceScatterOptions"),
    "reduce_scatter_tensor_coalesced_": ("_reduce_scatter_base", "ReduceScatterOptions"),
    "reduce_": ("reduce", "ReduceOptions"),
    "broadcast_": ("broadcast", "BroadcastOptions"),
    "alltoall_": ("alltoall", "AllToAllOptions"),
    "alltoall_base_": ("alltoall_base", "AllToAllOptions"),
    "gather_": ("gather", "GatherOptions"),
    "scatter_": ("scatter", "ScatterOptions"),
    "barrier": ("barrier", "BarrierOptions"),
    "send": ("send", ""),
    "recv_": ("recv", ""),
    "recv_any_source_": ("recv_anysource", ""),
}
"""By operator: the method, and the class of its options; the other arguments are those of the operator, in order."""
ONE_BY_ONE = ("allgather_into_tensor_coalesced_", "reduce_scatter_tensor_coalesced_")
"""The backend object has no such method."""
OPTIONS = {
    "reduce_op": "reduceOp",
    "root_rank": "rootRank",
    "root_tensor": "rootTensor",
    "async_op": "asyncOp",
    "timeout": "timeout",
    "device_ids": "device_ids",
}


class Several(dist.Work):  # type: ignore[misc]
    """The Works of calls that one operator stands for."""

    kept: list[Several] = []  # noqa: RUF012 - torch forgets that a Work is a class of Python when nobody refers to it

    def __init__(self, works: list[Any]) -> None:
        super().__init__()
        self.works = works
        self.kept.append(self)

    def wait(self, timeout: Any = None) -> bool:
        for work in self.works:
            work.wait()
        return True

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self.works)


def call(name: str, given: dict[str, Any], group: Any) -> Any:
    """Make the call of an operator with these arguments; its Work. Raises what gloo raises at once."""
    method, kind = METHODS[name]
    run = getattr(group._get_backend(torch.device("cpu")), method)
    if not kind:
        return run(*(value for key, value in given.items() if key != "process_group"))
    options = getattr(torch._C._distributed_c10d, kind)()
    for key, value in given.items():
        if key == "reduce_op":
            options.reduceOp = dist.ReduceOp(dist.ReduceOp.RedOpType(value.op()))
        elif key == "timeout":
            if value >= 0:
                options.timeout = datetime.timedelta(milliseconds=value)
        elif key in OPTIONS:
            setattr(options, OPTIONS[key], value)
    arguments = [
        value
        for key, value in given.items()
        if key not in OPTIONS
        and key not in ("process_group", "sparse_indices")
        and (name, key) != ("barrier", "tensor")
    ]
    if name in ONE_BY_ONE:
        return Several([run(output, part, options) for output, part in zip(*arguments, strict=True)])
    return run(*arguments, options)
