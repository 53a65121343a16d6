"""A real terminal: a pseudo-terminal of some columns, with the command as its own process."""

from __future__ import annotations

import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT

LIMIT = 60
"""Seconds that a command may take."""
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
    fcntl, pty, termios = pytest.importorskip("fcntl"), pytest.importorskip("pty"), pytest.importorskip("termios")
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        process = subprocess.Popen(
            [sys.executable, "-c", f"{first}\nfrom zerocfg.__main__ import main\nmain()", *words],
            stdin=theirs,
            stdout=subprocess.DEVNULL if piped else theirs,
            stderr=theirs,
            cwd=cwd,
            env=environment(**env),
            start_new_session=True,
        )
    finally:
        os.close(theirs)
    try:
        data = _read(ours, time.monotonic() + LIMIT)
        return Seen(process.wait(LIMIT), data.decode(encoding, "surrogateescape"))
    finally:
        process.kill()
        os.close(ours)


def _read(terminal: int, until: float) -> bytes:
    """Everything until the other side is closed."""
    data = b""
    while time.monotonic() < until:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # Linux says so when nobody holds the other side any more
            break
        if not part:
            break
        data += part
    return data


@pytest.fixture
def terminal(tmp_path: Path) -> Callable[..., Seen]:
    """``terminal("lint", columns=40)`` in the folder of the test."""
    return lambda *words, **settings: in_terminal(*words, cwd=tmp_path, **settings)
