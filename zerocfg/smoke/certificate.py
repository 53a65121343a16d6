"""``smoke.json``: what a smoke-run proved, of which files, on what. Written by `smoke`, read by `gate`.

Reading needs no training library and none of zerocfg's other smoke modules.
"""

from __future__ import annotations

import datetime
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from zerocfg.emit.lock import sha256
from zerocfg.source.load import read_bytes
from zerocfg.source.node import Problem
from zerocfg.source.write import write_atomic
from zerocfg.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.emit.lock import Lock

NAME = "smoke.json"
VERSION = 1

_SAY_NOTHING = ("zerocfg", "spec_folder", "inputs", "files", "notes", "considered", "versions")
"""Parts of a lock that a smoke-run does not depend on, or that a certificate holds on its own."""


class CertificateError(ValueError):
    """A certificate that cannot be read. ``line`` and ``column`` (from 1) tell where, 0: the whole file."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class Smaller:
    """What was not as planned: the value of a `zerocfg.smoke.reduction.Kind`, and the words for people.

    ``told``: the reduction as data; empty in a certificate from before it was recorded.
    """

    kind: str
    words: str
    told: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was planned, and what was seen instead. ``ok`` None for what is only noted.

    ``further``: "" for what has a row of its own in the table. Of the others only those that differ are shown, the rest
    is counted: "acting" was read where it acts, "parsed" from the config that the engine holds, "unseen" not at all.
    """

    name: str
    planned: str
    seen: str
    ok: bool | None
    further: str = ""

    def data(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the run did not end: the ``rank`` where it began, None where none is known, and its last words."""

    message: str
    rank: int | None = None
    detail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One explanation. ``why``: "check:NAME" or "error".

    ``code`` is empty where no rule of the configs knows the cause; ``file``, ``line`` and ``column`` are None where the
    rule speaks of an error and not of a place.
    """

    code: str
    name: str
    file: str | None
    line: int | None
    column: int | None
    message: str
    fix: str
    why: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: " if self.file is not None else ""

    def __str__(self) -> str:
        head = f"{self.code} {self.name}".strip()
        fix = f"; fix: {self.fix}" if self.fix else ""
        return f"{head}: {self.place}{self.message}{fix}"


@dataclass(slots=True)
class Command:
    """A command of the user's: ``line`` as given to the shell; ``loop`` None when no training was reached.

    ``notes``: what the run proved and what not, in sentences.
    """

    line: str
    loop: str | None = None
    notes: list[str] = field(default_factory=list)


Sizes = dict[str, float | None]
"""What was counted, in bytes, by the counter's name; and "seconds"."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What the ranks measured; lists are by rank, sizes in bytes. None: not counted here.

    ``seconds`` of the whole run; ``step_seconds``, ``losses`` of rank 0. ``memory`` by phase, ``start`` before the
    model was made. ``points``: (seconds, bytes, phase) of rank 0, of the counter ``of``. ``median`` and ``first``:
    seconds of an optimizer step. ``predicted``: as `zerocfg.smoke.predicted.Expected.data` gives it, or "unknown" and
    why.
    """

    seconds: float | None = None
    step_seconds: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    peaks: tuple[int | None, ...] = ()
    memory: tuple[dict[str, Sizes], ...] = ()
    start: tuple[Sizes, ...] = ()
    device_memory: int | None = None
    of: str = ""
    points: tuple[tuple[float, int, str], ...] = ()
    median: float | None = None
    first: float | None = None
    tokens: int | None = None
    tokens_per_second: float | None = None
    tflops: float | None = None
    predicted: dict[str, object] = field(default_factory=dict)

    def figures(self) -> dict[str, object]:
        """Memory, times and rates as JSON."""
        return {
            "memory": list(self.memory),
            "memory_start": list(self.start),
            "device_memory_bytes": self.device_memory,
            "timeline": {"rank": 0, "of": self.of, "points": list(self.points)},
            "step_seconds_median": self.median,
            "step_seconds_first": self.first,
            "tokens_per_step": self.tokens,
            "tokens_per_second": self.tokens_per_second,
            "tflops": self.tflops,
        }

    def data(self) -> dict[str, object]:
        """As JSON."""
        return {
            "seconds": self.seconds,
            "step_seconds": list(self.step_seconds),
            "losses": list(self.losses),
            "peak_memory_bytes": list(self.peaks),
            **self.figures(),
            "predicted": self.predicted,
        }


@dataclass(frozen=True)
class Testimony:
    """What a smoke-run saw.

    ``device_kind`` is "cpu" or "cuda", ``device_name`` as the driver calls it. ``reductions``: what was smaller than
    planned. ``failure`` None when the run ended.
    """

    run: str
    passed: bool
    device_kind: str
    device_name: str
    ranks: int
    reductions: tuple[Smaller, ...]
    checks: tuple[Check, ...]
    proven: tuple[str, ...]
    not_proven: tuple[str, ...]
    failure: Failure | None
    diagnosis: tuple[Diagnosis, ...]
    command: Command | None
    measured: Measured

    @property
    def failed(self) -> tuple[str, ...]:
        """The checks that failed, by name."""
        return tuple(one.name for one in self.checks if one.ok is False)

    def data(self) -> dict[str, object]:
        """As JSON."""
        return {
            "version": VERSION,
            "run": self.run,
            "passed": self.passed,
            "device": {"kind": self.device_kind, "name": self.device_name},
            "ranks": self.ranks,
            "reductions": [one.words for one in self.reductions],
            "reduced": [{"kind": one.kind, **one.told} for one in self.reductions],
            "checks": [one.data() for one in self.checks],
            "proven": list(self.proven),
            "not_proven": list(self.not_proven),
            "failure": None if self.failure is None else asdict(self.failure),
            "diagnosis": [asdict(one) for one in self.diagnosis],
            **({} if self.command is None else {"command": asdict(self.command)}),
            "measured": self.measured.data(),
        }


@dataclass(frozen=True)
class Certificate:
    """What a smoke-run ``seen`` proved, of which files.

    ``date`` is in UTC; ``steps``: optimizer steps. ``versions`` are the releases that ran, ``files`` the SHA-256 of the
    files that were tested, by name; ``values`` that of what the lock said (`values_hash`), None where it was not
    recorded.
    """

    seen: Testimony
    date: datetime.datetime
    steps: int | None
    versions: dict[str, str]
    files: dict[str, str]
    values: str | None = None

    def data(self) -> dict[str, object]:
        """As JSON."""
        return self.seen.data() | {
            "date": self.date.isoformat(),
            "steps": self.steps,
            "versions": self.versions,
            "files": self.files,
            "values": self.values,
        }


def write(
    folder: Path, seen: Testimony, *, steps: int, versions: dict[str, str], files: dict[str, str], lock: Lock
) -> Path:
    """Write the certificate of the run in ``folder``. Raises OSError when it cannot be written there.

    ``files``: the hashes of what was tested.
    """
    now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    own = {"zerocfg": __version__, **versions}
    certificate = Certificate(seen, now, steps, own, dict(sorted(files.items())), values_hash(lock))
    path = folder / NAME
    write_atomic(path, (json.dumps(certificate.data(), indent=2) + "\n").encode())
    return path


def values_hash(lock: Lock) -> str:
    """SHA-256 of what a lock says about the run itself: its values, not the reasons and places of them.

    A comment in a source file changes the lock, and proves nothing less.
    """
    said = {
        key: {name: _value(one) for name, one in part.items()}
        if key in ("settings", "accelerate", "changes") and isinstance(part, dict)
        else part
        for key, part in lock.content.items()
        if key not in _SAY_NOTHING
    }
    return sha256(json.dumps(said, sort_keys=True, ensure_ascii=False).encode())


def _value(decision: object) -> object:
    return decision.get("value") if isinstance(decision, dict) else decision


def read(path: Path) -> Certificate:
    """The certificate in a file. Raises FileNotFoundError, or CertificateError for what is none."""
    if not path.exists():
        raise FileNotFoundError(path)
    data = read_bytes(path)
    if isinstance(data, Problem):
        raise CertificateError(data.message)
    try:
        content = json.loads(data.decode("utf-8"))
    except json.JSONDecodeError as error:
        raise CertificateError(f"is no JSON: {error.msg}", error.lineno, error.colno) from None
    except (ValueError, RecursionError):
        raise CertificateError("is no JSON text in UTF-8 of a sane depth") from None
    if not isinstance(content, dict):
        raise CertificateError("is no certificate: it holds no mapping")
    version = content.get("version")
    if isinstance(version, bool) or not isinstance(version, int):
        raise CertificateError("is no certificate: `version` is missing or no number")
    if version != VERSION:
        raise CertificateError(f"has version {version}; this zerocfg {__version__} reads version {VERSION}")
    return _certificate(content)


def _certificate(content: dict[str, object]) -> Certificate:
    values = content.get("values")
    return Certificate(
        testimony(content),
        _date(_text(content, "date")),
        _integer(content.get("steps")),
        _texts(content, "versions"),
        _texts(content, "files"),
        values if isinstance(values, str) else None,
    )


def testimony(content: dict[str, object]) -> Testimony:
    """The verdict that a mapping holds: what the gate goes by must be there, the rest is read as far as it fits.

    Raises CertificateError.
    """
    device, passed = _mapping(content, "device"), content.get("passed")
    if not isinstance(passed, bool):
        raise _wrong(content, "passed", "true or false")
    return Testimony(
        run=_text(content, "run"),
        passed=passed,
        device_kind=_text(device, "kind", "device."),
        device_name=str(device.get("name") or ""),
        ranks=_integer(content.get("ranks")) or 0,
        reductions=_reductions(content),
        checks=tuple(map(_check, _sections(_list(content, "checks") if "checks" in content else []))),
        proven=_strings(content.get("proven")),
        not_proven=_strings(content.get("not_proven")),
        failure=_failure(_section(content.get("failure"))),
        diagnosis=tuple(map(_diagnosis, _sections(content.get("diagnosis")))),
        command=_command(_section(content.get("command"))),
        measured=_measured(_section(content.get("measured"))),
    )


def _reductions(content: dict[str, object]) -> tuple[Smaller, ...]:
    words = [str(one) for one in _list(content, "reductions")]
    told = _sections(content.get("reduced"))
    if len(told) != len(words):
        # Written before kinds were recorded: the words of a reduction then began with its kind and a colon.
        return tuple(Smaller(one.partition(":")[0].strip(), one) for one in words)
    return tuple(Smaller(str(one.get("kind")), said, one) for one, said in zip(told, words, strict=True))


def _failure(one: dict[str, object]) -> Failure | None:
    message = one.get("message")
    return Failure(str(message), _integer(one.get("rank")), _strings(one.get("detail"))) if message else None


def _check(one: dict[str, object]) -> Check:
    ok = one.get("ok")
    name, planned, seen, further = (str(one.get(key, "")) for key in ("name", "planned", "seen", "further"))
    return Check(name, planned, seen, ok if isinstance(ok, bool) else None, further)


def _diagnosis(one: dict[str, object]) -> Diagnosis:
    code, name, message, fix, why = (str(one.get(key) or "") for key in ("code", "name", "message", "fix", "why"))
    file = one.get("file")
    line, column = _integer(one.get("line")), _integer(one.get("column"))
    return Diagnosis(code, name, file if isinstance(file, str) else None, line, column, message, fix, why)


def _command(one: dict[str, object]) -> Command | None:
    line, loop = one.get("line"), one.get("loop")
    if not isinstance(line, str):
        return None
    return Command(line, loop if isinstance(loop, str) else None, list(_strings(one.get("notes"))))


def _measured(one: dict[str, object]) -> Measured:
    timeline = _section(one.get("timeline"))
    return Measured(
        seconds=number(one.get("seconds")),
        step_seconds=_numbers(one.get("step_seconds")),
        losses=_numbers(one.get("losses")),
        peaks=tuple(map(_integer, _items(one.get("peak_memory_bytes")))),
        memory=tuple(
            {phase: _sizes(counted) for phase, counted in _section(rank).items()} for rank in _items(one.get("memory"))
        ),
        start=tuple(map(_sizes, _items(one.get("memory_start")))),
        device_memory=_integer(one.get("device_memory_bytes")),
        of=str(timeline.get("of", "")),
        points=tuple(point for entry in _items(timeline.get("points")) if (point := _point(entry)) is not None),
        median=number(one.get("step_seconds_median")),
        first=number(one.get("step_seconds_first")),
        tokens=_integer(one.get("tokens_per_step")),
        tokens_per_second=number(one.get("tokens_per_second")),
        tflops=number(one.get("tflops")),
        predicted=_section(one.get("predicted")),
    )


def _sizes(counted: object) -> Sizes:
    return {name: number(size) for name, size in _section(counted).items()}


def _point(entry: object) -> tuple[float, int, str] | None:
    if not isinstance(entry, list) or len(entry) != 3:
        return None
    seconds, held, phase = number(entry[0]), _integer(entry[1]), entry[2]
    return (seconds, held, phase) if seconds is not None and held is not None and isinstance(phase, str) else None


def number(value: object) -> float | None:
    """A finite number; JSON as Python reads it also has others."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e18 else None


def _integer(value: object) -> int | None:
    found = number(value)
    return None if found is None else int(found)


def _numbers(value: object) -> tuple[float, ...]:
    return tuple(found for one in _items(value) if (found := number(one)) is not None)


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _section(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _sections(value: object) -> list[dict[str, object]]:
    return [one for one in _items(value) if isinstance(one, dict)]


def _strings(value: object) -> tuple[str, ...]:
    return tuple(map(str, _items(value)))


def _text(content: dict[str, object], key: str, of: str = "") -> str:
    value = content.get(key)
    if not isinstance(value, str):
        raise _wrong(content, key, "a text", of)
    return value


def _mapping(content: dict[str, object], key: str) -> dict[str, object]:
    value = content.get(key)
    if not isinstance(value, dict):
        raise _wrong(content, key, "a mapping")
    return value


def _list(content: dict[str, object], key: str) -> list[object]:
    value = content.get(key)
    if not isinstance(value, list):
        raise _wrong(content, key, "a list")
    return value


def _wrong(content: dict[str, object], key: str, wanted: str, of: str = "") -> CertificateError:
    what = "is missing" if key not in content else f"is not {wanted}"
    return CertificateError(f"is no certificate: `{of}{key}` {what}")


def _texts(content: dict[str, object], key: str) -> dict[str, str]:
    return {str(name): str(value) for name, value in _mapping(content, key).items()}


def _date(text: str) -> datetime.datetime:
    try:
        # Python 3.10 reads no "Z".
        date = datetime.datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    except ValueError:
        raise CertificateError(f"is no certificate: `date` is {text[:40]!r}, not a date as 2026-05-01") from None
    return date.replace(tzinfo=datetime.timezone.utc) if date.tzinfo is None else date
