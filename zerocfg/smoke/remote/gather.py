"""What came of the smoke-run of a build on a cluster: one result of what all of its nodes said."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerocfg.cluster.job import State
from zerocfg.smoke.certify import certificate_file
from zerocfg.smoke.certify.certificate_file import CertificateError
from zerocfg.smoke.certify.code import code_hashes
from zerocfg.smoke.certify.current import is_certified
from zerocfg.smoke.certify.signature import SignatureError, sign
from zerocfg.smoke.model.certificate import NAME
from zerocfg.source.foreign import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.cluster.events import Event
    from zerocfg.cluster.wait import Progress
    from zerocfg.smoke.model.certificate import VerdictState
    from zerocfg.smoke.prepare.folder import RunFolder


@dataclass(frozen=True)
class RemoteResult:
    """``problem``: why there is no verdict; else ``text`` and ``data`` are that of the node that tells most.

    ``notes``: lines about the certificate. ``earlier``: it is what a certificate says that was there before the job.
    """

    path: Path
    name: str
    state: VerdictState = "failed"
    problem: str | None = None
    text: str = ""
    data: dict[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    earlier: bool = False

    @property
    def passed(self) -> bool:
        return self.state == "passed"


def certified(run: RunFolder) -> RemoteResult | None:
    """What the certificate beside a build says, where it is of what is here now."""
    if not is_certified(run):
        return None
    found = certificate_file.read(run.path / NAME).result
    return RemoteResult(run.path, run.name, "passed", data=found.data(), earlier=True)


def gather(run: RunFolder, seen: Progress, nodes: int, key: Path | None = None) -> RemoteResult:
    """The result of a task that is over; writes the certificate of its first node beside the build, if there is one.

    ``key`` signs it.
    """
    problem = _problem(seen, nodes)
    if problem is not None:
        return RemoteResult(run.path, run.name, problem=problem)
    verdicts = [event for node in range(nodes) if (event := seen.last(node, "verdict")) is not None]
    failed = [verdict for verdict in verdicts if verdict.get("passed") is not True]
    shown = min(failed, key=_remoteness, default=verdicts[0])
    text, data = shown.get("text"), shown.get("data")
    notes = _certified(run, verdicts[0].get("certificate"), key) if shown is verdicts[0] else ()
    if failed and nodes > 1:
        notes = (f"this is what {_names(seen, nodes)[verdicts.index(shown)]} says", *notes)
    return RemoteResult(
        run.path,
        run.name,
        state_of(shown),
        None,
        text if isinstance(text, str) else "",
        data if isinstance(data, dict) else {},
        notes,
    )


def state_of(verdict: Event) -> VerdictState:
    """The verdict that a node's event holds."""
    data = verdict.get("data")
    said = data.get("verdict") if isinstance(data, dict) else None
    return "passed" if verdict.get("passed") is True else "incomplete" if said == "incomplete" else "failed"


def _names(seen: Progress, nodes: int) -> list[str]:
    return [*seen.hosts, *(f"node {number}" for number in range(len(seen.hosts), nodes))]


def _remoteness(verdict: Event) -> tuple[int, float]:
    """How far from a node its failure began: at one of its ranks, on it, or elsewhere, so that it was asked to end.

    A rank that raised may have lost a partner that was killed on another node, or that raised sooner (seconds by the
    clocks of the nodes; it ends before its partners notice).
    """
    data, failed_at = verdict.get("data"), verdict.get("failed_at")
    failure = data.get("failure") if isinstance(data, dict) else None
    at = failed_at if isinstance(failed_at, int | float) else math.inf
    if isinstance(failure, dict) and failure.get("rank") is not None:
        return int(verdict.get("cause") == "error"), at
    return 3 if verdict.get("interrupted") is True else 2, at


def _problem(seen: Progress, nodes: int) -> str | None:
    """Why there is no verdict of all nodes; None where there is."""
    if seen.state.state is State.CANCELLED:
        return "the job was cancelled"
    names = _names(seen, nodes)
    for node in range(nodes):
        problem = seen.last(node, "problem")
        if problem is not None:
            return f"{names[node]}: {one_line(str(problem.get('text', '')))}"
    silent = seen.silent(nodes)
    why = f": {one_line(seen.reason)}" if seen.reason else ""
    if len(silent) == nodes:
        return f"the smoke-run never started{why}"
    if silent:
        return f"{', '.join(silent)} never started the smoke-run{why}"
    for node in range(nodes):
        if seen.last(node, "verdict") is None:
            phase = seen.last(node, "phase")
            at = f" (last: {one_line(str(phase.get('text', '')))})" if phase is not None else ""
            return f"{names[node]} ended without a verdict{at}{why}"
    return None


def _certified(run: RunFolder, text: object, key: Path | None) -> tuple[str, ...]:
    """Write the certificate that the first node made, if it is of the files that are here, with the code that is."""
    if not isinstance(text, str):
        return ()
    try:
        found = certificate_file.parse(text.encode())
    except CertificateError as error:
        return (f"certificate: not written, what the node made {error}",)
    differing = [name for name, digest in run.hashes.items() if found.files.get(name) != digest]
    if differing:
        return (f"certificate: not written, {differing[0]} is not the file that ran",)
    try:
        path = certificate_file.write(
            run.path,
            found.result,
            steps=found.steps or 0,
            versions=found.versions,
            files=found.files,
            lock=run.lock,
            code=code_hashes(run.path, run.lock),
        )
        if key is not None:
            sign(path, key)
    except OSError as error:
        return (f"certificate: not written, {run.path}: {error.strerror or error}",)
    except SignatureError as error:
        return (f"certificate: {path}", f"not signed, {error}")
    return (f"certificate: {path}",)
