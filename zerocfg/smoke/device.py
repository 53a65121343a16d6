"""Which device a smoke-run uses, found out without importing torch."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass

from zerocfg.smoke.folder import SmokeError


@dataclass(frozen=True)
class Device:
    """``kind`` "cpu" or "cuda"; ``count`` cards (0 for cpu); ``memory`` bytes of the smallest card."""

    kind: str
    name: str
    count: int = 0
    memory: int = 0


def choose(wanted: str) -> Device:
    """The device for "cpu", "cuda" or "auto". Raises SmokeError when a card is wanted and none is here."""
    cards = [] if wanted == "cpu" else _cards()
    if cards:
        return Device("cuda", cards[0][0], len(cards), min(memory for _, memory in cards))
    if wanted == "cuda":
        raise SmokeError("no NVIDIA card is seen here (nvidia-smi lists none); use --device cpu")
    return Device("cpu", "cpu")


def _cards() -> list[tuple[str, int]]:
    """(name, bytes) of every card that a process may use."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    cards = []
    for line in answer.splitlines():
        name, _, memory = line.rpartition(",")
        if memory.strip().isdigit():
            cards.append((name.strip(), int(memory) * 2**20))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        cards = cards[: len([word for word in visible.split(",") if word.strip() not in ("", "-1")])]
    return cards
