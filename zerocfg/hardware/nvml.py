"""NVIDIA devices through NVML (package ``nvidia-ml-py``, the optional extra ``gpu``).

Nothing here raises: what cannot be read becomes a note.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zerocfg.hardware.catalogue import find_accelerator
from zerocfg.models.hardware import Accelerator, Link

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 1 << 30
LINKS = 18  # as many NVLink connections as one device has had so far


@dataclass(frozen=True)
class Devices:
    """What NVML found: one accelerator for each readable device, and what went wrong."""

    accelerators: list[Accelerator]
    link: Link | None
    notes: list[str]


def load_nvml() -> Any:
    """The ``pynvml`` module. Raises ImportError, also for a module that breaks while it is imported."""
    try:
        import pynvml
    except Exception as error:
        raise ImportError(f"pynvml cannot be imported: {error}") from error
    return pynvml


def read_devices(load: Callable[[], Any] = load_nvml) -> Devices:
    """All devices of this machine that NVML can read."""
    try:
        nvml = load()
    except ImportError:
        return Devices([], None, ["NVIDIA devices were not looked for: install zerocfg[gpu]"])
    try:
        nvml.nvmlInit()
    except Exception as error:  # NVMLError has a subclass for each failure; ctypes adds OSError and others
        return Devices([], None, [f"NVIDIA devices could not be read: {_words(error)}"])
    try:
        return _read_all(nvml)
    except Exception as error:
        return Devices([], None, [f"NVIDIA devices could not be counted: {_words(error)}"])
    finally:
        _attempt(nvml.nvmlShutdown)


def _read_all(nvml: Any) -> Devices:
    accelerators, notes, linked = [], [], []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            accelerator = _describe(nvml, handle)
        except Exception as error:
            notes.append(f"GPU {index} could not be read and is not counted: {_words(error)}")
            continue
        mode = _attempt(nvml.nvmlDeviceGetMigMode, handle)
        if mode and mode[0]:
            notes.append(f"GPU {index} is divided (MIG): its instances have less memory than stated here")
        accelerators.append(accelerator)
        linked.append(any(_attempt(nvml.nvmlDeviceGetNvLinkState, handle, link) for link in range(LINKS)))
    return Devices(accelerators, _link(accelerators, linked), notes)


def _describe(nvml: Any, handle: Any) -> Accelerator:
    name = nvml.nvmlDeviceGetName(handle)
    name = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    info = _attempt(nvml.nvmlDeviceGetMemoryInfo, handle, getattr(nvml, "nvmlMemory_v2", None))
    if info is None:
        info = nvml.nvmlDeviceGetMemoryInfo(handle)
    readable = (info.total - (getattr(info, "reserved", 0) or 0)) / GIB
    capability = _attempt(nvml.nvmlDeviceGetCudaComputeCapability, handle)
    known = find_accelerator(name)
    measured: dict[str, Any] = {"name": name, "usable_gib": round(readable, 2), "origin": "NVML"}
    if capability is not None:
        measured |= {
            "architecture": "{}.{}".format(*capability),
            "bf16": tuple(capability) >= (8, 0),
            "fp8": tuple(capability) >= (8, 9),
        }
    if known is None:
        return Accelerator.model_validate({"vendor": "nvidia", "memory_gib": round(info.total / GIB, 2), **measured})
    entry = known[0]
    if entry.usable_gib is not None:
        # NVML may count memory that CUDA does not hand out: the smaller figure is the safe one.
        measured["usable_gib"] = min(measured["usable_gib"], entry.usable_gib)
    return entry.model_copy(update={**measured, "origin": f"NVML; rates from the {entry.origin}"})


def _link(accelerators: list[Accelerator], linked: list[bool]) -> Link | None:
    """The link between the devices of this machine; None for fewer than two."""
    if len(accelerators) < 2:
        return None
    known = find_accelerator(accelerators[0].name)
    stated = known[1] if known else None
    kind = "nvlink" if all(linked) else "pcie"
    return stated if stated and stated.kind == kind else Link(kind=kind)


def _attempt(read: Callable[..., Any], *arguments: Any) -> Any:
    """What ``read`` returns, or None when this device or this driver does not support the question."""
    try:
        return read(*arguments)
    except Exception:
        return None


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
