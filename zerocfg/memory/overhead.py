"""What a device holds beside tensors: workspaces, the CUDA context, communication buffers, the allocator's reserve.

Three counters answer "how much memory": ``torch.cuda.max_memory_allocated`` (tensors and workspaces),
``max_memory_reserved`` (what the caching allocator took from the driver for them) and what ``nvidia-smi`` shows for the
process (reserved, context, and what libraries took on their own). The first follows from formulas; the other two are
stated as bands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.memory.terms import TRAINING, WORK, Term

if TYPE_CHECKING:
    from zerocfg.models.hardware import Accelerator

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Band:
    """Bytes: what is expected, and between which ends it was found."""

    low: int
    expected: int
    high: int


# Reserved over allocated on published runs that print both: 1.09, 1.12, 1.23, 1.24. The allocator keeps what it once
# took in blocks of at least 2 MiB; sequences of changing length drive the share up, expandable segments down.
RESERVE = (1.0, 1.12, 1.25)
# CUDA context of torch 2: 0.47 GiB with lazily loaded kernels, to 0.9 GiB on an A100 with torch 2.1.
CONTEXT = (int(0.4 * GIB), int(0.6 * GIB), int(1.0 * GIB))
# NCCL's channels of one communicator; published measurements show 1 to 2 GiB after the first barrier, several
# communicators (ZeRO opens few, hybrid sharding more) take more.
NCCL = (int(0.2 * GIB), int(1.0 * GIB), int(2.0 * GIB))


def workspaces(accelerator: Accelerator | None) -> tuple[Term, ...]:
    """cuBLAS workspaces, which torch takes from its caching allocator: they count as allocated.

    One for each thread that multiplies matrices: the main thread (forward) and autograd's (backward). 32 MiB each on
    compute capability 9, 10 and 12, else 8.125 MiB; cuBLASLt shares them. From the first kernel on, for good.
    Source: aten/src/ATen/cuda/CublasHandlePool.cpp (parseChosenWorkspaceSize, getNewWorkspace), torch 2.9 and later.
    """
    if accelerator is None or accelerator.vendor != "nvidia":
        return ()
    major = (accelerator.architecture or "").split(".")[0]
    each = 32 * MIB if major in ("9", "10", "12") else 8 * MIB + 128 * 1024
    source = "CublasHandlePool.cpp: getNewWorkspace"
    return (Term("cuBLAS workspaces", 2 * each, "device", TRAINING | WORK, "outside", source, "torch>=2.9"),)


def reserved(allocated: Band) -> Band:
    """``torch.cuda.max_memory_reserved`` for an allocated peak."""
    low, expected, high = RESERVE
    return Band(int(allocated.low * low), int(allocated.expected * expected), int(allocated.high * high))


def device_total(kept: Band, accelerator: Accelerator | None, world_size: int) -> Band:
    """What the driver shows for the process: ``kept`` (reserved), context, and NCCL when there are several ranks."""
    if accelerator is None or accelerator.vendor == "cpu":
        return kept
    more = [CONTEXT[i] + (NCCL[i] if world_size > 1 else 0) for i in range(3)]
    return Band(kept.low + more[0], kept.expected + more[1], kept.high + more[2])
