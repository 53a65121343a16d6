"""What a smoke-run saw, from its certificate. The file is anybody's: nothing of it is taken for granted."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from zerocfg.emit import lock
from zerocfg.page.words import GIB, Unit, size, unit_for
from zerocfg.smoke import certificate
from zerocfg.source.load import read_bytes
from zerocfg.source.node import Problem

PHASES = ("init", "forward", "backward", "step", "save")
PREDICTED = {phase: "forward+backward" if phase in ("forward", "backward") else phase for phase in PHASES}
"""The phase of the prediction that holds for a measured one."""
MOST_POINTS = 2000


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    planned: str
    seen: str
    ok: bool | None


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
        return sum(one.ok is False for one in self.checks)


def smoke(folder: Path) -> Smoke | str | None:
    """Of the build in ``folder``: what its certificate says; a text: why that cannot be read; None: there is none."""
    path = folder / certificate.NAME
    try:
        found = certificate.read(path)
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (certificate.CertificateError, OSError, ValueError, RecursionError) as error:
        return " ".join(str(error).split())
    checks = [_check(one) for one in _list(content.get("checks")) if isinstance(one, dict)]
    further = [bool(one.get("further")) for one in _list(content.get("checks")) if isinstance(one, dict)]
    shown = [one for one, more in zip(checks, further, strict=True) if not more or one.ok is False]
    measured = _mapping(content.get("measured"))
    steps = content.get("steps")
    return Smoke(
        passed=found.passed and not found.failed and found.failure is None,
        date=found.date.strftime("%Y-%m-%d %H:%M UTC"),
        device="processor" if found.device_kind == "cpu" else found.device_name or found.device_kind,
        ranks=_integer(content.get("ranks")) or 0,
        steps=_integer(steps),
        checks=shown,
        further=len(checks) - len(shown),
        failure=found.failure or "",
        diagnosis=[_diagnosis(one) for one in _list(content.get("diagnosis")) if isinstance(one, dict)],
        proven=_texts(content.get("proven")),
        not_proven=_texts(content.get("not_proven")),
        reductions=[one.words for one in found.reductions],
        stale=_stale(folder, found),
        versions=", ".join(f"{name} {version}" for name, version in found.versions.items() if name != "zerocfg"),
        figures=_figures(measured),
        profile=_profile(measured, on_card=found.device_kind == "cuda"),
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
        return certificate.values_hash(lock.parse(data, Path(lock.NAME))) == values
    except lock.LockError:
        return False


def _check(one: dict[str, object]) -> Check:
    ok = one.get("ok")
    name, planned, seen = (str(one.get(key, "")) for key in ("name", "planned", "seen"))
    return Check(name, planned, seen, ok if isinstance(ok, bool) else None)


def _diagnosis(one: dict[str, object]) -> str:
    head = " ".join(str(one.get(name) or "") for name in ("code", "name")).strip()
    fix = f"; fix: {one['fix']}" if one.get("fix") else ""
    return f"{head}: {one.get('message', '')}{fix}"


def _figures(measured: dict[str, object]) -> list[tuple[str, str, str]]:
    predicted = _mapping(measured.get("predicted"))
    rows = []
    seconds, first = _number(measured.get("step_seconds_median")), _number(measured.get("step_seconds_first"))
    if seconds is not None:
        told = [_number(one) for one in _list(predicted.get("step_seconds"))]
        known = [one for one in told if one is not None]
        beside = f"predicted {known[0]:.3f} to {known[-1]:.3f} s" if known else "median, without the first"
        rows.append(("Step", f"{seconds:.3f} s", beside if known or first is None else f"the first one {first:.2f} s"))
    tokens = _number(measured.get("tokens_per_second"))
    if tokens is not None:
        rows.append(("Tokens per second", f"{tokens:,.0f}", "of all ranks"))
    losses = [one for one in (_number(loss) for loss in _list(measured.get("losses"))) if one is not None]
    if losses:
        rows.append(("Loss", f"{losses[0]:.3f} → {losses[-1]:.3f}", f"of {len(losses)} micro batches"))
    took = _number(measured.get("seconds"))
    if took is not None:
        rows.append(("Whole run", f"{took:.0f} s", "launch, training, checkpoint, reference and weights"))
    return rows


def _profile(measured: dict[str, object], *, on_card: bool) -> Profile | None:
    counter = "allocated" if on_card else "rss"
    starts = [_integer(_mapping(one).get(counter)) or 0 for one in _list(measured.get("memory_start"))]
    peaks = []
    for rank, phases in enumerate(_list(measured.get("memory"))):
        before = 0 if on_card or rank >= len(starts) else starts[rank]
        sizes = {phase: _integer(_mapping(_mapping(phases).get(phase)).get(counter)) for phase in PHASES}
        peaks.append({phase: max(0, held - before) for phase, held in sizes.items() if held is not None})
    points = _points(measured, 0 if on_card or not starts else starts[0])
    most = max([point.bytes for point in points] + [held for rank in peaks for held in rank.values()], default=0)
    if not most:
        return None
    predicted = _mapping(_mapping(measured.get("predicted")).get("phases")) if on_card else {}
    told = {phase: _integer(predicted.get(name)) for phase, name in PREDICTED.items()}
    known = {phase: held for phase, held in told.items() if held is not None}
    limit = _integer(measured.get("device_memory_bytes")) if on_card else None
    return Profile(on_card, tuple(points), tuple(one for one in peaks if one), known, limit, unit_for(most, GIB))


def _points(measured: dict[str, object], before: int) -> list[Point]:
    found = []
    for one in _list(_mapping(measured.get("timeline")).get("points"))[:MOST_POINTS]:
        if isinstance(one, list) and len(one) == 3:
            seconds, held = _number(one[0]), _integer(one[1])
            if seconds is not None and held is not None and isinstance(one[2], str):
                found.append(Point(seconds, max(0, held - before), one[2]))
    first = next((one.seconds for one in found if one.phase not in ("init", "own")), 0.0)
    return [Point(round(one.seconds - first, 4), one.bytes, one.phase) for one in found]


def predicted_peak(measured: Smoke) -> str:
    """The most that is predicted of any phase, as text; empty where it cannot be compared."""
    profile = measured.profile
    return size(max(profile.predicted.values())) if profile is not None and profile.predicted else ""


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _texts(value: object) -> list[str]:
    return [str(one) for one in _list(value)]


def _number(value: object) -> float | None:
    """A finite number; JSON as Python reads it also has others."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e18 else None


def _integer(value: object) -> int | None:
    number = _number(value)
    return None if number is None else int(number)
