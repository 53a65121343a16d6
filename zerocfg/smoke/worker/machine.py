"""What a rank runs with: releases of the libraries, and the name of its device."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .report import Report

LIBRARIES = ("torch", "accelerate", "transformers", "deepspeed", "trl")


def see_versions(report: Report) -> None:
    """The releases, before anything else is done. Nothing is imported for it."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    report.content["versions"] = versions


def see_device(report: Report, device: str) -> None:
    """The device's name, once the rank uses its own: asked before, torch opens the first card on every rank."""
    name = platform.processor()
    if device == "cuda":
        import torch

        name = torch.cuda.get_device_name(torch.cuda.current_device())
    report.see({"device_name": name})
