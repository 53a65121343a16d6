"""AMD devices through ``amdsmi``, the Python package of AMD SMI (it needs the ROCm library of the machine).

Nothing here raises: what cannot be read becomes a note. Units are those of amdsmi 6.3 to 7.0.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING

from zerocfg.hardware.catalogue import find_accelerator
from zerocfg.hardware.devices import Devices, ask, describe_error, described, imported, number, rows, text
from zerocfg.models.hardware import Link

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from zerocfg.hardware.devices import Read
    from zerocfg.models.hardware import Accelerator

# Architectures whose matrix units compute in these formats (ROCm: data types and precision support).
_BF16 = ("gfx908", "gfx90a", "gfx942", "gfx950")
_FP8 = ("gfx942", "gfx950")


def load_amdsmi() -> ModuleType:
    """The ``amdsmi`` module. Raises ImportError, also where the ROCm library is missing."""

    return imported(lambda: import_module("amdsmi"), "amdsmi")


def read_devices(load: Callable[[], ModuleType] = load_amdsmi) -> Devices:
    """All devices of this machine that AMD SMI can read."""
    try:
        smi = load()
    except ImportError as error:
        return Devices(
            notes=[f"AMD devices were not read: {error}; install AMD SMI and zerocfg[amd], or name them: 8xMI300X"]
        )
    try:
        smi.amdsmi_init()
    except Exception as error:
        return Devices(notes=[f"AMD devices could not be read: {describe_error(error)}"])
    try:
        return _read_all(smi)
    except Exception as error:
        return Devices(notes=[f"AMD devices could not be counted: {describe_error(error)}"])
    finally:
        ask(smi, "amdsmi_shut_down")


def _read_all(smi: ModuleType) -> Devices:
    accelerators: list[Accelerator] = []
    handles, notes = [], []
    for index, handle in enumerate(smi.amdsmi_get_processor_handles()):
        try:
            accelerators.append(_describe(smi, handle))
        except Exception as error:
            notes.append(f"AMD device {index} could not be read and is not counted: {describe_error(error)}")
            continue
        handles.append(handle)
    types = getattr(smi, "AmdSmiLinkType", None)
    xgmi, pcie = (getattr(types, f"AMDSMI_LINK_TYPE_{name}", object()) for name in ("XGMI", "PCIE"))
    matrix = []
    for item in handles:
        row = []
        for other in handles:
            kind = (ask(smi, "amdsmi_topo_get_link_type", item, other) or {}).get("type")
            row.append("X" if item is other else "XGMI" if kind == xgmi else "PCIE" if kind == pcie else "?")
        matrix.append(row)
    driver = ask(smi, "amdsmi_get_gpu_driver_info", handles[0]) if handles else None
    return Devices(
        accelerators,
        _link(accelerators, matrix),
        notes,
        rows(matrix),
        [(text(ask(smi, "amdsmi_get_gpu_device_bdf", handle)) or "").lower() or None for handle in handles],
        text((driver or {}).get("driver_version")),
    )


def _describe(smi: ModuleType, handle: object) -> Accelerator:
    asic = smi.amdsmi_get_gpu_asic_info(handle)
    name = text(asic.get("market_name")) or "AMD device"
    total = smi.amdsmi_get_gpu_memory_total(handle, smi.AmdSmiMemoryType.VRAM)  # bytes
    slot = (ask(smi, "amdsmi_get_pcie_info", handle) or {}).get("pcie_static", {})
    architecture = text(asic.get("target_graphics_version"))
    read: Read = {
        "architecture": architecture,
        "bf16": architecture in _BF16 if architecture else None,
        "fp8": architecture in _FP8 if architecture else None,
        "pcie_generation": number(slot.get("pcie_interface_version")),
        "pcie_width": number(slot.get("max_pcie_width")),
    }
    return described(name, "amd", total, read, "AMD SMI", known_as=_series(name))


def _series(name: str) -> str:
    """``AMD Instinct MI300X OAM`` as ``MI300X``: market names carry words that the catalogue does not know."""
    found = re.search(r"MI\d{2,3}[AXP]?", name, re.IGNORECASE)
    return found[0].upper() if found else ""


def _link(accelerators: list[Accelerator], matrix: list[list[str]]) -> Link | None:
    if len(accelerators) < 2:
        return None
    cells = {cell for row in matrix for cell in row if cell != "X"}
    if cells == {"XGMI"}:
        known = find_accelerator(_series(accelerators[0].name))
        stated = known[1] if known else None
        return stated if stated and stated.kind == "infinity-fabric" else Link(kind="infinity-fabric")
    return Link(kind="pcie") if "PCIE" in cells else None
