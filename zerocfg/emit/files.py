"""From a plan to the bytes of the files of its folder."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.emit import accelerate_yaml, deepspeed_json, launch_sh, lock

if TYPE_CHECKING:
    from zerocfg.resolve.plan import Plan

ACCELERATE = "accelerate.yaml"
DEEPSPEED = "ds_config.json"
LAUNCH = "launch.sh"


@dataclass(slots=True)
class Emitted:
    """The files of one run, by name, and the folder that they go to."""

    plan: Plan
    folder: Path
    files: dict[str, bytes]


def emit(plan: Plan, out: Path) -> Emitted:
    """The files of a plan below ``out``; nothing is written."""
    folder = out / plan.name
    spec_from_here = relative(plan.folder, folder)
    here_from_spec = relative(folder, plan.folder)
    files: dict[str, bytes] = {}
    if plan.accelerate:
        files[ACCELERATE] = accelerate_yaml.render(_located(plan, here_from_spec)).encode()
    if plan.deepspeed:
        files[DEEPSPEED] = deepspeed_json.render(plan).encode()
    files[LAUNCH] = launch_sh.render(plan, spec_from_here, here_from_spec).encode()
    inputs = {
        role: {"path": relative(path, plan.folder), "sha256": lock.sha256(path.read_bytes())}
        for role, path in sorted(plan.inputs.items())
    }
    files[lock.NAME] = lock.render(plan, files, inputs, spec_from_here).encode()
    return Emitted(plan, folder, files)


def _located(plan: Plan, here: str) -> Plan:
    """The plan with the path of its DeepSpeed file as the launched job sees it: from the spec's folder."""
    name = "deepspeed_config.deepspeed_config_file"
    if name not in plan.accelerate:
        return plan
    located = replace(plan.accelerate[name], value=f"{here}/{DEEPSPEED}")
    return replace(plan, accelerate={**plan.accelerate, name: located})


def relative(path: Path, start: Path) -> str:
    """``path`` as seen from the folder ``start``, with forward slashes."""
    return Path(os.path.relpath(path.resolve(), start.resolve())).as_posix()
