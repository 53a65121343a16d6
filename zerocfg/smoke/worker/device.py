"""The name of a rank's device."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .report import Report


def see_device(report: Report, device: str) -> None:
    """Report the name, once the rank uses its own device: asked before, torch opens the first card on every rank."""
    name = platform.processor()
    if device == "cuda":
        import torch

        name = torch.cuda.get_device_name(torch.cuda.current_device())
    report.see({"device_name": name})
