"""A command as a process of its own: forked from this one, which has zerocfg imported, or started.

A fork begins at the entry point of the ``zerocfg`` command, with nothing in its caches: this process only imports.
It saves the 0.3 s that Python and the imports take, thirty times for each checkout.
"""

from __future__ import annotations

import atexit
import gc
import locale
import os
import pkgutil
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, NoReturn

LIMIT = 300
"""Seconds on the clock after which a command is killed."""
NOT_IMPORTED = frozenset({"smoke", "tracer", "measuring", "preflight", "cluster", "lsp", "pytest_plugin", "node"})
"""Packages of zerocfg that only commands which are not played need: they import torch, or are programs."""
PROGRAM = (
    sys.executable,
    "-c",
    "import sys; sys.path[:] = filter(None, sys.path); sys.argv[0] = 'zerocfg'; import zerocfg.__main__ as z; z.main()",
)
"""Starts zerocfg as its script does: without modules of the current folder, which is somebody's repository."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended. ``code`` is negative for a signal; ``seconds`` of CPU, of its own processes too."""

    code: int
    seconds: float
    stdout: str
    stderr: str


Play = Callable[[Sequence[str], Path], Outcome]
"""Runs ``zerocfg`` with words in a folder."""


def forked(words: Sequence[str], folder: Path) -> Outcome:
    """The command in a fork of this process."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = os.fork()
        if process == 0:
            _command(words, folder, stdout.fileno(), stderr.fileno())
        return _outcome(process, stdout, stderr)


def started(program: Sequence[str]) -> Play:
    """The command as a process that is started, by the words of a program."""

    def play(words: Sequence[str], folder: Path) -> Outcome:
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            process = subprocess.Popen(
                [*program, *words],
                cwd=folder,
                env={key: value for key, value in os.environ.items() if key != "ZEROCFG_TRACEBACK"},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            outcome = _outcome(process.pid, stdout, stderr)
            process.returncode = outcome.code  # it was waited for
            return outcome

    return play


def import_zerocfg() -> None:
    """Import what the commands import, so that no fork has to."""
    import zerocfg

    for module in pkgutil.walk_packages(zerocfg.__path__, "zerocfg.", onerror=lambda name: None):
        if NOT_IMPORTED.isdisjoint(module.name.split(".")) and not module.name.endswith("__main__"):
            with suppress(ImportError):  # of an extra that is not installed
                import_module(module.name)
    import_module("zerocfg.__main__")
    gc.freeze()  # a fork that collects garbage would look through, and copy, all of it


def _command(words: Sequence[str], folder: Path, stdout: int, stderr: int) -> NoReturn:
    """In the fork: the streams, folder, environment and end of a process of its own."""
    code = 1
    try:
        os.setpgid(0, 0)
        atexit._clear()
        null = os.open(os.devnull, os.O_RDONLY)
        for source, number in ((null, 0), (stdout, 1), (stderr, 2)):
            os.dup2(source, number)
        encoding = locale.getpreferredencoding(False)
        sys.stdin = os.fdopen(0, encoding=encoding, closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding=encoding, closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, encoding, "backslashreplace", closefd=False)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.pop("ZEROCFG_TRACEBACK", None)
        os.chdir(folder)
        sys.argv = ["zerocfg", *words]
        main: Callable[[], None] = import_module("zerocfg.__main__").main
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _outcome(process: int, stdout: IO[bytes], stderr: IO[bytes]) -> Outcome:
    """Wait for a process that leads its group; at the limit the group is killed."""
    handle = os.pidfd_open(process)
    try:
        if not select.select([handle], [], [], LIMIT)[0]:
            os.killpg(process, signal.SIGKILL)
    finally:
        os.close(handle)
    _, status, usage = os.wait4(process, 0)
    texts = []
    for stream in (stdout, stderr):
        stream.seek(0)
        texts.append(stream.read().decode("utf-8", "replace"))
    return Outcome(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, *texts)
