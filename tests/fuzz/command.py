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


def _pipe(into: io.BytesIO) -> io.TextIOWrapper:
    """What a process has as standard output where it is a pipe in UTF-8: zerocfg puts a stream of its own around it."""
    return io.TextIOWrapper(into, encoding="utf-8", errors="strict", newline="\n", write_through=True)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def zerocfg(*words: str) -> Done:
    """Raises BrokenError for an internal error, a traceback, or a code that is none of 0, 1 and 2."""
    out, err, before, hook = io.BytesIO(), io.BytesIO(), sys.argv, sys.excepthook
    os.environ.pop("ZEROCFG_TRACEBACK", None)
    sys.argv = ["zerocfg", *words]
    try:
        with contextlib.redirect_stdout(_pipe(out)), contextlib.redirect_stderr(_pipe(err)):
            code = main.run()
            sys.stdout.flush()
            sys.stderr.flush()
            done = Done(code, _text(out.getvalue()), _text(err.getvalue()))
    finally:
        sys.argv, sys.excepthook = before, hook
    for sign in ("internal error", "Traceback (most recent call last)", "failed inside zerocfg", "an error of zerocfg"):
        for line in (*done.out.splitlines(), *done.err.splitlines()):
            if sign in line:
                raise BrokenError(f"zerocfg {' '.join(words)}: {line.strip()[:400]}")
    if code not in (0, 1, 2, 3):
        raise BrokenError(f"zerocfg {' '.join(words)}: exit code {code}")
    return done
