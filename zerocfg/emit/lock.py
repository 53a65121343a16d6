"""The lock: what was built from what, and why every value is what it is."""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import TYPE_CHECKING, Any

from zerocfg.source.load import MAX_BYTES, read_bytes
from zerocfg.source.node import Problem
from zerocfg.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.resolve.plan import Considered, Decision, Plan

NAME = "zerocfg.lock"
_SECRET = re.compile(r"(^|[._])(token|secret|password|passwd|api_?key|access_key|credentials?)$", re.IGNORECASE)
_CACHED = re.compile(r"(?:^|/)models--([^/]+)/(?:snapshots|blobs)/")
HUB = "hub:"
"""What the path of a file in the hub's cache starts with."""

VERSION = 2
READABLE = (1, 2)
"""Versions that can be read. 1 names its hardware only, and knows neither places nor inputs of values."""

RUNNERS_UP = 8
_WIDTH = 100
"""Columns up to which a list, or an item of one, stays on one line."""


class LockError(ValueError):
    """A lock that cannot be read; the text names the file and says what to do."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def render(plan: Plan, files: dict[str, bytes], inputs: dict[str, dict[str, str]], spec_folder: str) -> str:
    """The text of ``zerocfg.lock``: JSON without dates and without absolute paths.

    ``files`` are the emitted files by name, ``inputs`` the source files by role: {"path", "sha256"}; ``spec_folder`` is
    the folder of the spec as seen from the lock's own.
    """
    settings = plan.settings
    summary = {
        name: settings[name].value
        for name in (
            "zero_optimization.stage",
            "zero_optimization.offload_optimizer.device",
            "zero_optimization.offload_param.device",
            "train_batch_size",
            "train_micro_batch_size_per_gpu",
            "gradient_accumulation_steps",
            "gradient_clipping",
            "bf16.enabled",
            "fp16.enabled",
        )
        if name in settings
    }
    lock: dict[str, Any] = {
        "version": VERSION,
        "zerocfg": __version__,
        "run": plan.name,
        "spec_folder": spec_folder,
        "consumer": plan.consumer,
        "script": plan.script,
        "arguments": plan.arguments,
        "launcher": plan.launcher,
        "hosts": plan.hosts,
        "hardware": hardware_facts(plan.hardware, plan.profile),
        "model": {"config": plan.model_config, "facts": plan.model_facts},
        "recipe": dict(sorted(without_secrets(plan.recipe).items())),
        "plan": {
            "engine": plan.engine,
            "num_processes": plan.num_processes,
            "num_machines": plan.num_machines,
            **summary,
        },
        "settings": _decisions(settings),
        "accelerate": _decisions(plan.accelerate),
        "changes": _decisions(plan.changes),
        "considered": _considered(plan.considered),
        "notes": plan.notes,
        "versions": dict(sorted(plan.versions.items())),
        "inputs": {role: {**entry, "path": _portable(entry["path"])} for role, entry in sorted(inputs.items())},
        "files": {name: sha256(data) for name, data in sorted(files.items())},
    }
    return _text(_strict(lock)) + "\n"


def hardware_facts(name: str, profile: HardwareProfile | None) -> dict[str, Any]:
    """What values depend on; nothing that is another figure tomorrow (free memory and space, the date of a probe).

    Memory in GiB (2^30 bytes) to plan with, bandwidths in GB/s as vendors print them, memlock in bytes.
    """
    if profile is None:
        return {"name": name}
    device, host = profile.accelerator, profile.host
    facts: dict[str, Any] = {
        "name": name,
        "nodes": profile.nodes,
        "accelerators_per_node": profile.accelerators_per_node,
        "world_size": profile.world_size,
        "accelerator": device.name,
        "vendor": device.vendor,
        "architecture": device.architecture,
        "memory_gib": None if device.planning_gib is None else round(device.planning_gib, 2),
        "bf16": device.bf16,
        "fp8": device.fp8,
        "link_within_node": profile.link_within_node.kind if profile.link_within_node else None,
        "link_between_nodes": profile.link_between_nodes.kind if profile.link_between_nodes else None,
    }
    if host is not None:
        facts["host_memory_gib"] = None if host.planning_gib is None else round(host.planning_gib, 1)
        facts["memlock_bytes"] = host.memlock
        facts["nvme"] = sorted(mount.path for mount in host.nvme)
    return {key: value for key, value in facts.items() if value not in (None, [])}


def read(folder: Path) -> dict[str, Any] | None:
    """The lock in a folder, or None when there is none that this zerocfg can read."""
    try:
        return load(folder / NAME)
    except LockError:
        return None


def load(path: Path) -> dict[str, Any]:
    """The lock in a file. Raises LockError for anything else, a lock of a newer zerocfg included."""
    data = read_bytes(path)
    if isinstance(data, Problem):
        raise LockError(f"{path}: {data.message}")
    if len(data) > MAX_BYTES:
        raise LockError(f"{path}: is larger than {MAX_BYTES // 2**20} MiB; no lock is")
    try:
        lock: Any = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise LockError(f"{path}: is no {NAME}: {why}; build the run again") from None
    found: dict[str, Any] = lock if isinstance(lock, dict) else {}
    version = found.get("version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise LockError(f"{path}: is no {NAME}: it has no `version`; build the run again")
    if version not in READABLE:
        writer = found.get("zerocfg")
        by = f" (zerocfg {writer})" if isinstance(writer, str) else ""
        raise LockError(f"{path}: has version {version}{by}; this zerocfg {__version__} reads {READABLE[-1]} at most")
    for key in ("files", "settings"):
        if not isinstance(found.get(key, {}), dict):
            raise LockError(f"{path}: `{key}` is no mapping; build the run again")
    if not isinstance(found.get("files"), dict):
        raise LockError(f"{path}: `files` is missing; build the run again")
    return found


def without_secrets(value: Any) -> Any:
    """A recipe may hold a hub token or, for TRL, variables with API keys; a lock is made to be shared."""
    if isinstance(value, dict):
        return {
            name: "(not recorded)" if _SECRET.search(str(name)) and item else without_secrets(item)
            for name, item in value.items()
        }
    return [without_secrets(item) for item in value] if isinstance(value, list) else value


def _decisions(found: dict[str, Decision]) -> dict[str, Any]:
    return {name: _decision(name, one) for name, one in sorted(found.items())}


def _decision(name: str, one: Decision) -> dict[str, Any]:
    row: dict[str, Any] = {"value": without_secrets({name: one.value})[name], "reason": one.reason, "kind": one.kind}
    if one.place:
        row["place"] = one.place
    if one.inputs:
        row["inputs"] = dict(sorted(one.inputs.items()))
    return row


def _considered(plans: list[Considered]) -> dict[str, Any]:
    """The plans that were compared, in short: the one taken, and those that came next with what excluded them."""
    if not plans:
        return {}
    taken = next((one for one in plans if not one.excluded), None)
    others = [one for one in plans if one is not taken][:RUNNERS_UP]
    return {
        "compared": len(plans),
        "taken": None if taken is None else _plan(taken),
        "runners_up": [_plan(one) for one in others],
    }


def _plan(one: Considered) -> dict[str, Any]:
    row: dict[str, Any] = {"settings": dict(sorted(one.settings.items())), "verdict": one.verdict}
    if one.device_gib is not None:
        row["device_gib"] = float(f"{one.device_gib:.2f}")
    if one.seconds_per_token is not None:
        row["seconds_per_token"] = float(f"{one.seconds_per_token:.3g}")
    if one.excluded:
        row["excluded"] = one.excluded
    return row


def _portable(path: str) -> str:
    """A file of the hub's cache by the model's name: where the cache lies is another place on every machine."""
    cached = _CACHED.search(path)
    return HUB + cached[1].replace("--", "/") if cached else path


def _strict(value: Any) -> Any:
    """Strict JSON knows no infinity; DeepSpeed's ``steps_per_print`` may be one."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(name): _strict(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def _text(value: Any, indent: str = "") -> str:
    """Indented JSON in which a mapping has a line for every key, and a list that is short enough stays on one."""
    inner = indent + "  "
    if isinstance(value, dict) and value:
        rows = [f"{inner}{_plain(name)}: {_text(item, inner)}" for name, item in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    if isinstance(value, list) and value:
        line = _plain(value)
        if len(indent) + len(line) <= _WIDTH:
            return line
        rows = [
            line if len(inner + line) <= _WIDTH else _text(item, inner) for item in value for line in [_plain(item)]
        ]
        return "[\n" + ",\n".join(inner + row for row in rows) + f"\n{indent}]"
    return _plain(value)


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
