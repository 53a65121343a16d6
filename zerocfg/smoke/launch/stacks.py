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
THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)
PATIENCE = 1.0  # seconds; a rank answers at once, also from inside a collective operation, unless it is stopped
SHOWN = 4
LIBRARY = re.compile(r".*/(?:site-packages|dist-packages|lib/python3\.\d+)/")
DULL = re.compile(
    r"/(?:runpy|contextlib|threading)\.py$|/torch/nn/modules/module\.py$|c10d_logger\.py$|/zerocfg_worker/|^<frozen "
)

# Where the main thread waits for autograd: what a backward pass does on a card is done in threads of autograd.
WAITS = re.compile(r"/torch/(?:autograd/(?:graph|__init__)|_tensor)\.py$")
STARTED_BY_PYTHON = "_bootstrap"
"""The outermost frame of Python's own threads; those of autograd begin with a hook."""

Frame = tuple[str, str, str]  # file, line, function


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
    return parse(path.read_bytes()[start:].decode(errors="replace"))


def parse(text: str) -> list[str]:
    """The frames that say where a process waits, the innermost first, from a dump of faulthandler.

    Those of the main thread; where that waits for a backward pass, before them those of the thread that computes it.
    """
    # faulthandler begins with the newest thread, so that the main thread is the last.
    *others, main = [_relevant(frames) for frames in _threads(text)] or [[]]
    if main and WAITS.search(main[0][0]):
        computing = [frames for frames in others if frames]
        # A hook may begin a backward pass itself (reentrant checkpointing) and wait for another thread in turn.
        computing.sort(key=lambda frames: WAITS.search(frames[0][0]) is not None)
        main = [*(computing[0] if computing else []), *main]
    return [f"{LIBRARY.sub('', file)}:{line} in {name}" for file, line, name in main]


def _threads(text: str) -> list[list[Frame]]:
    """The frames of the main thread, the last one, and of those that Python did not start."""
    parts = [FRAME.findall(part) for part in THREAD.split(text)]
    first, *threads = parts
    if not threads:  # of one thread alone, without a heading
        return [first]
    *others, main = threads
    return [*(frames for frames in others if frames and frames[-1][2] != STARTED_BY_PYTHON), main]


def _relevant(frames: list[Frame]) -> list[Frame]:
    return [frame for frame in frames if not DULL.search(frame[0])]


def shown(frames: list[str]) -> str:
    """The innermost frames, each before its caller; then the first frame in the user's own files, if any."""
    own = [frame for frame in frames[SHOWN:] if Path(frame).is_absolute()]
    return " < ".join([*frames[:SHOWN], *own[:1]])


def stopped(process: int) -> bool:
    """Whether the process was stopped (SIGSTOP, a debugger)."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in ("T", "t")
