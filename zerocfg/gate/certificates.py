"""Whether a run has a certificate that passed and covers these files, releases and hardware."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from zerocfg.catalog.versions import bounds, release
from zerocfg.emit import lock as lockfile
from zerocfg.gate.model import Reason, Target
from zerocfg.hardware.catalogue import find_accelerator
from zerocfg.run.discover import display_name
from zerocfg.smoke.certify.certificate_file import CertificateError, read, values_hash
from zerocfg.smoke.certify.code import code_hashes
from zerocfg.smoke.certify.signature import SignatureError, signer_of
from zerocfg.smoke.model.certificate import (
    CHANGE,
    ENGINE,
    LOADED,
    NAME,
    SAVED,
    STAGE,
    STEPS,
    WORLD_SIZE,
    Certificate,
    SmokeResult,
)
from zerocfg.source.load import read_bytes
from zerocfg.source.node import Problem

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.gate.policy import Policy
    from zerocfg.models.hardware import Accelerator

_ALWAYS_RUN = ("torch", "accelerate", "transformers")
"""What every smoke-run loads; deepspeed only where it is the engine."""

_ENGINES = ("deepspeed", "fsdp")
"""Of the others one process makes another one."""
_STAGE = "zero_optimization.stage"
SAVING = "saving"
"""The kind of the reduction of a run that saves no weights."""

SKEW = datetime.timedelta(days=1)
"""How far in the future a date may lie: clocks differ."""


def check_certificate(target: Target, policy: Policy, now: datetime.datetime) -> list[Reason]:
    """Why the certificate of a run does not count; nothing when its build is absent or unreadable."""
    lock = lockfile.read(target.folder)
    if lock is None:
        return []
    path = target.folder / NAME
    name, again = display_name(path), f"zerocfg smoke {display_name(target.folder)}"
    try:
        found = read(path)
    except FileNotFoundError:
        message = f"run {target.name} has no certificate"
        return [Reason("certificate", "certificate-missing", name, message, again, target.name)]
    except CertificateError as error:
        message = " ".join(str(error).split())
        kind = "certificate-unreadable"
        return [Reason("certificate", kind, name, message, again, target.name, error.line, error.column)]
    result = found.result
    if not result.passed or result.failed or result.failure or result.unmeasured or result.run != target.name:
        # Whatever else it says, it does not prove this run.
        kind, message = _void(result, target.name)
        return [Reason("certificate", kind, name, message, again, target.name)]
    pairs = [
        *_checks(found, lock),
        *_files(found, target.folder, lock),
        *(_code(found, target.folder, lock) if policy.code == "same" else []),
        *_versions(found, target, policy),
        *_hardware(result, target, policy),
        *_age(found, policy, now),
        *_reduced(result, policy),
        *(_signature(path, policy.signers, again) if policy.signers is not None else []),
    ]
    return [Reason("certificate", kind, name, message, help or again, target.name) for kind, message, help in pairs]


Found = list[tuple[str, str, str]]
"""Kind, message and remediation; an empty one: run the smoke-run again."""


def _void(found: SmokeResult, run: str) -> tuple[str, str]:
    if found.run != run:
        return "certificate-of-another-run", f"it covers run {found.run[:60]!r}, not {run!r}"
    if found.state != "failed" and found.unmeasured and not found.failed and found.failure is None:
        reasons = "; ".join(f"{name}: {why}" for name, why in found.not_measured.items())
        missing = f"the smoke-run of {run} did not measure {', '.join(found.unmeasured)}"
        return "certificate-unmeasured", f"{missing}{f' ({reasons[:160]})' if reasons else ''}"
    ended = found.failure.message if found.failure is not None else ""
    why = "; ".join(filter(None, (ended, ", ".join(found.failed[:3])))) or "no reason is given"
    return "certificate-failed", f"the smoke-run of {run} failed: {' '.join(why.split())[:200]}"


def _checks(found: Certificate, lock: lockfile.Lock) -> Found:
    """What every smoke-run of this plan checks, worked out again from the lock."""
    rows = {check.name: check for check in found.result.checks}
    wanted: dict[str, str | None] = {STEPS: None, WORLD_SIZE: str(found.result.ranks)}
    engine = str(lock.plan.get("engine"))
    if engine in _ENGINES:
        wanted[ENGINE] = engine
    if engine == "deepspeed" and lock.plan.get(_STAGE) is not None:
        wanted[STAGE] = str(lock.plan[_STAGE])
    if found.result.instruments and found.result.command is None:  # older certificates hold no essentials
        kinds = {reduction.kind for reduction in found.result.reductions}
        wanted |= dict.fromkeys((CHANGE,) if SAVING in kinds else (CHANGE, SAVED, LOADED))
    wrong = []
    for name, value in wanted.items():
        row = rows.get(name)
        if row is None or row.ok is not True:
            wrong.append(f"does not hold the check '{name}'")
        elif value is not None and not row.planned == row.seen == value:
            wrong.append(f"has '{row.seen[:40]}' as '{name}', which must be '{value}'")
    if not found.result.measured.losses and found.result.command is None:
        wrong.append("holds no losses")
    return [("certificate-incomplete", f"it says that it passed, but {', '.join(wrong)}", "")] if wrong else []


def _code(found: Certificate, folder: Path, lock: lockfile.Lock) -> Found:
    now, then = code_hashes(folder, lock), found.code
    if then is None:
        message = f"it does not say which {lock.script} was there ({_day(found)})"
        return [("certificate-stale", message, "")] if now else []
    other = [f"{name} is not the code that was there" for name in then if name in now and now[name] != then[name]]
    other += [f"{name} was part of the code" for name in then if name not in now]
    other += [f"{name} was no part of the code" for name in now if name not in then]
    more = f", and {len(other) - 3} more" if len(other) > 3 else ""
    return [("certificate-stale", f"{', '.join(other[:3])}{more} ({_day(found)})", "")] if other else []


def _signature(path: Path, signers: Path, again: str) -> Found:
    try:
        signer_of(path, signers)
    except SignatureError as error:
        kind = "certificate-unsigned" if error.missing else "certificate-signature"
        return [(kind, f"{error} (signers = {display_name(signers)})", f"{again} --sign KEY")]
    return []


def _files(found: Certificate, folder: Path, lock: lockfile.Lock) -> Found:
    other = []
    for name in lock.files:
        data = read_bytes(folder / name)
        if isinstance(data, Problem):
            continue  # reported by the check of the build
        if name not in found.files:
            other.append(f"{name} was not tested")
        elif lockfile.sha256(data) != found.files[name]:
            other.append(f"{name} is not the file that was tested")
    data = read_bytes(folder / lockfile.NAME)
    same = not isinstance(data, Problem) and lockfile.sha256(data) == found.files.get(lockfile.NAME)
    if not same and values_hash(lock) != found.values:
        other.append(f"{lockfile.NAME} does not have the values that were tested")
    return [("certificate-stale", f"{', '.join(other)} ({_day(found)})", "")] if other else []


def _versions(found: Certificate, target: Target, policy: Policy) -> Found:
    plan, run = target.emitted.plan, target.built.run
    needed = (*_ALWAYS_RUN, "deepspeed") if plan.engine == "deepspeed" else _ALWAYS_RUN
    wrong: Found = []
    for library in policy.versions:
        wanted = run.versions.get(library) or plan.versions.get(library)
        tested = found.versions.get(library)
        if wanted is None or (tested is None and library not in needed):
            continue
        places = run.version_places.get(library, ())
        where = next((place.file.name for place in places if place.file is not None), "the build's lock")
        if library in run.versions and not places:
            where = "the spec or [tool.zerocfg]"
        if tested is None:
            wrong.append(("certificate-version", f"it does not say which {library} was tested", ""))
        elif not allows(wanted, tested):
            message = f"it was tested with {library} {tested}, but {where} says {wanted}"
            help = f"install that {library} and run zerocfg smoke {display_name(target.folder)}"
            wrong.append(("certificate-version", message, help))
    return wrong


def allows(declared: str, version: str) -> bool:
    """Whether a declaration as ``>=0.18,<0.20`` admits a release; True where it is not understood."""
    limits = bounds(declared)
    if limits is None:
        return True
    low, high, closed = limits
    number = release(version.partition("+")[0])
    return low <= number and (number < high or (closed and number == high))


def _hardware(found: SmokeResult, target: Target, policy: Policy) -> Found:
    profile = target.emitted.plan.profile
    if profile is None or policy.hardware == "any":
        return []
    planned = profile.accelerator
    if alike(planned, found, policy.hardware):
        return []
    tested = found.device_kind if found.device_kind == "cpu" else found.device_name or found.device_kind
    message = (
        f"it was tested on {tested}, but {target.emitted.plan.hardware} is planned "
        f'(hardware = "{policy.hardware}" requires the same {policy.hardware})'
    )
    return [("certificate-hardware", message, f"zerocfg smoke {display_name(target.folder)} on such a machine")]


def alike(planned: Accelerator, found: SmokeResult, level: str) -> bool:
    """Whether the tested device is of the planned one's class. An unknown device is alike only under its own name."""
    if found.device_kind == "cpu" or planned.vendor == "cpu":
        return found.device_kind == "cpu" and planned.vendor == "cpu"
    entry = find_accelerator(found.device_name)
    own = find_accelerator(planned.name)
    if found.device_name == planned.name or (entry is not None and own is not None and entry[0].name == own[0].name):
        return True
    if level == "accelerator":
        return False
    vendor = (
        entry[0].vendor
        if entry is not None
        else next((item for item in ("nvidia", "amd", "intel") if item in found.device_name.lower()), None)
    )
    if vendor != planned.vendor:
        return False
    architecture = entry[0].architecture if entry is not None else None
    return level == "vendor" or (architecture is not None and architecture == planned.architecture)


def _age(found: Certificate, policy: Policy, now: datetime.datetime) -> Found:
    age = now - found.date
    if age < -SKEW:
        return [("certificate-date", f"its date, {found.date:%Y-%m-%d}, is in the future", "")]
    if policy.max_age_days is None or age <= datetime.timedelta(days=policy.max_age_days):
        return []
    message = f"{_day(found)}, {age.days} days ago; max-age-days allows {policy.max_age_days:g}"
    return [("certificate-expired", message, "")]


def _day(found: Certificate) -> str:
    return f"tested on {found.date:%Y-%m-%d}"


def _reduced(found: SmokeResult, policy: Policy) -> Found:
    if policy.allow_reduced is None:
        return []
    allowed = policy.allow_reduced
    return [
        (
            "certificate-reduced",
            f"the smoke-run was smaller than planned: {reduction.words[:160]}; allow-reduced has no '{reduction.kind}'",
            "test it on a larger machine, or add that kind",
        )
        for reduction in found.reductions
        if reduction.kind not in allowed
    ]
