"""The cards of this machine and their MIG slices, as nvidia-smi lists them."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field

REQUIRED = ("index", "uuid", "name", "memory.total", "memory.free")
OPTIONAL = ("mig.mode.current",)
"""Fields that drivers before R450 do not know."""
MIB = 1 << 20
GB = 10**9
TIMEOUT = 30.0
"""Seconds for one call; without the persistence daemon the driver loads first."""
# Where the driver keeps no memory of its own for the card (GB10, Jetson), the documented answer is "[N/A]"; older
# drivers write "[Not Supported]". "[Unknown Error]" and the like mean that a card has memory that cannot be read.
_WITHOUT_MEMORY = re.compile(r"\[?(N/A|Not Supported)\]?", re.IGNORECASE)
_UNKNOWN_FIELD = re.compile(r'Field "([\w.]+)" is not a valid field')
_GPU = re.compile(r"^GPU (\d+): (.+) \(UUID: ([^)]+)\)")
# Compute instances of a slice carry its memory too: "1c.3g.20gb"; attributes follow it: "1g.10gb+me".
_SLICE = re.compile(r"^\s+MIG ((?:\d+c\.)?\d+g\.(\d+)gb\S*)\s+Device\s+\d+: \(UUID: ([^)]+)\)")


class NvidiaSmiError(Exception):
    """Why nvidia-smi lists nothing."""


@dataclass(frozen=True)
class Slice:
    """A MIG device; ``memory``: bytes by the name of its profile, whose gigabytes are read as decimal ones."""

    uuid: str
    profile: str
    memory: int


@dataclass(frozen=True)
class Card:
    """``memory`` and ``free`` in bytes, None where nvidia-smi does not know them; all of the memory where it knows only
    that.

    ``unified``: the card has no memory of its own and uses the host's. ``mig``: MIG mode is on, so that CUDA sees
    ``slices`` in place of the card.
    """

    index: int
    uuid: str
    name: str
    memory: int | None
    free: int | None
    unified: bool = False
    mig: bool = False
    slices: list[Slice] = field(default_factory=list)


def list_cards() -> list[Card]:
    """All cards, in the order of their index. Raises NvidiaSmiError."""
    program = shutil.which("nvidia-smi")
    if program is None:
        raise NvidiaSmiError("there is no nvidia-smi on the PATH")
    names = [*REQUIRED, *OPTIONAL]
    while True:
        answer = _call([program, f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"])
        unknown = {*_UNKNOWN_FIELD.findall(answer.stdout + answer.stderr)}.intersection(names, OPTIONAL)
        if not unknown:
            break
        names = [name for name in names if name not in unknown]
    cards = [card for line in answer.stdout.splitlines() if (card := _card(line, len(names) > len(REQUIRED)))]
    if not cards:
        said = " ".join((answer.stdout + " " + answer.stderr).split())[:200]
        raise NvidiaSmiError(f"nvidia-smi lists none{f': {said}' if said else ''}")
    if any(card.mig for card in cards):
        slices = _slices(_call([program, "-L"]).stdout)
        for card in cards:
            card.slices.extend(slices.get(card.uuid, []) if card.mig else [])
    return sorted(cards, key=lambda card: card.index)


def _call(words: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=TIMEOUT, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise NvidiaSmiError(f"nvidia-smi cannot be run: {error}") from None


def _card(line: str, with_mode: bool) -> Card | None:
    """A line of the query; None for other lines. A name may hold commas."""
    left = [word.strip() for word in line.split(",", 2)]
    if len(left) < 3 or not left[0].isdecimal():
        return None
    name, *rest = (word.strip() for word in left[2].rsplit(",", 3 if with_mode else 2))
    if len(rest) < 2:
        return None
    memory, free = (int(word) * MIB if word.isdecimal() else None for word in rest[:2])
    mig = with_mode and rest[-1] == "Enabled"
    unified = memory is None and not mig and _WITHOUT_MEMORY.fullmatch(rest[0]) is not None
    return Card(int(left[0]), left[1], name, memory, memory if free is None else free, unified, mig)


def _slices(text: str) -> dict[str, list[Slice]]:
    """MIG devices by the UUID of their card, from ``nvidia-smi -L``."""
    found: dict[str, list[Slice]] = {}
    card = ""
    for line in text.splitlines():
        if gpu := _GPU.match(line):
            card = gpu[3]
        elif mig := _SLICE.match(line):
            found.setdefault(card, []).append(Slice(mig[3], mig[1], int(mig[2]) * GB))
    return found
