"""Why a run failed: the rank where it began and that rank's own error, not the launcher's."""

from __future__ import annotations

import itertools
import re
import shutil
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerocfg.smoke.launch import out_of_memory, stacks
from zerocfg.smoke.launch.leftovers import SHARED

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.smoke.worker.report_schema import Failure, RankReport

# torchrun's table of failures, in its log.
FAILED_RANK = re.compile(r"rank\s*:\s*(\d+) \(local_rank: \d+\)\s+exitcode\s*:\s*(-?\d+)")
TAKEN = re.compile(r"EADDRINUSE|address already in use|another process is utilizing it", re.IGNORECASE)
# A line that torchrun or accelerate logs of themselves.
_LAUNCHER = re.compile(
    r"^(\[rank\d+\]:)?\[?[EWI]\d{4} .*(torch/distributed|torch/multiprocessing)/|^\*{5,}|^Setting OMP_"
)
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Failed))(?:: (.*))?$")
ROOM = 1 << 20  # bytes; with less than that a report or a log line cannot be relied on
SHOWN = 12


@dataclass
class Seen:
    """The state of a run that has ended.

    ``code``: the launcher's exit code, negative the signal. ``vanished``: a rank that ended without a report.
    ``waiting``: frames of the ranks that are still alive, the innermost first; ``stopped``: ranks that were stopped.
    ``lock``: the message about the abandoned lock that a rank waits for. ``killer``: the kernel's out-of-memory killer
    ended a process meanwhile. ``own``: the ranks of this machine, None where all are. ``limit`` in seconds, None when
    the run was not ended by it. ``scratch``: its folder. ``started``: the name of what was started.
    """

    reports: list[RankReport]
    code: int
    log: str
    limit: float | None
    scratch: Path
    vanished: int | None = None
    interrupted: bool = False
    waiting: dict[int, list[str]] = field(default_factory=dict)
    stopped: list[int] = field(default_factory=list)
    lock: str | None = None
    killer: bool = False
    own: range | None = None
    started: str = "the launcher"


@dataclass
class Cause:
    """``kind``: "interrupted", "memory", "error", "killed", "time", "lock", "port", "space" or "launcher"."""

    kind: str
    text: str
    rank: int | None = None
    detail: list[str] = field(default_factory=list)


def find(seen: Seen) -> Cause | None:
    """Why the run failed; None when every rank finished."""
    codes = {int(rank): int(code) for rank, code in FAILED_RANK.findall(seen.log)}
    errors = [(report["error"], report["rank"]) for report in seen.reports if "error" in report]
    if seen.interrupted:
        return Cause("interrupted", "interrupted")
    if seen.vanished is not None:
        return _killed(_first(seen.vanished, codes), codes, seen)
    if errors:
        # The other ranks then fail because they lost a partner.
        error, rank = min(errors, key=lambda item: item[0]["time"])
        return _error(error, rank, seen)
    if seen.lock is not None:
        return Cause("lock", "the ranks wait for an abandoned lock", detail=[seen.lock])
    done = all(report.get("done") for report in seen.reports)
    if done and seen.code == 0:
        return None
    if seen.limit is not None:
        return _late(seen)
    named = next(iter(codes), None)
    if named is not None and named < len(seen.reports):
        return _killed(_first(named, codes), codes, seen)
    return _launcher(seen)


def _error(error: Failure, rank: int, seen: Seen) -> Cause:
    text = " ".join(error["text"].split())[:2000]
    message = f"{error['type']}: {text}" if text else error["type"]
    memory = out_of_memory.place(error["type"], text, error["traceback"])
    if memory is not None:
        pinned = memory == "host" and out_of_memory.place(error["type"], text) == "card"
        where = "the card's memory" if memory == "card" else f"host memory{' (page-locked)' if pinned else ''}"
        message = f"out of {where} in '{seen.reports[rank].get('phase', 'launch')}': {message}"
    return Cause("memory" if memory else "error", message, rank, [*error["traceback"], *_others(seen)])


def _first(noticed: int, codes: dict[int, int]) -> int:
    """The rank that ended first; torchrun may have ended the others by SIGTERM since the last poll."""
    if codes.get(noticed) != -signal.SIGTERM:
        return noticed
    return next((rank for rank, code in codes.items() if code != -signal.SIGTERM), noticed)


def _killed(rank: int, codes: dict[int, int], seen: Seen) -> Cause:
    """A rank that ended without an error report; torchrun's table, if printed, has its exit code."""
    code = codes.get(rank)
    how, hint = "vanished", ""
    if code is None and seen.killer:
        hint = _hint(-signal.SIGKILL, seen)
    elif code is not None:
        how, hint = ended(code), _hint(code, seen)
    phase = seen.reports[rank].get("phase", "launch") if rank < len(seen.reports) else "launch"
    memory = seen.killer and code in (None, -9, 137)
    text = f"rank {rank} {how} in '{phase}'{hint}"
    detail = last_rank_output(seen.log)
    if not hint and (full := _full(seen)):
        return Cause("space", f"{text}; {full}", rank, detail)
    return Cause("memory" if memory else "killed", text, rank, detail)


def ended(code: int) -> str:
    """ "was killed by signal 9 (SIGKILL)" or "ended with exit code 3"."""
    number = -code if code < 0 else code - 128 if code > 128 else 0
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"was killed by signal {number} ({name})"


def _hint(code: int, seen: Seen) -> str:
    number = -code if code < 0 else code - 128
    if number == 9:
        if seen.killer:
            return "; the kernel's out-of-memory killer ended a process meanwhile: this run needs more host memory"
        return "; the kernel recorded no out-of-memory kill, so a user or a batch system ended it"
    if number == 7 and SHARED.is_dir():
        usage = shutil.disk_usage(SHARED)
        return (
            f"; a full {SHARED} causes this: {usage.free >> 20} of {usage.total >> 20} MiB are free "
            "(docker run --shm-size=8g)"
        )
    return ""


def _late(seen: Seen) -> Cause:
    halted = "; a rank that is stopped (SIGSTOP, a debugger) keeps all others waiting" if seen.stopped else ""
    places = ", ".join(
        f"rank {rank} in '{report.get('phase', 'launch')}'{' (stopped)' if rank in seen.stopped else ''}"
        for rank, report in enumerate(seen.reports)
        if seen.own is None or rank in seen.own
    )
    if seen.reports and all(report.get("done") for report in seen.reports):
        places = "every rank finished its work, but the processes do not exit"
    text = f"not finished within {seen.limit:g} s: {places or 'no rank reported'}{halted}"
    detail = [f"rank {rank} waits in {stacks.shown(frames)}" for rank, frames in sorted(seen.waiting.items())]
    return Cause("time", text, seen.stopped[0] if seen.stopped else None, [*detail, *_others(seen)])


def _others(seen: Seen) -> list[str]:
    """Hints where else to look, when not all ranks were on this machine."""
    if seen.own is None:
        return []
    if not any(seen.reports[rank] for rank in seen.own):
        return ["the ranks wait for those of the other nodes: the same command has to run on each of them"]
    return ["the other nodes report their own ranks: the failure may have begun on one of them"]


def _launcher(seen: Seen) -> Cause:
    """No rank reported and torchrun named none: the last output of the launcher."""
    if TAKEN.search(seen.log) and not any("error" in report for report in seen.reports):
        return Cause("port", "another program uses the rendezvous port", detail=_last_error(seen.log))
    how = f"{seen.started} {ended(seen.code)}"
    if full := _full(seen):
        return Cause("space", f"{how}; {full}")
    detail = _last_error(seen.log)
    said = f": {detail[-1]}" if detail and _EXCEPTION.match(detail[-1]) else ""
    hint = _hint(seen.code, seen) if seen.code else " although not every rank finished"
    return Cause("memory" if seen.killer and seen.code < 0 else "launcher", f"{how}{said}{hint}", None, detail)


def _full(seen: Seen) -> str | None:
    try:
        free = shutil.disk_usage(seen.scratch).free
    except OSError:
        return None
    if free >= ROOM:
        return None
    return f"no space left in {seen.scratch.parent}, the working folder of the run (set TMPDIR to use another)"


def last_rank_output(log: str) -> list[str]:
    """The last lines that a rank wrote itself: without the launcher's messages, its traceback and its table."""
    lines: list[str] = []
    for line in log.splitlines():
        if "ChildFailedError" in line or re.match(r"={20,}$", line):
            break
        if line.strip() and not _LAUNCHER.search(line):
            lines.append(line[:500])
    start = next(
        (at for at, line in enumerate(lines) if line.startswith("Traceback") and _starts(lines, at)), len(lines)
    )
    return lines[:start][-SHOWN:]


def _starts(lines: list[str], at: int) -> bool:
    """Whether the traceback that begins there is the launcher's own: by its first frames, not those of one below."""
    frames = itertools.takewhile(lambda line: line.startswith(" "), lines[at + 1 : at + 8])
    near = "\n".join(frames)
    return "torch/distributed/run.py" in near or "accelerate/commands/" in near or "bin/torchrun" in near


def _last_error(log: str) -> list[str]:
    """The last frame and the exception of the last traceback in the log, or its last non-empty lines."""
    lines = [line[:500] for line in log.splitlines() if line.strip() and not _LAUNCHER.search(line)]
    for at in range(len(lines) - 1, -1, -1):
        if _EXCEPTION.match(lines[at]):
            frame = next((n for n in range(at - 1, -1, -1) if lines[n].lstrip().startswith("File ")), None)
            return [*lines[frame:at][:3], lines[at]] if frame is not None else [lines[at]]
    return lines[-SHOWN:]
