"""Checks that build a spec and smoke-run one run of it."""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.budget import Clock
from benchmarks.gpu.place import ROOT, Place
from benchmarks.gpu.processes import run_within
from benchmarks.gpu.record import Record, Result, shorten

OVERHEAD = 10.0
"""Seconds that `zerocfg smoke` takes beside its launches: sizing before them, the verdict after them."""
PICTURE = "PICTURE"
OVER_GLOO = Path(__file__).resolve().parent / "over_gloo.py"


@dataclass(frozen=True)
class SmokeRun:
    """``spec``: a zerocfg.yaml, ``run``: which of its runs, ``options`` of `zerocfg smoke`.

    "PICTURE" among the options stands for a file in the folder for results. ``launches``: among how many launches the
    time is divided. ``program``: what takes the arguments of `zerocfg`, where it is not that itself. ``shows``: checks
    of the certificate that must have been made and have passed. ``on_processor``: further options without a card,
    which replace the same ones before.
    """

    spec: str
    run: str
    options: tuple[str, ...] = ("--ranks", "1")
    launches: int = 1
    program: Path | None = None
    shows: tuple[str, ...] = ()
    on_processor: tuple[str, ...] = ()

    def play(self, place: Place, record: Record, clock: Clock) -> bool:
        """Whether the smoke-run passed. What it left is recorded also where it is ended before."""
        with tempfile.TemporaryDirectory(prefix="zerocfg-gpu-") as out:
            zerocfg = [sys.executable, "-m", "zerocfg"]
            options = self.possible_options(tiny=place.tiny)
            device = f"--device {place.device}"
            record.update(
                commands=[
                    f"zerocfg build {self.spec} -o OUT",
                    f"zerocfg smoke OUT/{self.run} {' '.join(options)} {device}",
                ]
            )
            built = run_within([*zerocfg, "build", str(ROOT / self.spec), "-o", out], clock.left)
            if built.returncode != 0:
                record.update(error=shorten(built.stderr or built.stdout))
                return False
            smoke = [sys.executable, str(self.program)] if self.program else zerocfg
            smoke = [*smoke, "smoke", f"{out}/{self.run}"]
            smoke += [str(place.out / "compare.svg") if word == PICTURE else word for word in options]
            smoke += ["--device", place.device, "--output-format", "json"]
            smoke += ["--time-limit", str(time_limit(clock.left, self.launches))]
            try:
                done = run_within(smoke, clock.left)
            finally:  # what a run that is ended has proven stands in its certificate
                certified = record_certificate(record, Path(out) / self.run / "smoke.json")
        if not certified:  # a comparison or a search certifies nothing
            try:
                record.update(output=json.loads(done.stdout))
            except ValueError:
                record.update(error=shorten(done.stderr or done.stdout))
                return False
        certificate = record.content.get("certificate", {})
        rows = {row["name"]: row["ok"] for row in certificate.get("checks", ())}
        missing = [name for name in self.shows if not rows.get(name)]
        record.update(missing=missing)
        return done.returncode == 0 and bool(certificate.get("passed", True)) and not missing

    def possible_options(self, *, tiny: bool) -> tuple[str, ...]:
        """The options, without a picture where none can be drawn, and without sharing a card where there is none."""
        words = [word for word in self.options if not (tiny and word == "--share-gpu")]
        if PICTURE in words and importlib.util.find_spec("matplotlib") is None:
            at = words.index(PICTURE)
            del words[at - 1 : at + 1]
        return (*words, *(self.on_processor if tiny else ()))


def time_limit(left: float, launches: int) -> int:
    """The ``--time-limit`` of each launch, by which a smoke-run also decides how many layers it takes."""
    return max(1, int(max(left - OVERHEAD, left / 2) / launches))


def record_certificate(record: Record, path: Path) -> bool:
    """Take over the certificate of a smoke-run and its figures beside the predicted ones, where there is one."""
    try:
        certificate = json.loads(path.read_text())
    except (OSError, ValueError):
        return False
    record.update(certificate=certificate, against_prediction=against_prediction(certificate.get("measured") or {}))
    return True


def against_prediction(measured: dict[str, Any]) -> Result:
    """Measured and predicted figures of a smoke-run: bytes allocated at the peak of the worst rank, step times.

    ``ratio`` is measured over expected, ``inside`` whether it lies between the predicted ends. Empty where nothing was
    predicted.
    """
    predicted = measured.get("predicted") or {}
    peaks = [peak for peak in measured.get("peak_memory_bytes") or [] if peak]
    steps = sorted((measured.get("step_seconds") or [])[1:])  # the first one warms up
    pairs = {
        "allocated": (max(peaks, default=None), predicted.get("allocated")),
        "step_seconds": (steps[len(steps) // 2] if steps else None, predicted.get("step_seconds")),
    }
    found = {}
    for name, (value, band) in pairs.items():
        if value is not None and isinstance(band, list) and len(band) == 3 and band[1]:
            low, expected, high = band
            inside = low <= value <= high
            found[name] = {"measured": value, "predicted": band, "ratio": round(value / expected, 3), "inside": inside}
    return found
