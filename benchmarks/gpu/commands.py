"""Checks that run one command of zerocfg and keep what it prints as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from benchmarks.gpu.budget import Clock
from benchmarks.gpu.place import Place
from benchmarks.gpu.processes import run_within
from benchmarks.gpu.record import Record, shorten


@dataclass(frozen=True)
class Command:
    """``words``: of the command. ``on_processor``: further words where there is no card."""

    words: tuple[str, ...]
    on_processor: tuple[str, ...] = ()

    def play(self, place: Place, record: Record, clock: Clock) -> bool:
        """Whether the command succeeded."""
        words = [*self.words, *(self.on_processor if place.tiny else ())]
        record.update(commands=[f"zerocfg {' '.join(words)}"])
        done = run_within([sys.executable, "-m", "zerocfg", *words], clock.left)
        try:
            record.update(output=json.loads(done.stdout))
        except ValueError:
            record.update(error=shorten(done.stderr or done.stdout))
            return False
        if done.stderr.strip():
            record.update(notes=shorten(done.stderr).splitlines())
        return done.returncode == 0
