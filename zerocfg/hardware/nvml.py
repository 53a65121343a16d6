"""NVIDIA devices through NVML (package ``nvidia-ml-py``, the optional extra ``gpu``).

Nothing here raises: what cannot be read becomes a note.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from zerocfg.hardware.catalogue import find_accelerator
from zerocfg.hardware.devices import Devices, ask, describe_error, described, imported, number, pcie_gb_s, rows, text
from zerocfg.models.hardware import Accelerator, Link

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from zerocfg.hardware.devices import Read

LINKS = 36  # NVML_NVLINK_MAX_LINKS
ANY = "any"  # the other end of a link to a switch, which leads to every device
# nvmlGpuTopologyLevel_t, with the names that nvidia-smi prints.
_PATHS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_GPU, _SWITCH = 0, 2  # nvmlIntNvLinkDeviceType_t
# GB/s of one link, both directions, by NVML_NVLINK_VERSION_*: 1.0; 2.0, 2.2, 3.0, 3.1, 4.0; 5.0.
_LINK_GB_S = {1: 40.0, 2: 50.0, 3: 50.0, 4: 50.0, 5: 50.0, 6: 50.0, 7: 100.0}


def load_nvml() -> ModuleType:
    """The ``pynvml`` module. Raises ImportError, also for a module that breaks while it is imported."""
    return imported(lambda: import_module("pynvml"), "pynvml")


def read_devices(load: Callable[[], ModuleType] = load_nvml) -> Devices:
    """All devices of this machine that NVML can read."""
    try:
        nvml = load()
    except ImportError:
        return Devices(notes=["NVIDIA devices were not looked for: install zerocfg[gpu]"])
    try:
        nvml.nvmlInit()
    except Exception as error:  # NVMLError has a subclass for each failure; ctypes adds OSError and others
        return Devices(notes=[f"NVIDIA devices could not be read: {describe_error(error)}"])
    try:
        return _read_all(nvml)
    except Exception as error:
        return Devices(notes=[f"NVIDIA devices could not be counted: {describe_error(error)}"])
    finally:
        ask(nvml, "nvmlShutdown")


def free_memory(load: Callable[[], ModuleType] = load_nvml) -> list[tuple[float, float]]:
    """Free and usable memory of each device in GiB; empty where NVML reads none."""
    try:
        nvml = load()
        nvml.nvmlInit()
    except Exception:  # as above
        return []
    try:
        found = []
        for index in range(nvml.nvmlDeviceGetCount()):
            info = _memory(nvml, nvml.nvmlDeviceGetHandleByIndex(index))
            found.append((info.free / (1 << 30), (info.total - (getattr(info, "reserved", 0) or 0)) / (1 << 30)))
        return found
    except Exception:
        return []
    finally:
        ask(nvml, "nvmlShutdown")


def _memory(nvml: ModuleType, handle: object) -> Any:
    """Memory of a device, with what the driver keeps for itself told apart where NVML can."""
    info = ask(nvml, "nvmlDeviceGetMemoryInfo", handle, getattr(nvml, "nvmlMemory_v2", None))
    return nvml.nvmlDeviceGetMemoryInfo(handle) if info is None else info


def _read_all(nvml: ModuleType) -> Devices:
    accelerators: list[Accelerator] = []
    handles, notes = [], []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            accelerators.append(_describe(nvml, handle))
        except Exception as error:
            notes.append(f"GPU {index} could not be read and is not counted: {describe_error(error)}")
            continue
        mode = ask(nvml, "nvmlDeviceGetMigMode", handle)
        if mode and mode[0]:
            notes.append(f"GPU {index} is divided (MIG): its instances have less memory than stated here")
        width, most = (ask(nvml, f"nvmlDeviceGet{which}PcieLinkWidth", handle) for which in ("Curr", "Max"))
        if width and most and width < most:
            notes.append(f"GPU {index} uses {width} of {most} PCIe lanes now: look at its slot, riser and power state")
        handles.append(handle)
    pci = [_address(ask(nvml, "nvmlDeviceGetPciInfo", handle)) for handle in handles]
    ends = [_far_ends(nvml, handle, pci) for handle in handles]
    paths = _paths(nvml, handles, pci, ends)
    cuda = number(ask(nvml, "nvmlSystemGetCudaDriverVersion_v2"))
    return Devices(
        accelerators,
        _link(nvml, accelerators, handles, ends, paths, notes),
        notes,
        rows(paths),
        pci,
        text(ask(nvml, "nvmlSystemGetDriverVersion")),
        f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
    )


def _describe(nvml: ModuleType, handle: object) -> Accelerator:
    name = text(nvml.nvmlDeviceGetName(handle)) or "NVIDIA device"
    info = _memory(nvml, handle)
    readable = info.total - (getattr(info, "reserved", 0) or 0)
    read: Read = {
        "usable_gib": round(readable / (1 << 30), 2),
        "pcie_generation": number(ask(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", handle)),
        "pcie_width": number(ask(nvml, "nvmlDeviceGetMaxPcieLinkWidth", handle)),
    }
    capability = ask(nvml, "nvmlDeviceGetCudaComputeCapability", handle)
    if capability is not None:
        read |= {
            "architecture": "{}.{}".format(*capability),
            "bf16": tuple(capability) >= (8, 0),
            "fp8": tuple(capability) >= (8, 9),
        }
    return described(name, "nvidia", info.total, read, "NVML")


def _address(info: object) -> str | None:
    """``00000000:3B:00.0`` as ``0000:3b:00.0``, the spelling of /sys."""
    bus = text(getattr(info, "busId", None))
    if bus is None or bus.count(":") != 2:
        return None
    domain, rest = bus.split(":", 1)
    return f"{domain[-4:]:0>4}:{rest}".lower()


def _far_ends(nvml: ModuleType, handle: object, pci: list[str | None]) -> list[str]:
    """Where the active NVLinks of a device lead: the address of another device, or ``ANY``."""
    found = []
    for link in range(LINKS):
        if not ask(nvml, "nvmlDeviceGetNvLinkState", handle, link):
            continue
        address = _address(ask(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link))
        if address is not None and address in pci:
            found.append(address)
        elif ask(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link) in (None, _SWITCH):
            found.append(ANY)
    return found


def _paths(nvml: ModuleType, handles: list[object], pci: list[str | None], ends: list[list[str]]) -> list[list[str]]:
    """Row by row, how each device reaches each other one."""
    matrix = []
    for item, handle in enumerate(handles):
        row = []
        for other, far in enumerate(handles):
            links = sum(end == ANY or end == pci[other] for end in ends[item])
            if item == other:
                row.append("X")
            elif links:
                row.append(f"NV{links}")
            else:
                row.append(_PATHS.get(ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", handle, far), "?"))
        matrix.append(row)
    return matrix


def _link(
    nvml: ModuleType,
    accelerators: list[Accelerator],
    handles: list[object],
    ends: list[list[str]],
    paths: list[list[str]],
    notes: list[str],
) -> Link | None:
    """The link between the devices of this machine, the slowest that a ring must use; None for fewer than two."""
    if len(accelerators) < 2:
        return None
    cells = [cell for row in paths for cell in row if cell != "X"]
    joined = [cell.startswith("NV") for cell in cells]
    kind = "nvlink" if all(joined) else "pcie"
    if any(joined) and not all(joined):
        notes.append("NVLink joins only some pairs of devices: a ring over all of them goes over PCIe")
    counts = sorted({len(far) for far in ends})
    if kind == "nvlink" and len(counts) > 1:
        notes.append(f"the devices have different numbers of active NVLinks ({counts[0]} to {counts[-1]})")
    known = find_accelerator(accelerators[0].name)
    stated = known[1] if known else None
    if kind == "nvlink":
        if stated and stated.kind == kind:
            return stated
        version = ask(nvml, "nvmlDeviceGetNvLinkVersion", handles[0], 0)
        one = _LINK_GB_S.get(version) if isinstance(version, int) else None
        return Link(kind=kind, gb_s=one * counts[0] if one and counts[0] else None)
    rates = [pcie_gb_s(device.pcie_generation, device.pcie_width) for device in accelerators]
    read = [rate for rate in rates if rate is not None]
    if read:
        return Link(kind=kind, gb_s=min(read))
    return stated if stated and stated.kind == kind else Link(kind=kind)
