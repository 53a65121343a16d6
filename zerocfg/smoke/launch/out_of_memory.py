"""How often the kernel's out-of-memory killer struck, and whose memory an exception of a rank is about."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from zerocfg.smoke.worker.memory_errors import place as place

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")


def kills() -> dict[str, int]:
    """How many processes the kernel's out-of-memory killer ended so far, by counter: the control groups of this
    process, and the machine. Empty without counters."""
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
