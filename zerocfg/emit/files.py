"""From a plan to the bytes of the files of its folder."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.budgets import FILE_BYTES
from zerocfg.emit import (
    accelerate_yaml,
    deepspeed_json,
    jobset,
    launch_sh,
    lock,
    make_lock,
    ray_job,
    recipe,
    skypilot,
    slurm,
    ssh,
)
from zerocfg.source import disk
from zerocfg.source.paths import relative as from_folder

if TYPE_CHECKING:
    from zerocfg.resolve.plan import Decision, Plan

ACCELERATE = "accelerate.yaml"
DEEPSPEED = "ds_config.json"
COMMENTED = "ds_config.hjson"
LAUNCH = "launch.sh"


@dataclass(slots=True)
class Emitted:
    """The files of one run, by name, and the folder that they go to.

    ``recipe``: the name of the changed recipe among them, None when the user's is used as it is; ``changes`` are the
    arguments in which it differs.
    """

    plan: Plan
    folder: Path
    files: dict[str, bytes]
    recipe: str | None = None
    changes: dict[str, Decision] = field(default_factory=dict)


def emit(plan: Plan, out: Path) -> Emitted:
    """The files of a plan below ``out``; nothing is written.

    Raises ValueError where `zerocfg.emit.problems` finds that the recipe cannot be changed, InvalidConfigError for a
    config that its library refuses.
    """
    folder = out / plan.name
    spec_from_here = relative(plan.folder, folder)
    here_from_spec = relative(folder, plan.folder)
    files: dict[str, bytes] = {}
    if plan.accelerate and plan.launcher == "accelerate":
        files[ACCELERATE] = accelerate_yaml.render(_located(plan, here_from_spec)).encode()
    if plan.deepspeed:
        files[DEEPSPEED] = deepspeed_json.render(plan).encode()
        if plan.targets is not None and plan.targets.hjson:
            files[COMMENTED] = deepspeed_json.render_commented(plan).encode()
    arguments = plan.arguments
    changes = recipe.changes_of(plan, f"{here_from_spec}/{DEEPSPEED}")
    own = None
    if changes and (source := plan.inputs.get("recipe")) is not None:
        own = recipe.name_of(source)
        files[own] = recipe.patched(disk.whole(source, FILE_BYTES), own, changes)
        arguments = recipe.arguments_of(plan, f"{here_from_spec}/{own}")
    files[LAUNCH] = launch_sh.render(plan, spec_from_here, here_from_spec, arguments).encode()
    if plan.launcher == "deepspeed" and plan.num_machines > 1:
        files[launch_sh.HOSTFILE] = launch_sh.render_hostfile(plan).encode()
    if plan.targets is not None and plan.targets.slurm is not None:
        files[slurm.NAME] = slurm.render(plan, plan.targets.slurm, here_from_spec).encode()
    if plan.targets is not None and plan.targets.jobset is not None:
        files[jobset.NAME] = jobset.render(plan, plan.targets.jobset, here_from_spec).encode()
    if plan.targets is not None and plan.targets.skypilot is not None:
        files[skypilot.NAME] = skypilot.render(plan, plan.targets.skypilot, here_from_spec).encode()
    if plan.targets is not None and plan.targets.ray is not None:
        files |= {
            name: text.encode()
            for name, text in ray_job.render(plan, plan.targets.ray, spec_from_here, here_from_spec).items()
        }
    if plan.targets is not None and plan.targets.ssh is not None:
        files[ssh.NAME] = ssh.render(plan, plan.targets.ssh, spec_from_here, here_from_spec).encode()
    inputs = {
        role: lock.Source(relative(path, plan.folder), lock.sha256(disk.whole(path, FILE_BYTES)))
        for role, path in sorted(plan.inputs.items())
    }
    changed = replace(plan, changes=changes if own else {})
    files[lock.NAME] = make_lock.lock_of(changed, files, inputs, spec_from_here).text().encode()
    return Emitted(plan, folder, files, own, changed.changes)


def _located(plan: Plan, here: str) -> Plan:
    """The plan with the path of its DeepSpeed file as the launched job sees it: from the spec's folder."""
    name = "deepspeed_config.deepspeed_config_file"
    if name not in plan.accelerate:
        return plan
    located = replace(plan.accelerate[name], value=f"{here}/{DEEPSPEED}")
    return replace(plan, accelerate={**plan.accelerate, name: located})


def relative(path: Path, start: Path) -> str:
    """``path`` as seen from the folder ``start``, with forward slashes. Raises OSError where no way leads there."""
    path = path.resolve()
    found = from_folder(path, start.resolve())
    if found == path.as_posix() and path.drive:
        raise OSError(
            errno.EXDEV, "spec and output lie on different drives; build into a folder beside the spec", found
        )
    return found
