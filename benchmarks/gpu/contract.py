"""The contract: every instrument of a smoke-run measures on this card."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.gpu.budget import Clock
from benchmarks.gpu.place import Place
from benchmarks.gpu.record import Record, Result
from benchmarks.gpu.smoke_runs import SmokeRun


@dataclass(frozen=True)
class Contract:
    """A smoke-run of a tiny model on one rank, whose certificate lists the instruments that measured and the others."""

    smoke_run: SmokeRun = field(default_factory=lambda: SmokeRun("examples/quickstart/zerocfg.yaml", "quickstart"))

    def play(self, place: Place, record: Record, clock: Clock) -> bool:
        """Whether the run passed and no instrument is missing that has to measure on a card."""
        passed = self.smoke_run.play(place, record, clock)
        certificate = record.content.get("certificate", {})
        for line in list_instruments(certificate):
            print(f"  {line}", flush=True)
        missing = [] if place.tiny else sorted(certificate.get("not_measured", {}))
        record.update(missing=missing)
        return passed and not missing


def list_instruments(certificate: Result) -> list[str]:
    """A line for each instrument: its name, and "ok" or the reason why it did not measure."""
    lines = dict.fromkeys(certificate.get("instruments", ()), "ok")
    lines |= {name: f"not measured: {reason}" for name, reason in certificate.get("not_measured", {}).items()}
    return [f"{name}: {state}" for name, state in sorted(lines.items())]
