"""The job of a plan for a Ray cluster: a script that submits it, its runtime environment, and a driver that runs
launch.sh once on each node."""

from __future__ import annotations

import json
from importlib import resources
from io import StringIO
from shlex import quote
from typing import TYPE_CHECKING

from ruamel.yaml import YAML

from zerocfg.emit.travel import stays_behind
from zerocfg.emit.values import one_line
from zerocfg.resolve.plan import Problem

if TYPE_CHECKING:
    from zerocfg.models.spec import Ray
    from zerocfg.resolve.plan import Plan

SUBMIT, DRIVER, ENVIRONMENT = "ray_job.sh", "ray_driver.py", "ray_env.yaml"
RESOURCES = {"nvidia": "GPU", "amd": "GPU", "intel": "GPU", "habana": "HPU"}
"""What Ray calls the devices of the vendors."""
OURS = ("working_dir",)
"""Keys of the runtime environment that follow from the spec."""

_SUBMIT = """#!/usr/bin/env bash
# Submits the run %(name)s on %(hardware)s to the Ray cluster that RAY_API_SERVER_ADDRESS names. Written by zerocfg.
# Words given to it are handed on to the training script. %(travels)s
set -euo pipefail
cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")"/%(spec)s
exec ray job submit --working-dir %(working)s --runtime-env %(environment)s -- python %(driver)s "$@"
"""


def render(plan: Plan, ray: Ray, folder: str, here: str) -> dict[str, str]:
    """The texts by name. ``folder``: the spec's folder as seen from theirs; ``here``: the other way round."""
    submit = _SUBMIT % {
        "name": plan.name,
        "hardware": one_line(plan.hardware),
        "spec": quote(folder),
        "environment": quote(f"{here}/{ENVIRONMENT}"),
        "travels": "The spec's folder travels with the job."
        if ray.folder is None
        else "Nothing but this folder travels.",
        "working": "." if ray.folder is None else quote(here),
        "driver": quote(f"{here}/{DRIVER}" if ray.folder is None else DRIVER),
    }
    text = StringIO()
    yaml = YAML()
    yaml.width = 10_000
    yaml.dump(ray.runtime_env, text)
    return {
        SUBMIT: submit,
        ENVIRONMENT: f"# The runtime environment of the run {plan.name}. Written by zerocfg.\n{text.getvalue()}",
        DRIVER: _driver(plan, ray, here),
    }


def _driver(plan: Plan, ray: Ray, here: str) -> str:
    device = resource_of(plan)
    bundle = {"CPU": plan.cpus_per_node or 1} | ({device: plan.num_processes // plan.num_machines} if device else {})
    facts = {
        "NODES": str(plan.num_machines),
        "BUNDLE": json.dumps(bundle),
        "LAUNCH": repr("/".join([*([ray.folder] if ray.folder else []), here, "launch.sh"])),
        "SETUP": repr(list(ray.setup)),
        "NAME": plan.name,
        "HARDWARE": one_line(plan.hardware),
    }
    text = (resources.files("zerocfg.emit") / "templates" / "ray_driver.txt").read_text(encoding="utf-8")
    for name, value in facts.items():
        text = text.replace(f"<{name}>", value)
    return text


def resource_of(plan: Plan) -> str | None:
    """Ray's name of the devices; None without devices, or where nothing tells whose they are."""
    return RESOURCES.get(plan.vendor or "")


def problems(plan: Plan, ray: Ray) -> list[Problem]:
    """What Ray would refuse, or that would ask for something else than was planned."""
    found = []
    if plan.vendor is None:
        message = f"{plan.hardware!r} does not tell whose devices it has, so there is nothing to ask Ray for"
        found.append(
            Problem("targets.ray", message, "Say `hardware: NODESxDEVICESxNAME` with a device that zerocfg knows.")
        )
    if ray.folder is None:
        found += stays_behind(plan, "targets.ray.folder", "Say in `folder:` where the spec's folder is on the nodes.")
    elif not ray.folder.startswith("/"):
        message = f"{ray.folder!r} is not an absolute path"
        found.append(Problem("targets.ray.folder", message, "Write where the spec's folder is on the nodes."))
    for name in OURS:
        if name in ray.runtime_env:
            message = f"`{name}` is the folder of the spec and cannot be one of `runtime_env`"
            found.append(Problem("targets.ray.runtime_env", message, "Take it out; `excludes` leaves files out of it."))
    return found
