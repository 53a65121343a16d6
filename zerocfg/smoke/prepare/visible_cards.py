"""The devices that CUDA enumerates, by its rules for CUDA_VISIBLE_DEVICES and for MIG.

The rules are those of the CUDA programming guide (environment variables) and of NVIDIA's MIG user guide (CUDA device
enumeration): the list ends at its first invalid entry; a UUID may be shortened to a unique prefix; an entry that is
named twice leaves no device; a process sees one MIG slice at most, and beside it no whole card.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.budgets import DIGITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zerocfg.smoke.prepare.nvidia_smi import Card, Slice


@dataclass(frozen=True)
class Visible:
    """A whole card, or a ``slice`` of it."""

    card: Card
    slice: Slice | None = None

    @property
    def name(self) -> str:
        """The name as torch reports it."""
        return self.card.name if self.slice is None else f"{self.card.name} MIG {self.slice.profile}"

    @property
    def memory(self) -> int | None:
        return self.card.memory if self.slice is None else self.slice.memory

    @property
    def free(self) -> int | None:
        """Free bytes; of a slice all, because nvidia-smi counts only those of the whole card."""
        return self.card.free if self.slice is None else self.slice.memory


def visible_cards(cards: Sequence[Card], variable: str | None) -> list[Visible]:
    """The devices of a process; ``variable``: the value of CUDA_VISIBLE_DEVICES, None where it is not set."""
    if variable is None:
        found = [device for card in cards if (device := _of_card(card))]
    else:
        found = []
        words = [word.strip() for word in variable.split(",")]
        for word in words:
            # The first entry decides how all are named.
            device = _find(cards, word) if _prefix(word) == _prefix(words[0]) else None
            if device is None:
                break
            if device in found:
                return []
            found.append(device)
    sliced = [device for device in found if device.slice is not None]
    return sliced[:1] or found


def explain_none(cards: Sequence[Card], variable: str | None) -> str:
    """Why CUDA has no device though nvidia-smi lists cards."""
    empty = [card for card in cards if card.mig and not card.slices]
    if empty and (variable is None or variable.strip()):
        card = empty[0]
        return (
            f"MIG mode is enabled on card {card.index} ({card.name}) and no MIG device of it is visible, so CUDA has "
            "no device there; create one (nvidia-smi mig -cgi PROFILE -C) or disable MIG mode"
        )
    if variable is None:
        return "CUDA enumerates none of the cards that nvidia-smi lists"
    return f"CUDA_VISIBLE_DEVICES={variable!r} names no card of this machine"


def _prefix(word: str) -> str:
    return next((prefix for prefix in ("GPU-", "MIG-") if word.startswith(prefix)), "")


def _find(cards: Sequence[Card], word: str) -> Visible | None:
    """The device that an entry names; None for an invalid one."""
    number = re.match(r"\+?\d+", word)  # CUDA reads the digits that an entry begins with
    if number:
        card = next((card for card in cards if card.index == int(number[0][:DIGITS])), None)
        return None if card is None else _of_card(card)
    if word.startswith("GPU-"):
        matching = [card for card in cards if card.uuid.startswith(word)]
        return _of_card(matching[0]) if len(matching) == 1 else None
    if word.startswith("MIG-"):
        slices = [Visible(card, item) for card in cards for item in card.slices if item.uuid.startswith(word)]
        return slices[0] if len(slices) == 1 else None
    return None


def _of_card(card: Card) -> Visible | None:
    """The device that CUDA makes of a card: with MIG mode its first slice, if it has one."""
    if not card.mig:
        return Visible(card)
    return Visible(card, card.slices[0]) if card.slices else None
