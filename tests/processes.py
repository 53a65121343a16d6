"""Whether processes are still there."""

from __future__ import annotations

import time
from pathlib import Path


def alive(process: int) -> bool:
    """Whether it runs. One that has ended and that its parent did not ask about is not alive."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def ends(*processes: int, within: float = 30) -> bool:
    """Whether all of them end in so many seconds."""
    until = time.monotonic() + within
    while any(map(alive, processes)) and time.monotonic() < until:
        time.sleep(0.2)
    return not any(map(alive, processes))
