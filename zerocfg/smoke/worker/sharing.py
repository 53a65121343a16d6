"""Several ranks on one card: what the libraries need for it, and a trial of the collectives that ZeRO calls.

``python -m zerocfg_worker.sharing job.json`` is the trial; its job: {"reports": folder, "mode": name, "device": kind}.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .job import MODES
from .report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

ELEMENTS = 4096


def join(mode: str, device: str = "cuda") -> None:
    """Make this rank the first of its card; called before a library reads the environment.

    With gloo the process group stands afterwards, and accelerate and DeepSpeed take it; else they make their own.
    """
    rank = os.environ.get("RANK", "0")
    # Libraries choose the card by LOCAL_RANK.
    os.environ["LOCAL_RANK"] = "0"
    for name, value in MODES[mode].items():
        os.environ[name] = value.format(rank=rank)
    if device == "cuda":
        import torch

        torch.cuda.set_device(0)
    if mode == "gloo":
        import torch

        torch.distributed.init_process_group("gloo")


def collectives(device: str) -> Iterator[tuple[str, Callable[[], bool]]]:
    """(name, call that says whether the result is right) for what ZeRO, DDP and FSDP call, in both precisions."""
    import torch
    from torch import distributed

    ranks, rank = distributed.get_world_size(), distributed.get_rank()
    total = ranks * (ranks + 1) / 2

    def full(size: int, value: float, dtype: torch.dtype) -> torch.Tensor:
        return torch.full((size,), value, dtype=dtype, device=device)

    def all_reduce(dtype: torch.dtype) -> bool:
        tensor = full(ELEMENTS, rank + 1, dtype)
        distributed.all_reduce(tensor)
        return bool((tensor == total).all())

    def reduce(dtype: torch.dtype) -> bool:
        tensor = full(ELEMENTS, rank + 1, dtype)
        distributed.reduce(tensor, 0)
        return rank != 0 or bool((tensor == total).all())

    def broadcast(dtype: torch.dtype) -> bool:
        tensor = full(ELEMENTS, rank + 1, dtype)
        distributed.broadcast(tensor, ranks - 1)
        return bool((tensor == ranks).all())

    def all_gather_into_tensor(dtype: torch.dtype) -> bool:
        found = full(ranks * ELEMENTS, 0, dtype)
        work = distributed.all_gather_into_tensor(found, full(ELEMENTS, rank + 1, dtype), async_op=True)
        work.wait()
        return all(
            bool((found[index * ELEMENTS : (index + 1) * ELEMENTS] == index + 1).all()) for index in range(ranks)
        )

    def reduce_scatter_tensor(dtype: torch.dtype) -> bool:
        given = torch.cat([full(ELEMENTS, (rank + 1) * (index + 1), dtype) for index in range(ranks)])
        found = full(ELEMENTS, 0, dtype)
        distributed.reduce_scatter_tensor(found, given)
        return bool((found == total * (rank + 1)).all())

    def all_gather(dtype: torch.dtype) -> bool:
        found = [full(ELEMENTS, 0, dtype) for _ in range(ranks)]
        distributed.all_gather(found, full(ELEMENTS, rank + 1, dtype))
        return all(bool((tensor == item + 1).all()) for item, tensor in enumerate(found))

    for dtype in (torch.float32, torch.bfloat16):
        for call in (all_reduce, reduce, broadcast, all_gather_into_tensor, reduce_scatter_tensor, all_gather):
            yield f"{call.__name__} in {str(dtype).removeprefix('torch.')}", functools.partial(call, dtype)

    def barrier() -> bool:
        distributed.barrier()
        return True

    yield "barrier", barrier


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    report = Report(Path(job["reports"]))
    with report.recording():
        import torch

        join(job["mode"], job["device"])
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("nccl")
        nccl = torch.cuda.nccl.version() if job["device"] == "cuda" and job["mode"] != "gloo" else ()
        report.see({"nccl": ".".join(map(str, nccl)), "worked": []})
        for name, call in collectives(job["device"]):
            report.phase(name)
            if not call():
                raise ValueError(f"{name} gives a wrong result")
            report.content["seen"]["worked"].append(name)
        if job["device"] == "cuda":
            torch.cuda.synchronize()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
