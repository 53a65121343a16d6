"""The lock: what was built from what, and why every value is what it is."""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import TYPE_CHECKING, Any

from zerocfg import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.resolve.plan import Plan

NAME = "zerocfg.lock"
_SECRET = re.compile(r"(^|_)(token|secret|password|passwd|api_?key|access_key|credentials?)$", re.IGNORECASE)
VERSION = 1


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def render(plan: Plan, files: dict[str, bytes], inputs: dict[str, dict[str, str]]) -> str:
    """The text of ``zerocfg.lock``: JSON without dates and without absolute paths.

    ``files`` are the emitted files by name, ``inputs`` the source files by role: {"path", "sha256"}.
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
        "consumer": plan.consumer,
        "script": plan.script,
        "arguments": plan.arguments,
        "hardware": plan.hardware,
        "model": {"config": plan.model_config, "facts": plan.model_facts},
        "recipe": _without_secrets(plan.recipe),
        "plan": {
            "engine": plan.engine,
            "num_processes": plan.num_processes,
            "num_machines": plan.num_machines,
            **summary,
        },
        "settings": {
            name: {"value": decision.value, "reason": decision.reason, "kind": decision.kind}
            for name, decision in sorted(settings.items())
        },
        "notes": plan.notes,
        "versions": dict(sorted(plan.versions.items())),
        "inputs": inputs,
        "files": {name: sha256(data) for name, data in sorted(files.items())},
    }
    return json.dumps(_strict(lock), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read(folder: Path) -> dict[str, Any] | None:
    """The lock in a folder, or None when there is none that zerocfg wrote."""
    try:
        lock = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if isinstance(lock, dict) and lock.get("version") == VERSION and isinstance(lock.get("files"), dict):
        return lock
    return None


def _without_secrets(value: Any) -> Any:
    """A recipe may hold a hub token or, for TRL, variables with API keys; a lock is made to be shared."""
    if isinstance(value, dict):
        return {
            name: "(not recorded)" if _SECRET.search(str(name)) and item else _without_secrets(item)
            for name, item in value.items()
        }
    return [_without_secrets(item) for item in value] if isinstance(value, list) else value


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
