"""Problems that would keep the emitted job from starting, found before anything is written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from zerocfg.budgets import FILE_BYTES
from zerocfg.emit import jobset, ray_job, recipe, skypilot, slurm
from zerocfg.resolve.plan import Problem
from zerocfg.source import disk

if TYPE_CHECKING:
    from zerocfg.resolve.plan import Plan

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?")


def problems(plan: Plan) -> list[Problem]:
    """What the author has to change, by key of the spec or recipe."""
    found = [*_recipe(plan), *_hosts(plan)]
    if plan.targets is not None and plan.targets.slurm is not None:
        found += slurm.problems(plan.targets.slurm)
    if plan.targets is not None and plan.targets.jobset is not None:
        found += jobset.problems(plan, plan.targets.jobset)
    if plan.targets is not None and plan.targets.skypilot is not None:
        found += skypilot.problems(plan, plan.targets.skypilot)
    if plan.targets is not None and plan.targets.ray is not None:
        found += ray_job.problems(plan, plan.targets.ray)
    return found


def _recipe(plan: Plan) -> list[Problem]:
    """A changed recipe must be one that the script is handed."""
    changes = recipe.changes_of(plan, "ds_config.json")
    if not changes:
        return []
    path = plan.inputs.get("recipe")
    keys = ", ".join(changes)
    if path is None:
        message = f"the run needs {keys} in a recipe, and has none"
        return [Problem("recipe", message, "Name the recipe in the spec (`recipe: recipe.yaml`).")]
    if not recipe.is_named(plan):
        words = " ".join(plan.arguments) or "none"
        message = (
            f"a recipe with other values of {keys} is emitted, but the script would not read it: "
            f"its arguments ({words}) do not name {path.name}"
        )
        return [Problem("arguments", message, f"Let one of `arguments:` be the path of {path.name}.")]
    try:
        recipe.patched(disk.whole(path, FILE_BYTES), path.name, changes)
    except (OSError, ValueError) as error:
        return [Problem("recipe", f"{path.name} cannot be changed: {error}", f"Set {keys} in it yourself.")]
    return []


def _hosts(plan: Plan) -> list[Problem]:
    found = []
    for host in plan.hosts:
        if _HOST.fullmatch(host) is None:
            message = f"{host!r} is no host name"
            found.append(Problem("hosts", message, "Letters, digits, '.', '-' and ':' only, as ssh takes it."))
    repeated = sorted({host for host in plan.hosts if plan.hosts.count(host) > 1})
    if repeated:
        message = f"{repeated[0]} is named twice; deepspeed refuses such a hostfile"
        found.append(Problem("hosts", message, "Name each node once."))
    if plan.hosts and len(plan.hosts) != plan.num_machines:
        message = f"hosts names {len(plan.hosts)}, but {plan.hardware} has {plan.num_machines} node(s)"
        found.append(Problem("hosts", message, "Name every node once, or change `hardware:`."))
    return found
