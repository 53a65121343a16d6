"""A command of zerocfg in this process, as a user gets it: exit code and both streams."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from dataclasses import dataclass

from tests.fuzz.campaign import BrokenError
from zerocfg.cli import main


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


class _Stream(io.TextIOWrapper):
    """A pipe of a terminal in UTF-8, which remembers."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", errors="surrogateescape", newline="\n", write_through=True)

    @property
    def text(self) -> str:
        data = self.buffer.getvalue() if isinstance(self.buffer, io.BytesIO) else b""
        return data.decode("utf-8", "surrogateescape")


def zerocfg(*words: str) -> Done:
    """Raises BrokenError for an internal error, a traceback, or a code that is none of 0, 1 and 2."""
    out, err, before, hook = _Stream(), _Stream(), sys.argv, sys.excepthook
    os.environ.pop("ZEROCFG_TRACEBACK", None)
    sys.argv = ["zerocfg", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main.run()
    finally:
        sys.argv, sys.excepthook = before, hook
    done = Done(code, out.text, err.text)
    for sign in ("internal error", "Traceback (most recent call last)", "failed inside zerocfg"):
        for line in (*done.out.splitlines(), *done.err.splitlines()):
            if sign in line:
                raise BrokenError(f"zerocfg {' '.join(words)}: {line.strip()[:400]}")
    if code not in (0, 1, 2):
        raise BrokenError(f"zerocfg {' '.join(words)}: exit code {code}")
    return done
