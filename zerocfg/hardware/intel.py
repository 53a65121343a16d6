"""Intel GPUs through ``torch.xpu``, asked in a process of its own: importing torch takes seconds.

Nothing here raises. ``torch.xpu`` says neither how devices are joined nor what their slots give.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.hardware.devices import Devices, described, text
from zerocfg.hardware.linux import read_text
from zerocfg.hardware.measure import MeasureError, ask, has_torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerocfg.hardware.devices import Read
    from zerocfg.hardware.measuring.messages import XpuDevice

INTEL = "0x8086"
LIMIT = 60.0  # seconds
_NOT_READ = "there is an Intel graphics device, which is not described"


def is_here(root: Path) -> bool:
    """Whether a graphics device of Intel is there that could be asked (integrated ones are, too)."""
    nodes = (root / "sys/class/drm").glob("renderD*/device/vendor")
    return any((read_text(node) or "").strip() == INTEL for node in nodes)


def built_for_xpu() -> bool:
    """Whether the installed torch could see such a device; read from its text, for an import takes seconds."""
    found = importlib.util.find_spec("torch")
    version = read_text(Path(found.origin).with_name("version.py")) if found and found.origin else None
    return version is None or re.search(r"^xpu\b.*=\s*None", version, re.MULTILINE) is None


def ask_torch(progress: Callable[[str], None]) -> list[XpuDevice]:
    """What the devices' own process found. Raises MeasureError."""
    if not has_torch():
        raise MeasureError("torch is not installed in this Python")
    if not built_for_xpu():
        raise MeasureError("this torch is built without XPU support")
    return ask({"task": "devices"}, [{}], progress, LIMIT)["devices"]


def read_devices(
    progress: Callable[[str], None], found: Callable[[Callable[[str], None]], list[XpuDevice]] = ask_torch
) -> Devices:
    """All devices that torch.xpu sees."""
    try:
        devices = found(progress)
    except MeasureError as error:
        return Devices(notes=[f"{_NOT_READ}: {error}"])
    if not devices:
        return Devices(notes=[f"{_NOT_READ}: torch.xpu does not see it"])
    accelerators = []
    for device in devices:
        # "Intel(R) Data Center GPU Max 1550"
        series = re.search(r"Max 1\d{3}", device["name"])
        name = re.sub(r"\((?:R|TM)\)", "", device["name"])
        read: Read = {"bf16": device["bf16"]}
        known = series[0].replace(" ", "") if series else ""
        accelerators.append(described(name, "intel", device["total"], read, "torch.xpu", known_as=known))
    return Devices(accelerators, pci=[None] * len(devices), driver=text(devices[0]["driver"]))
