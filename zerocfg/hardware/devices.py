"""What the readers of devices (NVML, amdsmi, torch.xpu) have in common.

None of them raises: what cannot be read becomes a note.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from zerocfg.hardware.catalogue import C2C, find_accelerator
from zerocfg.models.hardware import Accelerator, Link

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

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


class Read(TypedDict, total=False):
    """What a library read of a device: fields of an accelerator. None counts as not read."""

    usable_gib: float
    architecture: str | None
    bf16: bool | None
    fp8: bool | None
    pcie_generation: int | None
    pcie_width: int | None


def pcie_gb_s(generation: int | None, width: int | None) -> float | None:
    """Both directions together; None where one of them is not known."""
    lane = _LANE.get(generation or 0)
    return lane * width if lane and width else None


def described(name: str, vendor: str, total: int, read: Read, library: str, known_as: str = "") -> Accelerator:
    """A device: what ``library`` read of it, the rest from the catalogue's entry for ``known_as`` or ``name``.

    ``total`` is the memory in bytes.
    """
    size = round(total / GIB, 2)
    usable = read.get("usable_gib", size)
    fields: dict[str, object] = {key: value for key, value in read.items() if value is not None}
    link = pcie_gb_s(read.get("pcie_generation"), read.get("pcie_width"))
    found = find_accelerator(known_as or name)
    if found is None:
        if link is not None:
            fields["host_gb_s"] = link
        fields |= {"name": name, "vendor": vendor, "memory_gib": size, "usable_gib": usable, "origin": library}
        return Accelerator.model_validate(fields)
    entry = found[0]
    if entry.usable_gib is not None:
        # The library may count memory that is not handed out to programs: the smaller figure is the safe one.
        usable = min(usable, entry.usable_gib)
    if link is not None and entry.name not in C2C:
        fields["host_gb_s"] = link
    fields |= {"name": name, "usable_gib": usable, "origin": f"{library}; rates: {entry.origin}"}
    return entry.model_copy(update=fields)


def rows(paths: Sequence[Sequence[str]]) -> list[str]:
    """A matrix of paths as the profile keeps it; empty for one device, or when no path is known."""
    if len(paths) < 2 or all(cell in ("X", "?") for row in paths for cell in row):
        return []
    return [" ".join(row) for row in paths]


def ask(library: ModuleType, function: str, *arguments: object) -> Any:
    """What the function returns; None when this device, this driver or this release does not know the question."""
    try:
        return getattr(library, function)(*arguments)
    except Exception:
        return None


def text(value: object) -> str | None:
    """Text of a library that gives bytes in some releases; None for nothing, and for what amdsmi writes for it."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return value.strip() or None if isinstance(value, str) and value != "N/A" else None


def number(value: object) -> int | None:
    """A positive whole number, else None (amdsmi writes "N/A" where it knows nothing)."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def describe_error(error: BaseException) -> str:
    """An error in one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def imported(load: Callable[[], ModuleType], package: str) -> ModuleType:
    """What ``load`` imports. Raises ImportError, also for a module that breaks while it is imported.

    amdsmi prints to standard output when it does not find its library; that place belongs to the profile.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return load()
    except (Exception, SystemExit) as error:
        raise ImportError(f"{package} cannot be imported: {describe_error(error)}") from error
