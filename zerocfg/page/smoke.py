"""What a smoke-run saw, from its certificate. The file is anybody's: nothing of it is taken for granted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from zerocfg.emit import lock
from zerocfg.emit.lenient_json import number
from zerocfg.page.formatting import GIB, Unit, unit_for
from zerocfg.smoke.certify import certificate_file
from zerocfg.smoke.model import certificate
from zerocfg.smoke.model.certificate import Check, Diagnosis, Measured
from zerocfg.source.load import read_bytes
from zerocfg.source.node import Problem

PHASES = ("init", "forward", "backward", "step", "save")
PREDICTED = {phase: "forward+backward" if phase in ("forward", "backward") else phase for phase in PHASES}
"""The phase of the prediction that holds for a measured one."""
MOST_POINTS = 2000


@dataclass(frozen=True, slots=True)
class Point:
    """``seconds`` since the first step began, ``bytes`` that rank 0 held, and the phase that it was in."""

    seconds: float
    bytes: int
    phase: str


@dataclass(frozen=True, slots=True)
class Profile:
    """Memory as measured. ``on_card``: torch's allocator; else what a process grew by since its libraries were loaded.

    ``peaks`` hold a mapping from phase to bytes for each rank, ``predicted`` the same for one rank (empty where it
    cannot be compared). ``limit``: bytes of the card.
    """

    on_card: bool
    points: tuple[Point, ...]
    peaks: tuple[dict[str, int], ...]
    predicted: dict[str, int]
    limit: int | None
    unit: Unit

    @property
    def of(self) -> str:
        return "allocated on the card" if self.on_card else "of host memory beside the libraries"


@dataclass(slots=True)
class Smoke:
    """``stale`` are files that are not those that were tested."""

    passed: bool
    date: str
    device: str
    ranks: int
    steps: int | None
    checks: list[Check] = field(default_factory=list)
    further: int = 0
    failure: str = ""
    unmeasured: list[str] = field(default_factory=list)
    diagnosis: list[str] = field(default_factory=list)
    proven: list[str] = field(default_factory=list)
    not_proven: list[str] = field(default_factory=list)
    reductions: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    versions: str = ""
    figures: list[tuple[str, str, str]] = field(default_factory=list)
    profile: Profile | None = None

    @property
    def failed(self) -> int:
        return sum(check.ok is False for check in self.checks)


def smoke(folder: Path) -> Smoke | str | None:
    """Of the build in ``folder``: what its certificate says; a text: why that cannot be read; None: there is none."""
    try:
        found = certificate_file.read(folder / certificate.NAME)
    except FileNotFoundError:
        return None
    except (certificate_file.CertificateError, OSError) as error:
        return " ".join(str(error).split())
    seen = found.result
    shown = [check for check in seen.checks if not check.further or check.ok is False]
    return Smoke(
        passed=seen.passed and not seen.failed and seen.failure is None,
        unmeasured=list(seen.unmeasured) if seen.state == "incomplete" else [],
        date=found.date.strftime("%Y-%m-%d %H:%M UTC"),
        device="processor" if seen.device_kind == "cpu" else seen.device_name or seen.device_kind,
        ranks=seen.ranks,
        steps=found.steps,
        checks=shown,
        further=len(seen.checks) - len(shown),
        failure=seen.failure.message if seen.failure is not None else "",
        diagnosis=[_diagnosis(diagnosis) for diagnosis in seen.diagnosis],
        proven=list(seen.proven),
        not_proven=list(seen.not_proven),
        reductions=[reduction.words for reduction in seen.reductions],
        stale=_stale(folder, found),
        versions=", ".join(f"{name} {version}" for name, version in found.versions.items() if name != "zerocfg"),
        figures=_figures(seen.measured),
        profile=_profile(seen.measured, on_card=seen.device_kind == "cuda"),
    )


def _stale(folder: Path, found: certificate.Certificate) -> list[str]:
    """Tested files that are other ones now. A lock may change in what does not matter to the run."""
    other = []
    for name, tested in found.files.items():
        if "/" in name or "\\" in name or "\0" in name:
            continue  # only names inside the folder count
        data = read_bytes(folder / name)
        if isinstance(data, Problem) or (
            lock.sha256(data) != tested and not (name == lock.NAME and _same_values(data, found.values))
        ):
            other.append(name)
    return other


def _same_values(data: bytes, values: str | None) -> bool:
    try:
        return certificate_file.values_hash(lock.parse(data, Path(lock.NAME))) == values
    except lock.LockError:
        return False


def _diagnosis(diagnosis: Diagnosis) -> str:
    """Without the place: the page shows findings with theirs."""
    return str(replace(diagnosis, file=None))


def _figures(measured: Measured) -> list[tuple[str, str, str]]:
    rows = []
    seconds, first = measured.median, measured.first
    if seconds is not None:
        known = [item for item in map(number, _list(measured.predicted.get("step_seconds"))) if item is not None]
        note = f"predicted {known[0]:.3f} to {known[-1]:.3f} s" if known else "median, without the first"
        rows.append(("Step", f"{seconds:.3f} s", note if known or first is None else f"the first one {first:.2f} s"))
    if measured.tokens_per_second is not None:
        rows.append(("Tokens per second", f"{measured.tokens_per_second:,.0f}", "of all ranks"))
    losses = measured.losses
    if losses:
        rows.append(("Loss", f"{losses[0]:.3f} → {losses[-1]:.3f}", f"of {len(losses)} micro batches"))
    if measured.seconds is not None:
        what = "launch, training, checkpoint, reference and weights"
        rows.append(("Whole run", f"{measured.seconds:.0f} s", what))
    return rows


def _profile(measured: Measured, *, on_card: bool) -> Profile | None:
    counter = "allocated" if on_card else "rss"
    starts = [int(item.get(counter) or 0) for item in measured.start]
    peaks = []
    for rank, phases in enumerate(measured.memory):
        before = 0 if on_card or rank >= len(starts) else starts[rank]
        bytes_ = {phase: phases[phase].get(counter) for phase in PHASES if phase in phases}
        peaks.append({phase: max(0, int(size) - before) for phase, size in bytes_.items() if size is not None})
    points = _points(measured, 0 if on_card or not starts else starts[0])
    most = max([point.bytes for point in points] + [bytes_ for rank in peaks for bytes_ in rank.values()], default=0)
    if not most:
        return None
    predicted = measured.predicted.get("phases") if on_card else None
    counters = (
        {phase: number(predicted.get(name)) for phase, name in PREDICTED.items()} if isinstance(predicted, dict) else {}
    )
    known = {phase: int(bytes_) for phase, bytes_ in counters.items() if bytes_ is not None}
    limit = measured.device_memory if on_card else None
    return Profile(on_card, tuple(points), tuple(peak for peak in peaks if peak), known, limit, unit_for(most, GIB))


def _points(measured: Measured, before: int) -> list[Point]:
    found = [
        Point(seconds, max(0, allocated - before), phase) for seconds, allocated, phase in measured.points[:MOST_POINTS]
    ]
    first = next((point.seconds for point in found if point.phase not in ("init", "own")), 0.0)
    return [Point(round(point.seconds - first, 4), point.bytes, point.phase) for point in found]


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
