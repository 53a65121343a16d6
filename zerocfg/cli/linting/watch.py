"""``lint --watch``: lint again whenever a file changes that could matter."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from zerocfg.run.discover import walk

PAUSE = 0.5
"""Seconds between two looks at the files."""

State = dict[str, tuple[int, int]]
"""By path: time of the last change (ns) and size (bytes)."""


def watch(targets: Sequence[Path], lint: Callable[[], object], pause: float = PAUSE) -> None:
    """Call ``lint`` now and after every change, until interrupted."""
    for _ in changes(targets, pause):
        lint()
        gc.collect()  # a command hardly ever does, and this one goes on


def changes(targets: Sequence[Path], pause: float = PAUSE) -> Iterator[State]:
    """The state of the files at once, and again each time after it changed and came to rest."""
    reported: State | None = None
    while True:
        seen = state(targets)
        if seen != reported:
            # Editors write a file in several steps: wait until two looks agree.
            time.sleep(pause / 5)
            if reported is not None and state(targets) != seen:
                continue
            reported = seen
            yield seen
        time.sleep(pause)


def state(targets: Sequence[Path]) -> State:
    """What can change the result: configs and launch scripts below the folders, and beside single files."""
    found: State = {}
    folders = {target if target.is_dir() else target.parent for target in targets}
    files = [target for target in targets if not target.is_dir()]
    for path in (*(file for folder in sorted(folders) for file in walk(folder)), *files):
        try:
            about = path.stat()
        except OSError:
            continue  # it went away since it was listed
        found[str(path)] = (about.st_mtime_ns, about.st_size)
    return found
