"""Whose memory was too small, by the words of the libraries; what the largest micro batch makes of each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.smoke import max_batch
from zerocfg.smoke.judge.known_errors import circumstance_of
from zerocfg.smoke.launch.failure_cause import Seen, find
from zerocfg.smoke.prepare.folder import RunFolder, read
from zerocfg.smoke.smoke import Options
from zerocfg.smoke.worker.failure import describe
from zerocfg.smoke.worker.memory_errors import place

from .launched import report, verdict

if TYPE_CHECKING:
    from zerocfg.smoke.judge.verdict import Verdict

    from .conftest import MakeRun

# torch/csrc/distributed/c10d/NCCLUtils.hpp writes what ncclGetLastError gives: the last warning of NCCL.
NCCL = (
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, {word}, NCCL version 2.27.5\n"
    "{name}: Call to CUDA function failed.\nLast error:\n{last}"
)


def nccl(last: str, name: str = "ncclUnhandledCudaError") -> str:
    return NCCL.format(word="unhandled cuda error (run with NCCL_DEBUG=INFO for details)", name=name, last=last)


CARD = {
    "caching allocator": ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "),
    "caching allocator on AMD": ("OutOfMemoryError", "HIP out of memory. Tried to allocate 2.00 GiB."),
    "an older torch": ("RuntimeError", "CUDA out of memory. Tried to allocate 16.00 GiB (GPU 0; 11.93 GiB total)"),
    # c10/cuda/CUDAException.cpp
    "runtime": ("AcceleratorError", "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in https://"),
    "runtime on AMD": ("AcceleratorError", "HIP error: out of memory\nSearch for `hipErrorOutOfMemory' in https://"),
    # c10/cuda/driver_api.h
    "driver": ("RuntimeError", "CUDA driver error: out of memory"),
    # ATen/cuda/Exceptions.h
    "cuBLAS": ("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "cuSOLVER": (
        "RuntimeError",
        "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
    ),
    "cuDNN": ("RuntimeError", "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    # include/checks.h and include/alloc.h of NCCL, 2.27 and 2.18
    "NCCL": ("DistBackendError", nccl("Cuda failure 2 'out of memory'")),
    "NCCL before 2.19": ("DistBackendError", nccl("Cuda failure 'out of memory'")),
    "NCCL's buffers": ("DistBackendError", nccl("Failed to CUDA calloc async 6291456 bytes")),
    "RCCL": ("DistBackendError", nccl("HIP failure 'out of memory'")),
    "Triton": ("RuntimeError", "Triton Error [CUDA]: out of memory"),
}
HOST = {
    "torch": (
        "RuntimeError",
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory",
    ),
    "Python": ("MemoryError", ""),
    "numpy": ("_ArrayMemoryError", "Unable to allocate 8.00 PiB for an array with shape (1125899906842624,)"),
    "fork": ("OSError", "[Errno 12] Cannot allocate memory"),
    "C++": ("RuntimeError", "std::bad_alloc"),
    "NCCL's pinned buffers": ("DistBackendError", nccl("Failed to CUDA host alloc 4923392 bytes")),
    "NCCL's own": ("DistBackendError", nccl("Failed to malloc 4096 bytes", "ncclSystemError")),
    # torch/utils/data/_utils/pin_memory.py
    "DataLoader": (
        "AcceleratorError",
        "Caught AcceleratorError in pin memory thread for device 0.\nCUDA error: out of memory",
    ),
    "a C++ frame": ("AcceleratorError", "CUDA error: out of memory\nframe #3: at::cuda::CachingHostAllocatorImpl"),
}
OTHERS = {
    "illegal access": ("AcceleratorError", "CUDA error: an illegal memory access was encountered"),
    "another failure in NCCL": ("DistBackendError", nccl("Cuda failure 1 'invalid argument'")),
    "cuBLAS": ("RuntimeError", "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"),
    "cuDNN": ("RuntimeError", "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
    "driver": ("RuntimeError", "CUDA driver error: device not ready"),
    "pinning of what is on the card": ("RuntimeError", "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors"),
}


@pytest.mark.parametrize("name", CARD)
def test_the_cards_memory(name: str) -> None:
    assert place(*CARD[name]) == "card"
    assert explained(*CARD[name]) == "card-out-of-memory"


@pytest.mark.parametrize("name", HOST)
def test_the_hosts_memory(name: str) -> None:
    assert place(*HOST[name]) == "host"
    assert explained(*HOST[name]) == "host-out-of-memory"


@pytest.mark.parametrize("name", OTHERS)
def test_no_memory_error(name: str) -> None:
    assert place(*OTHERS[name]) is None


def explained(kind: str, text: str, traceback: tuple[str, ...] = ()) -> str:
    """The circumstance that the user is told, through the message of the failure."""
    failure: Any = {"type": kind, "text": text, "time": 1.0, "traceback": list(traceback)}
    cause = find(Seen([{"rank": 0, "phase": "init", "error": failure}], 1, "", None, Path()))
    assert cause is not None and cause.kind == "memory"
    found = circumstance_of("\n".join([cause.text, *cause.detail]), cause.kind)
    assert found is not None
    return found.name


RAN_OUT = "CUDA error: out of memory"
PINNING = {
    "DeepSpeed": (
        '  File "/venv/lib/python3.12/site-packages/deepspeed/runtime/zero/stage_1_and_2.py", line 565, in __init__',
        "    weights_partition = get_accelerator().pin_memory(weights_partition)",
        '  File "/venv/lib/python3.12/site-packages/deepspeed/accelerator/a.py", line 330, in pin_memory',
        "    return tensor.contiguous()",
        f"torch.AcceleratorError: {RAN_OUT}",
    ),
    "a script": (
        '  File "train.py", line 3, in <module>',
        "    buffer = torch.empty(1 << 40, pin_memory=True)",
        f"torch.AcceleratorError: {RAN_OUT}",
    ),
}
NOT_PINNING = {
    "an outer frame pins": (
        '  File "a.py", line 1, in pin_memory',
        "    f()",
        '  File "b.py", line 9, in f',
        "    x.cuda()",
    ),
    "pinning is off": ('  File "a.py", line 1, in f', "    torch.empty(9, device=card, pin_memory=False)"),
    "nothing is known": (),
}


@pytest.mark.parametrize("name", PINNING)
def test_pinned_memory_is_the_hosts(name: str) -> None:
    """CUDA says the same as for the card; the innermost frame tells whose it was."""
    assert place("AcceleratorError", RAN_OUT, PINNING[name]) == "host"
    assert explained("AcceleratorError", RAN_OUT, PINNING[name]) == "host-out-of-memory"
    failure: Any = {"type": "AcceleratorError", "text": RAN_OUT, "time": 1.0, "traceback": PINNING[name]}
    cause = find(Seen([{"rank": 0, "phase": "init", "error": failure}], 1, "", None, Path()))
    assert cause is not None
    assert cause.text == f"out of host memory (page-locked) in 'init': AcceleratorError: {RAN_OUT}"
    assert place("OutOfMemoryError", "CUDA out of memory.", PINNING[name]) == "card", "the caching allocator's own"


@pytest.mark.parametrize("name", NOT_PINNING)
def test_the_card_is_asked_where_no_pinning_is_seen(name: str) -> None:
    assert place("AcceleratorError", RAN_OUT, NOT_PINNING[name]) == "card"


def test_a_reported_traceback_shows_the_pinning() -> None:
    """The lines of a traceback are those that the ranks' program reports."""

    def pin_memory() -> None:
        raise RuntimeError(RAN_OUT)

    def allocate() -> None:
        raise RuntimeError(RAN_OUT)

    for function, whose in ((pin_memory, "host"), (allocate, "card")):
        try:
            function()
        except RuntimeError as error:
            seen = describe(error)
        assert place(seen["type"], seen["text"], seen["traceback"]) == whose


@pytest.mark.libs
def test_the_words_of_the_installed_torch() -> None:
    import torch

    folder = Path(torch.__file__).parent
    assert '"CUDA driver error: ", err_str' in (folder / "include/c10/cuda/driver_api.h").read_text()
    assert "in pin memory thread for device" in (folder / "utils/data/_utils/pin_memory.py").read_text()
    assert "NCCL error in: " in (folder / "include/torch/csrc/distributed/c10d/NCCLUtils.hpp").read_text()
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 60)
    assert place(type(raised.value).__name__, str(raised.value)) == "host"
    assert (
        torch.AcceleratorError.__name__ == "AcceleratorError" and torch.OutOfMemoryError is torch.cuda.OutOfMemoryError
    )


def failing(kind: str, text: str) -> dict[str, Any]:
    error = {"type": kind, "text": text, "time": 1.0, "traceback": []}
    return report(0, {"init": 200, "forward": 300}, error=error, done=False, step_seconds=[])


def searched(run: RunFolder, tmp_path: Path, failed: dict[str, Any], **ended: Any) -> max_batch.Found:
    """A search in which micro batches above 5 end so."""

    def launched(changed: RunFolder, options: Options) -> Verdict:
        batch = changed.plan["train_micro_batch_size_per_gpu"]
        if batch > 5:
            return verdict(changed, tmp_path, [failed, report(1, {})], **ended)
        seen = {"world_size": 2, "micro_batch": batch, "gradient_accumulation_steps": 2}
        return verdict(changed, tmp_path, [report(rank, {"forward": 200}, seen=seen) for rank in (0, 1)])

    return max_batch.find(run, Options(), launched, upper=16)


@pytest.mark.parametrize("error", [*CARD.values(), *HOST.values()], ids=[*CARD, *HOST])
def test_every_lack_of_memory_bounds_the_search(error: tuple[str, str], make_run: MakeRun, tmp_path: Path) -> None:
    found = searched(read(make_run(3)), tmp_path, failing(*error), failure=f"{error[0]}: {error[1]}", kind="memory")
    assert (found.largest, found.certain, found.problem) == (5, True, None)


@pytest.mark.parametrize("error", OTHERS.values(), ids=OTHERS)
def test_any_other_error_ends_the_search(error: tuple[str, str], make_run: MakeRun, tmp_path: Path) -> None:
    found = searched(read(make_run(3)), tmp_path, failing(*error), failure=f"{error[0]}: {error[1]}", kind="error")
    assert not found.certain and found.problem == f"{error[0]}: {error[1]}"


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("what():  CUDA out of memory. Tried to allocate 2.00 GiB", "card"),
        ("what():  std::bad_alloc", "host"),
        ("what():  CUDA error: an illegal memory access was encountered", None),
    ],
)
def test_a_rank_that_a_library_aborts(words: str, place: str | None, make_run: MakeRun, tmp_path: Path) -> None:
    """It has no exception to report; its last words are in the log."""
    ended = {"failure": "rank 0 was killed by signal 6 (SIGABRT) in 'forward'", "kind": "killed"}
    gone = report(0, {"init": 200}, done=False, step_seconds=[])
    found = searched(read(make_run(3)), tmp_path, gone, **ended, detail=["terminate called", words])
    assert (found.problem is None) is (place is not None)
    if place is not None:
        assert found.largest == 5
        assert {one.why for one in found.tries if not one.fits} == {f"a library found no memory of the {place}"}


def test_the_card_that_a_rank_reports_bounds_where_nvidia_smi_does_not_know(make_run: MakeRun, tmp_path: Path) -> None:
    from zerocfg.smoke.prepare.device import Device

    def launched(changed: RunFolder, options: Options) -> Verdict:
        seen = {"world_size": 2, "micro_batch": 2, "gradient_accumulation_steps": 2}
        reports = [report(rank, {"forward": 200}, True, seen=seen, device_memory=64 << 30) for rank in (0, 1)]
        return verdict(changed, tmp_path, reports, Device("cuda", "NVIDIA Z9000", 2))

    found = max_batch.find(read(make_run(3)), Options(), launched, upper=4096, launches=1)
    assert found.predicted is not None and found.predicted > 1
