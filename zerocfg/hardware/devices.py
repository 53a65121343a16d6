"""What the readers of devices (NVML, amdsmi, torch.xpu) have in common.

None of them raises: what cannot be read becomes a note.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zerocfg.hardware.catalogue import C2C, find_accelerator
from zerocfg.models.hardware import Accelerator, Link

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GIB = 1 << 30
# GB/s of one lane, both directions together, as vendors print it (before the few percent that the encoding takes).
_LANE = {1: 0.5, 2: 1.0, 3: 2.0, 4: 4.0, 5: 8.0, 6: 16.0}


@dataclass(frozen=True)
class Devices:
    """One accelerator for each readable device, how they are joined, and what went wrong."""

    accelerators: list[Accelerator] = field(default_factory=list)
    link: Link | None = None
    notes: list[str] = field(default_factory=list)
    topology: list[str] = field(default_factory=list)
    pci: list[str | None] = field(default_factory=list)
    """PCI addresses as /sys/bus/pci/devices spells them."""
    driver: str | None = None
    driver_cuda: str | None = None


def pcie_gb_s(generation: int | None, width: int | None) -> float | None:
    """Both directions together; None where one of them is not known."""
    lane = _LANE.get(generation or 0)
    return lane * width if lane and width else None


def described(
    name: str, vendor: str, total: int, read: dict[str, Any], library: str, known_as: str = ""
) -> Accelerator:
    """A device: what ``library`` read of it, the rest from the catalogue's entry for ``known_as`` or ``name``.

    ``total`` is the memory in bytes; ``read`` holds further fields, of which those that are None count as not read.
    """
    read = {key: value for key, value in read.items() if value is not None}
    read.setdefault("usable_gib", round(total / GIB, 2))
    link = pcie_gb_s(read.get("pcie_generation"), read.get("pcie_width"))
    found = find_accelerator(known_as or name)
    if found is None:
        if link is not None:
            read["host_gb_s"] = link
        size = round(total / GIB, 2)
        return Accelerator.model_validate(
            {"name": name, "vendor": vendor, "memory_gib": size, "origin": library, **read}
        )
    entry = found[0]
    if entry.usable_gib is not None:
        # The library may count memory that is not handed out to programs: the smaller figure is the safe one.
        read["usable_gib"] = min(read["usable_gib"], entry.usable_gib)
    if link is not None and entry.name not in C2C:
        read["host_gb_s"] = link
    return entry.model_copy(update={"name": name, **read, "origin": f"{library}; rates: {entry.origin}"})


def rows(paths: Sequence[Sequence[str]]) -> list[str]:
    """A matrix of paths as the profile keeps it; empty for one device, or when no path is known."""
    if len(paths) < 2 or all(cell in ("X", "?") for row in paths for cell in row):
        return []
    return [" ".join(row) for row in paths]


def ask(library: Any, function: str, *arguments: Any) -> Any:
    """What the function returns; None when this device, this driver or this release does not know the question."""
    try:
        return getattr(library, function)(*arguments)
    except Exception:
        return None


def text(value: Any) -> str | None:
    """Text of a library that gives bytes in some releases; None for nothing, and for what amdsmi writes for it."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return value.strip() or None if isinstance(value, str) and value != "N/A" else None


def number(value: Any) -> int | None:
    """A positive whole number, else None (amdsmi writes "N/A" where it knows nothing)."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def words(error: BaseException) -> str:
    """An error in one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def imported(load: Callable[[], Any], package: str) -> Any:
    """What ``load`` imports. Raises ImportError, also for a module that breaks while it is imported.

    amdsmi prints to standard output when it does not find its library; that place belongs to the profile.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return load()
    except (Exception, SystemExit) as error:
        raise ImportError(f"{package} cannot be imported: {words(error)}") from error
