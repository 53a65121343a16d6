"""The error report of a rank, and its stack on request."""

from __future__ import annotations

import faulthandler
import re
import signal
import sysconfig
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from .report_schema import Failure

SHOWN = 6
"""Frames of a traceback that are reported."""
_LIBRARY = tuple(dict.fromkeys(sysconfig.get_paths()[name] for name in ("purelib", "platlib", "stdlib", "platstdlib")))
_OWN = str(Path(__file__).parent)
# Frames of call chains that do not help to find the cause.
_DULL = re.compile(r"^<frozen |[/\\](runpy|contextlib)\.py$|[/\\]torch[/\\]nn[/\\]modules[/\\]module\.py$")


def describe(error: BaseException) -> Failure:
    """An error as the report states it.

    The lines of its traceback are the last frames in the user's own files, then the innermost ones of the libraries,
    then the exception. Frames of this program and of mere call chains are left out.
    """
    try:
        every = traceback.extract_tb(error.__traceback__)
        frames = [item for item in every if _relevant(item.filename)] or every
        own = [frame for frame in frames if not frame.filename.startswith(_LIBRARY)][-SHOWN // 2 :]
        last = [frame for frame in frames if frame not in own][-(SHOWN - len(own)) :]
        shown = [frame for frame in frames if frame in own or frame in last]
        lines = [line for item in traceback.format_list(shown) for line in item.splitlines() if set(line) - set(" ^~")]
        lines += [line[:500] for line in "".join(traceback.format_exception_only(type(error), error)).splitlines()[:12]]
        text = str(error)
    except Exception as second:  # an exception whose own text cannot be made
        lines, text = [], f"(its text cannot be made: {type(second).__name__})"
    return {"type": type(error).__name__, "text": text, "time": time.time(), "traceback": lines}


def _relevant(file: str) -> bool:
    return not file.startswith(_OWN) and not _DULL.search(file)


def dump_stack_on_signal(path: Path) -> TextIO | None:
    """Write the stacks of all threads into the file on SIGUSR1, also inside an operation that never ends.

    A backward pass on a card is computed in threads of autograd, while the main thread only waits for them. The open
    file, to be kept; None where the signal does not exist or is in use.
    """
    wanted = getattr(signal, "SIGUSR1", None)
    if wanted is None or signal.getsignal(wanted) is not signal.SIG_DFL:
        return None
    file = path.open("w")
    faulthandler.register(wanted, file=file, all_threads=True)
    return file
