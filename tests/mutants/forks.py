"""Work in forked processes: each starts as this one is, answers with data, and is gone with all it changed."""

from __future__ import annotations

import ctypes
import errno
import gc
import json
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

T = TypeVar("T")
PR_SET_CHILD_SUBREAPER = 36
"""prctl(2)."""

MEMORY = 4 << 30
"""Bytes of address space that a forked process may take beyond what it starts with."""


@dataclass(frozen=True)
class Answer:
    """``value``: what the work returned; None when it did not come so far, and ``ended`` says why: "time" (its CPU time
    was used up), "blocked", or the signal or error. ``seconds``: CPU seconds."""

    value: Any
    ended: str | None
    seconds: float


def each(work: Iterable[T], do: Callable[[T], Any], jobs: int) -> Iterator[tuple[T, Answer]]:
    """Does each piece of work in a process of its own, ``jobs`` at a time; answers come as they are ready."""
    running: dict[int, tuple[T, IO[bytes]]] = {}
    todo = iter(work)
    gc.collect()
    gc.freeze()  # what all share is not copied by the next collection
    try:
        while True:
            while len(running) < jobs:
                try:
                    one = next(todo)
                except StopIteration:
                    break
                answer: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
                sys.stdout.flush()
                pid = os.fork()
                if pid == 0:
                    _work(do, one, answer)
                running[pid] = one, answer
            if not running:
                return
            pid, status, used = os.wait4(-1, 0)
            if pid in running:
                one, answer = running.pop(pid)
                with answer:
                    yield one, _answer(answer, status, used.ru_utime + used.ru_stime)
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        gc.unfreeze()


def limit(seconds: float) -> None:
    """Ends this process when it has used this many CPU seconds more. One that waits for what never comes ends after two
    minutes: a safety net that nothing is measured by."""
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(120)
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime + seconds) + 1, most))


def _work(do: Callable[[T], Any], one: T, answer: IO[bytes]) -> None:
    """The forked process, from its first to its last breath."""
    try:
        silent = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(silent, number)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _limit_memory()
        _spare_others()
        text = json.dumps({"value": do(one)})
    except BaseException:
        text = json.dumps({"error": traceback.format_exc()[-4000:]})
    answer.write(text.encode())
    answer.flush()
    os._exit(0)


def _limit_memory() -> None:
    with open("/proc/self/statm") as file:  # noqa: PTH123
        now = int(file.read().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, most))


def _spare_others() -> None:
    """Lets this process send signals only to itself and to processes that it started: a fault in a function that ends
    leftovers may make it end every process of the machine."""
    own = os.getpid()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what loses its parent becomes a child of this one

    def is_own(process: int) -> bool:
        while process > 1 and process != own:
            process = _parent(process)
        return process == own

    def guarded(send: Callable[[int, int], None]) -> Callable[[int, int], None]:
        def sent(process: int, sign: int) -> None:
            if sign and not is_own(abs(process)):
                raise PermissionError(errno.EPERM, "the process is none of this test")
            send(process, sign)

        return sent

    os.kill, os.killpg = guarded(os.kill), guarded(os.killpg)


def _parent(process: int) -> int:
    """Raises ProcessLookupError."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        raise ProcessLookupError(errno.ESRCH, "no such process") from None
    return int(fields[1])


def _answer(file: IO[bytes], status: int, seconds: float) -> Answer:
    if os.WIFSIGNALED(status):
        ended = signal.Signals(os.WTERMSIG(status))
        return Answer(None, {signal.SIGXCPU: "time", signal.SIGALRM: "blocked"}.get(ended, ended.name), seconds)
    file.seek(0)
    said = json.loads(file.read() or b'{"error": "it left without an answer"}')
    return Answer(said.get("value"), said.get("error"), seconds)
