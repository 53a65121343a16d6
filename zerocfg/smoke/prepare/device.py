"""Which device a smoke-run uses, determined without importing torch."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass

from zerocfg.smoke.model.error import SmokeError


@dataclass(frozen=True)
class Device:
    """``kind`` "cpu" or "cuda"; ``count`` cards (0 for cpu); ``memory`` and ``free``: bytes of the card with least.

    ``shared``: several ranks run on the first card.
    """

    kind: str
    name: str
    count: int = 0
    memory: int = 0
    free: int = 0
    shared: bool = False


def choose(wanted: str) -> Device:
    """The device for "cpu", "cuda" or "auto". Raises SmokeError when a card is wanted and none is here."""
    cards = [] if wanted == "cpu" else _cards()
    if cards:
        least, free = min(memory for _, memory, _ in cards), min(free for _, _, free in cards)
        return Device("cuda", cards[0][0], len(cards), least, free)
    if wanted == "cuda":
        raise SmokeError("no NVIDIA card is seen here (nvidia-smi lists none); use --device cpu")
    return Device("cpu", "cpu")


def _cards() -> list[tuple[str, int, int]]:
    """(name, bytes, free bytes) of every card that a process may use."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, "--query-gpu=name,memory.total,memory.free", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    cards = []
    for line in answer.splitlines():
        name, *sizes = (word.strip() for word in line.rsplit(",", 2))
        if len(sizes) == 2 and sizes[0].isdigit():
            free = sizes[1] if sizes[1].isdigit() else sizes[0]  # some cards do not tell it
            cards.append((name, int(sizes[0]) * 2**20, int(free) * 2**20))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return cards if visible is None else _visible(cards, visible)


def _visible(cards: list[tuple[str, int, int]], words: str) -> list[tuple[str, int, int]]:
    """Those that CUDA_VISIBLE_DEVICES leaves; of names that are no numbers (UUIDs) only how many they are is used."""
    wanted = [word.strip() for word in words.split(",")]
    if all(word.isdigit() for word in wanted):
        return [cards[int(word)] for word in wanted if int(word) < len(cards)]
    return cards[: len([word for word in wanted if word not in ("", "-1")])]
