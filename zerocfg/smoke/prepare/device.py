"""Which device a smoke-run uses, determined without importing torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from zerocfg.hardware import linux
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.prepare.nvidia_smi import NvidiaSmiError, list_cards
from zerocfg.smoke.prepare.visible_cards import Visible, explain_none, visible_cards


@dataclass(frozen=True)
class Device:
    """``kind`` "cpu" or "cuda"; ``count`` cards (0 for cpu); ``memory`` and ``free``: bytes of the card with least.

    ``memory`` 0: not known. ``unified``: the cards have no memory of their own, both figures are the host's.
    ``shared``: several ranks run on the first card. ``note``: why no card is used where "auto" chose the processor.
    """

    kind: str
    name: str
    count: int = 0
    memory: int = 0
    free: int = 0
    shared: bool = False
    unified: bool = False
    note: str = ""

    @property
    def room(self) -> int | None:
        """Bytes that are free on a card, or its size where that is all that is known; None where nothing is."""
        return self.free or self.memory or None


def choose(wanted: str) -> Device:
    """The device for "cpu", "cuda" or "auto". Raises SmokeError when a card is wanted and none is here."""
    if wanted == "cpu":
        return Device("cpu", "cpu")
    try:
        cards = list_cards()
    except NvidiaSmiError as error:
        return _without_card(wanted, str(error))
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = visible_cards(cards, variable)
    if not devices:
        return _without_card(wanted, explain_none(cards, variable))
    unified = any(device.card.unified for device in devices)
    sizes = [_memory(device) for device in devices]
    memory, free = min(size for size, _ in sizes), min(free for _, free in sizes)
    return Device("cuda", devices[0].name, len(devices), memory, free, unified=unified)


def _without_card(wanted: str, why: str) -> Device:
    if wanted == "cuda":
        raise SmokeError(f"no NVIDIA card is seen here ({why}); use --device cpu")
    return Device("cpu", "cpu", note=why)


def _memory(device: Visible) -> tuple[int, int]:
    """Bytes of a device, and the free ones; 0 where they are not known."""
    if not device.card.unified:
        return device.memory or 0, device.free or 0
    total, available = linux.memory(Path("/"))
    limit = linux.memory_limit(Path("/"))
    sizes = (min(size, limit) if size and limit else size or limit or 0 for size in (total, available))
    memory, free = sizes
    return memory, free
