"""Whether memory ran out, by a rank's exception or by the kernel's counters."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")

_CARD = re.compile(r"(CUDA|HIP|XPU) out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED", re.IGNORECASE)
_HOST = re.compile(r"DefaultCPUAllocator|can't allocate memory|Cannot allocate memory|std::bad_alloc", re.IGNORECASE)


def place(kind: str, text: str) -> str | None:
    """Which memory was too small by an exception: "card", "host", or None for other exceptions."""
    if kind == "OutOfMemoryError" or _CARD.search(text):
        return "card"
    return "host" if kind == "MemoryError" or _HOST.search(text) else None


def kills() -> dict[str, int]:
    """How many processes the kernel's out-of-memory killer ended so far, by who counts: the groups of this process,
    and the machine. Empty where nobody counts."""
    found: dict[str, int] = {}
    for source in _sources():
        with contextlib.suppress(OSError):
            match = re.search(r"^oom_kill (\d+)$", source.read_text(), re.MULTILINE)
            if match:
                found[str(source)] = int(match[1])
    return found


def _sources() -> list[Path]:
    sources = [PROC / "vmstat"]
    with contextlib.suppress(OSError):
        for line in (PROC / "self" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                sources += [GROUPS / path.lstrip("/") / "memory.events", GROUPS / "memory.events"]
            elif "memory" in controllers.split(","):
                root = GROUPS / "memory"
                sources += [root / path.lstrip("/") / "memory.oom_control", root / "memory.oom_control"]
    return sources


def struck(before: dict[str, int]) -> bool:
    """Whether any count rose since ``before``."""
    return any(count > before.get(name, count) for name, count in kills().items())
