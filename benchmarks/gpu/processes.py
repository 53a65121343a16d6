"""Programs with a time limit, ended with all that they started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.gpu.place import ROOT, environment

GRACE = 9.0
"""Seconds between the request to end and the kill: zerocfg needs up to six to end its ranks and write a certificate."""


class TimedOutError(Exception):
    """A program did not end in its time. ``output``, ``errors``: what it had printed."""

    def __init__(self, seconds: float, output: str, errors: str) -> None:
        super().__init__(f"no end within {seconds:.0f} s")
        self.output = output
        self.errors = errors


def run_within(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a program in the checkout, offline. Raises TimedOutError.

    Whatever happens, it is asked to end before it is killed, and nothing of its process group is left.
    """
    # Files, not pipes: what the program started and left behind would hold a pipe open.
    with (
        tempfile.TemporaryFile("w+", errors="replace") as output,
        tempfile.TemporaryFile("w+", errors="replace") as errors,
    ):
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        late = False
        try:
            process.wait(max(seconds, 0))
        except subprocess.TimeoutExpired:
            late = True
        finally:
            end_group(process)
        for file in (output, errors):
            file.seek(0)
        if late:
            raise TimedOutError(seconds, output.read(), errors.read())
        return subprocess.CompletedProcess(command, process.returncode, output.read(), errors.read())


def end_group(process: subprocess.Popen[Any], deadline: float | None = None) -> None:
    """Ask a program to end, wait for it, and kill its process group.

    With a ``deadline``, on the monotonic clock, it was asked already and is waited for until then: asked again while it
    ends, Python dies of the signal instead.
    """
    if process.poll() is None:
        if deadline is None:
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE if deadline is None else max(0, deadline - time.monotonic()))
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_side_by_side(commands: Sequence[list[str]], seconds: float) -> list[int]:
    """Run programs at the same time, which print to this one's output, and return their exit codes.

    After so many seconds, or when this process is asked to end, they are asked to end, and killed if they do not.
    """
    deadline = time.monotonic() + seconds
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            running.append(
                subprocess.Popen(command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, start_new_session=True)
            )
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0, deadline - time.monotonic()))
    finally:
        for process in running:
            process.terminate()
        deadline = time.monotonic() + GRACE + 2  # each of them gives what it started the same grace
        for process in running:
            end_group(process, deadline)
    return [process.returncode for process in running]
