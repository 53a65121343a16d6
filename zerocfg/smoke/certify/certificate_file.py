"""``smoke.json``: the file of a certificate. Written by `smoke`, read by `gate` and the page; it may have been edited.

Reading needs no training library and none of zerocfg's other smoke modules.
"""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING

from zerocfg.emit.lenient_json import integer, items, mapping, mappings, number, numbers, text, texts
from zerocfg.emit.lock import sha256
from zerocfg.smoke.certify.signature import signature_of
from zerocfg.smoke.model.certificate import (
    NAME,
    VERSION,
    Certificate,
    Check,
    Command,
    Diagnosis,
    Failure,
    Measured,
    RecordedReduction,
    Sizes,
    SmokeResult,
    VerdictState,
)
from zerocfg.source.load import read_bytes
from zerocfg.source.node import Problem
from zerocfg.source.write import write_atomic
from zerocfg.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.emit.lock import Lock

_SAY_NOTHING = ("zerocfg", "spec_folder", "inputs", "files", "notes", "considered", "versions")
"""Parts of a lock that a smoke-run does not depend on, or that a certificate holds on its own."""


class CertificateError(ValueError):
    """A certificate that cannot be read. ``line`` and ``column`` (from 1) tell where, 0: the whole file."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


def write(
    folder: Path,
    seen: SmokeResult,
    *,
    steps: int,
    versions: dict[str, str],
    files: dict[str, str],
    lock: Lock,
    code: dict[str, str] | None = None,
) -> Path:
    """Write the certificate of the run in ``folder``. Raises OSError when it cannot be written there.

    ``files``, ``code``: the hashes of what was tested (`code_hashes`). The signature of an earlier one goes away.
    """
    now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    own = {"zerocfg": __version__, **versions}
    certificate = Certificate(seen, now, steps, own, dict(sorted(files.items())), values_hash(lock), code)
    path = folder / NAME
    signature_of(path).unlink(missing_ok=True)
    write_atomic(path, (json.dumps(certificate.data(), indent=2) + "\n").encode())
    return path


def values_hash(lock: Lock) -> str:
    """SHA-256 of what a lock says about the run itself: its values, not the reasons and places of them.

    A comment in a source file changes the lock, and proves nothing less.
    """
    said = {
        key: {name: _value(item) for name, item in part.items()}
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
    return parse(data)


def parse(data: bytes) -> Certificate:
    """The certificate in the bytes of a file. Raises CertificateError for what is none."""
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
    return Certificate(
        smoke_result(content),
        _date(_needed_text(content, "date")),
        integer(content.get("steps")),
        _needed_texts(content, "versions"),
        _needed_texts(content, "files"),
        text(content.get("values")),
        _needed_texts(content, "code") if "code" in content else None,
    )


def smoke_result(content: dict[str, object]) -> SmokeResult:
    """The verdict that a mapping holds: what the gate goes by must be there, the rest is read as far as it fits.

    Raises CertificateError.
    """
    device, passed = _needed_mapping(content, "device"), content.get("passed")
    if not isinstance(passed, bool):
        raise _wrong(content, "passed", "true or false")
    return SmokeResult(
        run=_needed_text(content, "run"),
        state=_state(content.get("verdict"), passed),
        device_kind=_needed_text(device, "kind", "device."),
        device_name=str(device.get("name") or ""),
        ranks=integer(content.get("ranks")) or 0,
        reductions=_reductions(content),
        checks=tuple(map(_check, mappings(_needed_list(content, "checks") if "checks" in content else []))),
        proven=texts(content.get("proven")),
        not_proven=texts(content.get("not_proven")),
        failure=_failure(mapping(content.get("failure"))),
        diagnosis=tuple(map(_diagnosis, mappings(content.get("diagnosis")))),
        command=_command(mapping(content.get("command"))),
        measured=_measured(mapping(content.get("measured"))),
        unmeasured=texts(content.get("unmeasured")),
        instruments=texts(content.get("instruments")),
        not_measured={str(name): str(why) for name, why in mapping(content.get("not_measured")).items()},
    )


def _state(verdict: object, passed: bool) -> VerdictState:
    """A certificate from before there were verdicts says only whether it passed; one that contradicts itself failed."""
    if verdict == "incomplete" and not passed:
        return "incomplete"
    return "passed" if passed and verdict in ("passed", None) else "failed"


def _reductions(content: dict[str, object]) -> tuple[RecordedReduction, ...]:
    words = [str(item) for item in _needed_list(content, "reductions")]
    recorded = mappings(content.get("reduced"))
    if len(recorded) != len(words):
        # Written before kinds were recorded: the words of a reduction then began with its kind and a colon.
        return tuple(RecordedReduction(word.partition(":")[0].strip(), word) for word in words)
    return tuple(
        RecordedReduction(str(item.get("kind")), said, item) for item, said in zip(recorded, words, strict=True)
    )


def _failure(item: dict[str, object]) -> Failure | None:
    message = item.get("message")
    if not message:
        return None
    return Failure(str(message), integer(item.get("rank")), texts(item.get("detail")), text(item.get("stage")) or "")


def _check(item: dict[str, object]) -> Check:
    ok = item.get("ok")
    name, planned, seen, further = (str(item.get(key, "")) for key in ("name", "planned", "seen", "further"))
    measured = item.get("measured") is not False
    return Check(name, planned, seen, ok if isinstance(ok, bool) else None, further, measured)


def _diagnosis(item: dict[str, object]) -> Diagnosis:
    code, name, message, fix, why = (str(item.get(key) or "") for key in ("code", "name", "message", "fix", "why"))
    line, column = integer(item.get("line")), integer(item.get("column"))
    return Diagnosis(code, name, text(item.get("file")), line, column, message, fix, why)


def _command(item: dict[str, object]) -> Command | None:
    line = text(item.get("line"))
    return None if line is None else Command(line, text(item.get("loop")), list(texts(item.get("notes"))))


def _measured(item: dict[str, object]) -> Measured:
    timeline = mapping(item.get("timeline"))
    return Measured(
        seconds=number(item.get("seconds")),
        step_seconds=numbers(item.get("step_seconds")),
        losses=numbers(item.get("losses")),
        peaks=tuple(map(integer, items(item.get("peak_memory_bytes")))),
        memory=tuple(
            {phase: _sizes(counted) for phase, counted in mapping(rank).items()} for rank in items(item.get("memory"))
        ),
        start=tuple(map(_sizes, items(item.get("memory_start")))),
        device_memory=integer(item.get("device_memory_bytes")),
        of=str(timeline.get("of", "")),
        points=tuple(point for entry in items(timeline.get("points")) if (point := _point(entry)) is not None),
        median=number(item.get("step_seconds_median")),
        first=number(item.get("step_seconds_first")),
        collectives=tuple(
            {kind: _sizes(counted) for kind, counted in mapping(rank).items()}
            for rank in items(item.get("communication"))
        ),
        tokens=integer(item.get("tokens_per_step")),
        tokens_per_second=number(item.get("tokens_per_second")),
        tflops=number(item.get("tflops")),
        predicted=mapping(item.get("predicted")),
    )


def _sizes(counted: object) -> Sizes:
    return {name: number(size) for name, size in mapping(counted).items()}


def _point(entry: object) -> tuple[float, int, str] | None:
    if not isinstance(entry, list) or len(entry) != 3:
        return None
    seconds, allocated, phase = number(entry[0]), integer(entry[1]), entry[2]
    return (
        (seconds, allocated, phase)
        if seconds is not None and allocated is not None and isinstance(phase, str)
        else None
    )


def _needed_text(content: dict[str, object], key: str, of: str = "") -> str:
    value = content.get(key)
    if not isinstance(value, str):
        raise _wrong(content, key, "a text", of)
    return value


def _needed_mapping(content: dict[str, object], key: str) -> dict[str, object]:
    value = content.get(key)
    if not isinstance(value, dict):
        raise _wrong(content, key, "a mapping")
    return value


def _needed_list(content: dict[str, object], key: str) -> list[object]:
    value = content.get(key)
    if not isinstance(value, list):
        raise _wrong(content, key, "a list")
    return value


def _wrong(content: dict[str, object], key: str, wanted: str, of: str = "") -> CertificateError:
    what = "is missing" if key not in content else f"is not {wanted}"
    return CertificateError(f"is no certificate: `{of}{key}` {what}")


def _needed_texts(content: dict[str, object], key: str) -> dict[str, str]:
    return {str(name): str(value) for name, value in _needed_mapping(content, key).items()}


def _date(said: str) -> datetime.datetime:
    try:
        # Python 3.10 reads no "Z".
        date = datetime.datetime.fromisoformat(said[:-1] + "+00:00" if said.endswith("Z") else said)
    except ValueError:
        raise CertificateError(f"is no certificate: `date` is {said[:40]!r}, not a date as 2026-05-01") from None
    return date.replace(tzinfo=datetime.timezone.utc) if date.tzinfo is None else date
