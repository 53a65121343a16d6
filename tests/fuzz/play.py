"""Plays a campaign: many inputs in a row in a forked process, each measured; what is broken is made small and kept.

The process that plays has imported everything before. It is forked anew for every few hundred inputs, so that nothing
piles up in it, and after an input that it did not live through.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.fuzz.campaign import BrokenError, Campaign, Input, keep, put, total

TOGETHER = 300
"""Inputs that one process plays."""
CPU_SECONDS, PEAK_BYTES, SMALL_BYTES = 2.0, 260 << 20, 1 << 20
"""What an input of less than the last may cost; memory beyond what the process held before, 40 MiB where it has zerocfg
alone."""
HOPELESS_SECONDS = 30
"""CPU seconds after which an input counts as one that never ends."""
ADDRESS_SPACE = 4 << 30
"""Beyond what the process has reserved before."""
STEPS = 300
"""Attempts at making an input smaller."""


@dataclass
class Played:
    """``broken``: what went wrong, by input; ``cpu``: seconds, ``peak``: bytes of the costliest inputs."""

    count: int = 0
    broken: list[tuple[int, str]] = field(default_factory=list)
    cpu: float = 0.0
    slowest: float = 0.0
    peak: int = 0


def seed_of(campaign: Campaign, seed: str, number: int) -> str:
    """What the random numbers of one input grow from: the same in every process and on every machine."""
    return f"{seed}/{campaign.name}/{number}"


def input_of(campaign: Campaign, seed: str, number: int) -> Input:
    return campaign.make(Random(seed_of(campaign, seed, number)))


def play(campaign: Campaign, seed: str, size: int, first: int = 0) -> Iterator[Played]:
    """Plays the inputs from ``first`` up to ``size``; tells how far it is after every process."""
    found = Played()
    while first < size:
        end = min(first + TOGETHER, size)
        first = _forked(campaign, seed, first, end, found)
        yield found


def _forked(campaign: Campaign, seed: str, first: int, end: int, found: Played) -> int:
    """The first input that was not played."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        held = _peak()
        gc.freeze()  # what is here already is no garbage of any input: to look at it for each takes most of the time
        with os.fdopen(writing, "w", buffering=1) as told:
            for number in range(first, end):
                print(json.dumps({"begins": number}), file=told)
                files = input_of(campaign, seed, number)
                seconds, peak, why = _measured(campaign, seed_of(campaign, seed, number), files, held)
                print(json.dumps({"ends": number, "seconds": seconds, "peak": peak, "why": why}), file=told)
                if peak > PEAK_BYTES:
                    break  # the peak of a process never falls: the next input deserves one of its own
        os._exit(0)
    os.close(writing)
    at = first - 1
    ended = first - 1
    with os.fdopen(reading) as told:
        for line in told:
            message = json.loads(line)
            at = message.get("begins", at)
            if "ends" in message:
                ended = at
                found.count += 1
                found.cpu += message["seconds"]
                found.slowest = max(found.slowest, message["seconds"])
                found.peak = max(found.peak, message["peak"])
                if message["why"]:
                    found.broken.append((at, message["why"]))
    _, status = os.waitpid(child, 0)
    if at > ended:
        found.count += 1
        found.broken.append((at, _death(status)))
    return at + 1


def _death(status: int) -> str:
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return f"the process ended by {name}" + (
            f": more than {HOPELESS_SECONDS} s of CPU" if name == "SIGPROF" else ""
        )
    return f"the process ended with exit code {os.waitstatus_to_exitcode(status)}"


def _measured(campaign: Campaign, seed: str, files: Input, held: int) -> tuple[float, int, str]:
    """CPU seconds, peak bytes beyond what was ``held`` before, and what is broken (empty: nothing)."""
    folder = Path(tempfile.mkdtemp(prefix="zerocfg-fuzz-", dir=_scratch()))
    before = Path.cwd()
    why = ""
    try:
        put(files, folder)
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_AS, (_reserved() + ADDRESS_SPACE, resource.getrlimit(resource.RLIMIT_AS)[1]))
        signal.setitimer(signal.ITIMER_PROF, HOPELESS_SECONDS)
        gc.collect()
        began = time.process_time()
        try:
            campaign.check(folder, Random(seed))
        except BrokenError as error:
            why = str(error)
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            why = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno} in {place.name})"
        seconds = time.process_time() - began
        signal.setitimer(signal.ITIMER_PROF, 0)
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)
    peak = _peak() - held
    if not why and campaign.measured and total(files) < SMALL_BYTES:
        if seconds > CPU_SECONDS:
            why = f"{seconds:.1f} s of CPU for {total(files)} bytes"
        elif peak > PEAK_BYTES:
            why = f"{peak >> 20} MiB for {total(files)} bytes"
    return seconds, peak, why


def _peak() -> int:
    """The most bytes that this process had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _reserved() -> int:
    """Bytes of its address space."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _scratch() -> str | None:
    """A folder in memory where there is one: hundreds of thousands of small files are written."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def breaks(campaign: Campaign, seed: str, files: Input) -> str:
    """What is broken for one input, in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "w") as told, suppress(BaseException):
            told.write(_measured(campaign, seed, files, _peak())[2])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, errors="replace") as told:
        why = told.read()
    _, status = os.waitpid(child, 0)
    return why or (_death(status) if status else "")


def smaller(campaign: Campaign, seed: str, files: Input) -> Input:
    """A part of an input for which the same is broken: fewer files, then fewer bytes of each."""
    left = STEPS
    broken = _kind(breaks(campaign, seed, files))

    def still(candidate: Input) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and bool(candidate) and _kind(breaks(campaign, seed, candidate)) == broken

    for name in list(files):
        without = {other: data for other, data in files.items() if other != name}
        if still(without):
            files = without
    for name in list(files):
        size = max(1, len(files[name]) // 2)
        while left > 0:
            at = 0
            while at < len(files[name]) and left > 0:
                candidate = {**files, name: files[name][:at] + files[name][at + size :]}
                if still(candidate):
                    files = candidate
                else:
                    at += size
            if size == 1:
                break
            size = max(1, size // 2)
    return files


def _kind(why: str) -> str:
    """What is broken, without the figures and texts of one input."""
    return re.split(r"[:'\"{\[]", re.sub(r"[\d.]+", "#", why))[0]


def keep_broken(campaign: Campaign, seed: str, number: int, why: str, folder: Path) -> Path:
    """The input, made small, among those that the tests replay."""
    own = seed_of(campaign, seed, number)
    files = smaller(campaign, own, input_of(campaign, seed, number))
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{campaign.name}-{hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:12]}.json"
    keep(folder / name, campaign.name, own, why, files)
    return folder / name


def tell(text: str) -> None:
    """A line for whoever waits."""
    print(text, file=sys.stderr, flush=True)
