"""Where hanging ranks are: they write their stack on a signal."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from zerocfg.smoke.worker.report_schema import RankReport

FRAME = re.compile(r'File "([^"]+)", line (\d+) in (\S+)')
PATIENCE = 1.0  # seconds; a rank answers at once, also from inside a collective operation, unless it is stopped
SHOWN = 4
LIBRARY = re.compile(r".*/(?:site-packages|dist-packages|lib/python3\.\d+)/")
DULL = re.compile(
    r"/(?:runpy|contextlib|threading)\.py$|/torch/nn/modules/module\.py$|c10d_logger\.py$|/zerocfg_worker/|^<frozen "
)


def ask(folder: Path, reports: list[RankReport], allowed: Collection[int]) -> dict[int, list[str]]:
    """The frames of each rank that answers, the innermost first, as "torch/utils/file_baton.py:49 in wait".

    Only processes that are ``allowed`` and that said where they would write (``rank<N>.stack``) are asked.
    """
    asked: dict[int, tuple[Path, int]] = {}
    if not hasattr(signal, "SIGUSR1"):
        return {}
    for rank, report in enumerate(reports):
        path = folder / f"rank{rank}.stack"
        if report.get("pid") in allowed and path.is_file():
            with contextlib.suppress(OSError):
                asked[rank] = (path, path.stat().st_size)
                os.kill(report["pid"], signal.SIGUSR1)
    deadline = time.monotonic() + PATIENCE
    while asked and time.monotonic() < deadline:
        time.sleep(0.05)
        if all(path.stat().st_size > size for path, size in asked.values()):
            time.sleep(0.05)  # the rest of it
            break
    return {rank: frames for rank, (path, size) in asked.items() if (frames := _frames(path, size))}


def _frames(path: Path, start: int) -> list[str]:
    text = path.read_bytes()[start:].decode(errors="replace")
    found = [(file, line, name) for file, line, name in FRAME.findall(text) if not DULL.search(file)]
    return [f"{LIBRARY.sub('', file)}:{line} in {name}" for file, line, name in found]


def shown(frames: list[str]) -> str:
    """The innermost frames, each before its caller; then the first frame in the user's own files, if any."""
    own = [frame for frame in frames[SHOWN:] if Path(frame).is_absolute()]
    return " < ".join([*frames[:SHOWN], *own[:1]])


def stopped(process: int) -> bool:
    """Whether somebody stopped the process (SIGSTOP, a debugger)."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in ("T", "t")
