"""A real terminal: a pseudo-terminal of some columns, with the command as its own process."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT

LIMIT = 60
"""Seconds after which a command that neither writes nor ends is killed."""
_PLAIN = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PYTHONIOENCODING", "PYTHONUTF8", "LC_ALL")


@dataclass(frozen=True)
class Seen:
    code: int
    out: str
    """What the terminal got; of a command whose output goes elsewhere, what it got of the errors."""

    @property
    def lines(self) -> list[str]:
        return self.out.replace("\r\n", "\n").splitlines()


def environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _PLAIN}
    return {**kept, "TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), **changes}


def in_terminal(
    *words: str, cwd: Path, columns: int = 80, encoding: str = "utf-8", piped: bool = False, first: str = "", **env: str
) -> Seen:
    """``zerocfg WORDS`` in a terminal; with ``piped`` only its standard error is one. ``first``: Python
    to run before.
    """
    script = f"{first}\nfrom zerocfg.__main__ import main\nmain()"
    command = [sys.executable, "-c", script, *words]
    with started(command, cwd, columns, piped=piped, **env) as (process, read):
        data = b""
        while part := read():
            data += part
        return Seen(process.wait(), data.decode(encoding, "surrogateescape"))


@contextmanager
def started(
    command: list[str], cwd: Path, columns: int = 80, *, piped: bool = False, **env: str
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], bytes]]]:
    """A process in a terminal of its own, and what waits for more that it writes: nothing once it has ended."""
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=subprocess.DEVNULL if piped else theirs,
            stderr=theirs,
            cwd=cwd,
            env=environment(**env),
            start_new_session=True,
        )
    finally:
        os.close(theirs)

    def read() -> bytes:
        try:
            return os.read(ours, 1 << 16)
        except OSError:  # Linux says so when nobody holds the other side any more
            return b""

    guard = threading.Timer(LIMIT, process.kill)
    guard.start()
    try:
        yield process, read
    finally:
        guard.cancel()
        process.kill()
        process.wait()
        os.close(ours)


@pytest.fixture
def terminal(tmp_path: Path) -> Callable[..., Seen]:
    """``terminal("lint", columns=40)`` in the folder of the test."""
    return lambda *words, **settings: in_terminal(*words, cwd=tmp_path, **settings)
