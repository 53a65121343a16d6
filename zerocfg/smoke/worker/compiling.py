"""Operators that a rank compiles: minutes the first time, and none of the training that the limit is for.

torch compiles what DeepSpeed asks for in one function; while it runs, a file beside the ranks' reports says so. A rank
that waits for another one's compilation is in the same function.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from pathlib import Path
from typing import Any

PREFIX = "compiling-"


def follow_extensions(folder: Path) -> None:
    """`follow` torch's own module. Raises ImportError without setuptools, which that module needs."""
    follow(importlib.import_module("torch.utils.cpp_extension"), folder)


def follow(module: Any, folder: Path) -> None:
    """From here on this process tells, in a file of ``folder`` with the operator's name, that it compiles. ``module``:
    torch.utils.cpp_extension."""
    original = module._jit_compile

    @functools.wraps(original)
    def compile_(name: str, *arguments: object, **named: object) -> object:
        mark = folder / f"{PREFIX}{os.getpid()}"
        with contextlib.suppress(OSError):
            mark.write_text(name)
        try:
            return original(name, *arguments, **named)
        finally:
            with contextlib.suppress(OSError):
                mark.unlink(missing_ok=True)

    module._jit_compile = compile_
