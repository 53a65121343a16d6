"""Whose memory was too small, by the words of torch, CUDA, NCCL, DeepSpeed and numpy.

Page-locked ("pinned") memory is the host's, although CUDA allocates it and reports its lack as "CUDA error: out of
memory", as it does for the card. Only the place of the error tells them apart: its words, or the innermost frame.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

HOST = (
    r"(?i:DefaultCPUAllocator|can't allocate memory|cannot allocate memory|std::bad_alloc|"
    r"cuda(?:HostAlloc|HostRegister|MallocHost)|hipHost(?:Malloc|Alloc|Register)|CachingHostAllocator|"
    r"pin memory thread|OUT_OF_HOST_MEMORY|mlock failed|"
    # NCCL (include/alloc.h)
    r"Failed to (?:CUDA host alloc|malloc) \d+ bytes)"
)
"""Expression for the words of errors about the host's memory."""
CARD = (
    r"(?i:(?:CUDA|HIP|XPU) out of memory|(?:CUDA|HIP) (?:driver )?error: out of memory|"
    r"cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory|OUT_OF_DEVICE_MEMORY|"
    r"Triton Error \[(?:CUDA|HIP)\]: out of memory|"
    r"(?:CUBLAS|CUBLASLT|CUDNN|CUSOLVER|CUSPARSE|HIPBLAS|HIPBLASLT|HIPSOLVER|HIPSPARSE)_STATUS_ALLOC_FAILED|"
    r"CUFFT_ALLOC_FAILED|miopenStatusAllocFailed|rocblas_status_memory_error|"
    # NCCL (include/checks.h and include/alloc.h); older releases write no number
    r"(?:Cuda|HIP) failure (?:\d+ )?'out of memory'|Failed to CUDA (?:calloc|malloc)(?: async)? \d+ bytes)"
)
"""Expression for the words of errors about the card's memory."""
_PINNING = re.compile(r"\bpin_memory\b(?!\s*=\s*(?:False|None|0))|\bcudaHost(?:Alloc|Register)\b")
_FRAME = re.compile(r'^\s*File "')


def place(kind: str, text: str, traceback: Sequence[str] = ()) -> str | None:
    """Which memory was too small: "card", "host", or None for other errors.

    ``kind``: the class of the exception; ``traceback``: the lines of its frames, the innermost last.
    """
    if kind == "OutOfMemoryError":  # of torch's caching allocators, which are the card's
        return "card"
    if re.search(HOST, text):
        return "host"
    if re.search(CARD, text):
        return "host" if _pins(traceback) else "card"
    return "host" if kind.endswith("MemoryError") else None


def _pins(traceback: Sequence[str]) -> bool:
    """Whether the innermost frame allocates pinned memory."""
    start = max((at for at, line in enumerate(traceback) if _FRAME.match(line)), default=None)
    return start is not None and any(_PINNING.search(line) for line in traceback[start:])
