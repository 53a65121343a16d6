"""Verdicts as launches give them, made by hand: no library runs."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from zerocfg.smoke.judge.verdict import Verdict
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import RunFolder
from zerocfg.smoke.prepare.reduce import reduce

MIB = 1 << 20
CPU = Device("cpu", "cpu")
H100 = Device("cuda", "NVIDIA H100 80GB HBM3", 2, 80 << 30)


def report(rank: int, peaks: dict[str, int], card: bool = False, **more: Any) -> dict[str, Any]:
    """A rank with these peaks (MiB) by phase, of torch's allocator on a card, else resident."""
    memory = {}
    for phase, size in peaks.items():
        memory[phase] = {"seconds": 0.5, "times": 1, "device": None, "pinned": None, "rss": size * MIB}
        memory[phase] |= {"allocated": size * MIB if card else None, "reserved": 2 * size * MIB if card else None}
    points = [[0.5 * at, size * MIB, phase] for at, (phase, size) in enumerate(peaks.items())]
    found = {
        "rank": rank,
        "done": True,
        "seen": {"world_size": 2, "micro_batch": 2, "gradient_accumulation_steps": 2, "dtype": "bf16"},
        "losses": [4.2, 4.0],
        "step_seconds": [2.0, 0.5, 0.4, 0.6],
        "memory": memory,
        "memory_start": {"rss": 100 * MIB},
        "timeline": points if rank == 0 else None,
    }
    return found | more


def verdict(
    run: RunFolder, tmp_path: Path, reports: list[dict[str, Any]], device: Device = CPU, **ended: Any
) -> Verdict:
    """What `play` gives for these reports."""
    reduced = reduce(copy.deepcopy(run), device, len(reports), tmp_path)
    return Verdict(run, device, reduced, Outcome(reports, seconds=7.0, **ended))


def no_memory(rank: int, place: str, phase: str = "forward") -> dict[str, Any]:
    """A rank that found none, in torch's words."""
    text = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
    if place == "card":
        text = "CUDA out of memory. Tried to allocate 2.00 GiB."
    kind = "OutOfMemoryError" if place == "card" else "RuntimeError"
    error = {"type": kind, "text": text, "time": 1.0, "traceback": []}
    return report(rank, {"init": 200, phase: 300}, place == "card", error=error, done=False, step_seconds=[])
