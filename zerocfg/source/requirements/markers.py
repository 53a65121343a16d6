"""Where the marker of a requirement holds: ``; sys_platform == "linux" and python_version < "3.10"``."""

from __future__ import annotations

from functools import lru_cache
from itertools import product

ENVIRONMENTS = frozenset(product(("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"), ("x86_64", "aarch64")))
"""Where trainings run, as (Python, machine); all of them on Linux."""


@lru_cache(maxsize=256)
def environments_where(marker: str) -> frozenset[tuple[str, str]]:
    """The environments in which a marker holds; all of them where it cannot be read."""
    # Imported here: few requirements have a marker, and this import costs a sixth of the time of a lint.
    from packaging.markers import Marker

    try:
        asked = Marker(marker)
        return frozenset(place for place in ENVIRONMENTS if asked.evaluate(_environment(*place)))
    except (ValueError, KeyError):  # what packaging raises derives from these
        return ENVIRONMENTS


def _environment(python: str, machine: str) -> dict[str, str]:
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
        "extra": "",
    }
