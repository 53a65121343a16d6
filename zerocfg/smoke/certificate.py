"""``smoke.json``: what a smoke-run proved, of which files, on what. Written by `smoke`, read by `gate`.

Reading needs no training library and none of zerocfg's other smoke modules.
"""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    """What was not as planned: the value of a `zerocfg.smoke.reduction.Kind`, and the words for people."""

    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a smoke-run proved.

    ``date`` is in UTC. ``device_kind`` is "cpu" or "cuda", ``device_name`` as the driver calls it. ``reductions``: what
    was smaller than planned, ``failed`` which checks failed, ``failure`` why the run did not end (None
    when it did). ``versions`` are the releases that ran, ``files`` the SHA-256 of the files that were tested, by
    name; ``values`` that of what the lock said (`values_hash`), None where it was not recorded.
    """

    run: str
    passed: bool
    date: datetime.datetime
    device_kind: str
    device_name: str
    reductions: tuple[Smaller, ...]
    failed: tuple[str, ...]
    failure: str | None
    versions: dict[str, str]
    files: dict[str, str]
    values: str | None = None


def write(
    folder: Path,
    content: dict[str, Any],
    *,
    steps: int,
    versions: dict[str, str],
    files: dict[str, str],
    lock: Lock,
) -> Path:
    """Write the certificate of the run in ``folder``. Raises OSError when it cannot be written there.

    ``content`` is the verdict (`zerocfg.smoke.smoke.data`), ``files`` the hashes of what was tested.
    """
    now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    content = content | {
        "date": now.isoformat(),
        "steps": steps,
        "versions": {"zerocfg": __version__, **versions},
        "files": dict(sorted(files.items())),
        "values": values_hash(lock),
    }
    path = folder / NAME
    write_atomic(path, (json.dumps(content, indent=2) + "\n").encode())
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


def _certificate(content: dict[str, Any]) -> Certificate:
    device = _part(content, "device", dict)
    checks = _part(content, "checks", list) if "checks" in content else []
    failure = content.get("failure")
    values = content.get("values")
    return Certificate(
        run=_part(content, "run", str),
        passed=_part(content, "passed", bool),
        date=_date(_part(content, "date", str)),
        device_kind=_part(device, "kind", str, "device."),
        device_name=str(device.get("name") or ""),
        reductions=_reductions(content),
        failed=tuple(str(one.get("name")) for one in checks if isinstance(one, dict) and one.get("ok") is False),
        failure=str(failure["message"]) if isinstance(failure, dict) and failure.get("message") else None,
        versions=_texts(content, "versions"),
        files=_texts(content, "files"),
        values=values if isinstance(values, str) else None,
    )


def _reductions(content: dict[str, Any]) -> tuple[Smaller, ...]:
    words = [str(one) for one in _part(content, "reductions", list)]
    told = content.get("reduced")
    kinds = [one.get("kind") for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    if len(kinds) != len(words):
        # Written before kinds were recorded: the words of a reduction then began with its kind and a colon.
        kinds = [one.partition(":")[0].strip() for one in words]
    return tuple(Smaller(str(kind), one) for kind, one in zip(kinds, words, strict=True))


_KINDS = {str: "a text", bool: "true or false", dict: "a mapping", list: "a list"}


def _part(content: dict[str, Any], key: str, kind: Any, of: str = "") -> Any:
    value = content.get(key)
    if not isinstance(value, kind):
        what = "is missing" if key not in content else f"is not {_KINDS[kind]}"
        raise CertificateError(f"is no certificate: `{of}{key}` {what}")
    return value


def _texts(content: dict[str, Any], key: str) -> dict[str, str]:
    return {str(name): str(value) for name, value in _part(content, key, dict).items()}


def _date(text: str) -> datetime.datetime:
    try:
        # Python 3.10 reads no "Z".
        date = datetime.datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    except ValueError:
        raise CertificateError(f"is no certificate: `date` is {text[:40]!r}, not a date as 2026-05-01") from None
    return date.replace(tzinfo=datetime.timezone.utc) if date.tzinfo is None else date
