"""The releases that a rank runs with; the first thing that it reports."""

from __future__ import annotations

import importlib.metadata
import platform

LIBRARIES = ("torch", "accelerate", "transformers", "deepspeed", "trl")


def installed_versions() -> dict[str, str]:
    """The releases of Python and of the training libraries. Nothing is imported for it."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
