"""No search for garbage while a repository is read."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """What is read is kept, syntax trees above all: to look for cycles among it, again and again, takes half of the
    time in a repository of 2,000 Python files."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
