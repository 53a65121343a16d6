"""The contract: every instrument of a smoke-run measures on this card."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.gpu.budget import Clock
from benchmarks.gpu.place import Place
from benchmarks.gpu.record import Record, Result
from benchmarks.gpu.smoke_runs import SmokeRun

REQUIRED = (
    "checksums",
    "collective counter",
    "compile watcher",
    "device name",
    "learning rate",
    "loss",
    "memory recorder",
    "optimizer moments",
    "parameters",
    "read-back of the optimizer",
    "read-back of the parameters",
    "read-back of the stage",
    "read-back of the world size",
    "release of memory",
    "saved weights",
    "skipped steps",
    "stack on a signal",
    "step clock",
    "versions",
    "votes",
)
"""Instruments that must be in the list of those that measured; of all others only that none of them broke."""
NEVER_TRIED = "never tried"


@dataclass(frozen=True)
class Contract:
    """A smoke-run of a tiny model on one rank, whose certificate lists the instruments that measured and the others."""

    smoke_run: SmokeRun = field(default_factory=lambda: SmokeRun("examples/quickstart/zerocfg.yaml", "quickstart"))

    def play(self, place: Place, record: Record, clock: Clock) -> bool:
        """Whether the run passed and no instrument is missing."""
        passed = self.smoke_run.play(place, record, clock)
        instruments = list_instruments(record.content.get("certificate", {}))
        for name, reason in sorted(instruments.items()):
            print(f"  {name}: {reason or 'ok'}", flush=True)
        record.update(instruments=instruments, missing=sorted(name for name, reason in instruments.items() if reason))
        return passed and not record.content["missing"]


def list_instruments(certificate: Result) -> dict[str, str]:
    """The instruments by name, "" where it measured, else the reason why it did not."""
    working = dict.fromkeys(certificate.get("instruments", ()), "")
    return {**dict.fromkeys(REQUIRED, NEVER_TRIED), **working, **certificate.get("not_measured", {})}
