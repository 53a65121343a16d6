"""The task of a plan for SkyPilot: it runs launch.sh once on each node."""

from __future__ import annotations

import re
from io import StringIO
from shlex import quote
from typing import TYPE_CHECKING

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString as Text
from ruamel.yaml.scalarstring import LiteralScalarString as Lines

from zerocfg.emit.travel import stays_behind
from zerocfg.emit.values import one_line
from zerocfg.hardware.catalogue import find_accelerator
from zerocfg.resolve.plan import Problem

if TYPE_CHECKING:
    from zerocfg.models.spec import SkyPilot
    from zerocfg.resolve.plan import Plan

NAME = "sky.yaml"
OURS = ("accelerators",)
"""Keys of `resources` that follow from the plan."""
ACCELERATORS = {
    **{name: name for name in "A10 A10G A30 A40 L4 L40 L40S T4 B200 MI300X RTX3090 RTX4090 RTX5090 RTXA6000".split()},
    "A100-SXM-40GB": "A100",
    "A100-PCIe-40GB": "A100",
    "A100-SXM-80GB": "A100-80GB",
    "A100-PCIe-80GB": "A100-80GB",
    "H100-SXM-80GB": "H100",
    "H100-PCIe-80GB": "H100",
    "H200-SXM-141GB": "H200",
    "GH200-96GB": "GH200",
    "P100-SXM2-16GB": "P100",
    "P100-PCIe-16GB": "P100",
    "V100-SXM2-16GB": "V100",
    "V100-PCIe-16GB": "V100",
    "V100-SXM2-32GB": "V100-32GB",
    "V100-PCIe-32GB": "V100-32GB",
    "RTX6000Ada": "RTX6000-Ada",
}
"""Names of SkyPilot's public catalogue (v8, common/accelerators.csv) by those of zerocfg's. It does not tell the forms
of one card apart."""
_UNFIT = re.compile(r"[^A-Za-z0-9]+")


def render(plan: Plan, skypilot: SkyPilot, here: str) -> str:
    """The text of ``sky.yaml``; ``here`` is its folder as seen from the spec's."""
    task: dict[str, object] = {"name": Text(_UNFIT.sub("-", plan.name).strip("-") or "run"), "workdir": "."}
    if plan.num_machines > 1:
        task["num_nodes"] = plan.num_machines
    device = accelerator_of(plan, skypilot)
    each = plan.num_processes // plan.num_machines
    resources = {**({"accelerators": Text(f"{device}:{each}")} if device else {}), **skypilot.resources}
    if resources:
        task["resources"] = resources
    if skypilot.setup:
        task["setup"] = Lines("set -e\n" + "".join(f"{line}\n" for line in skypilot.setup))
    task["run"] = Lines(_run(plan, here))
    yaml = YAML()
    yaml.width = 10_000
    yaml.indent(sequence=4, offset=2)
    text = StringIO()
    yaml.dump(task, text)
    lines = [
        f"# Starts the run {plan.name} on {one_line(plan.hardware)}. Written by zerocfg.",
        "# Start it from the folder of the spec, which SkyPilot copies to the nodes:",
        f"#   sky launch {one_line(quote(f'{here}/{NAME}'))}",
    ]
    return "\n".join(lines) + "\n" + text.getvalue()


def _run(plan: Plan, here: str) -> str:
    lines = []
    if plan.num_machines > 1:
        lines = [
            "export MACHINE_RANK=$SKYPILOT_NODE_RANK",
            "# The first node of the list is the one with rank 0.",
            "export MAIN_PROCESS_IP=${SKYPILOT_NODE_IPS%%[[:space:]]*}",
        ]
    return "".join(f"{line}\n" for line in [*lines, f"bash {quote(f'{here}/launch.sh')}"])


def accelerator_of(plan: Plan, skypilot: SkyPilot) -> str | None:
    """SkyPilot's name of the devices; None without devices, or where nothing tells it."""
    if skypilot.accelerators is not None or plan.profile is None or plan.vendor == "cpu":
        return skypilot.accelerators
    found = find_accelerator(plan.profile.accelerator.name)
    return ACCELERATORS.get(found[0].name) if found is not None else None


def problems(plan: Plan, skypilot: SkyPilot) -> list[Problem]:
    """What SkyPilot would refuse, or that would ask for something else than was planned."""
    found = stays_behind(plan, "targets.skypilot", "Move the spec to a folder that has it all below it.")
    if plan.vendor != "cpu" and accelerator_of(plan, skypilot) is None:
        message = f"zerocfg does not know what SkyPilot calls the devices of {plan.hardware!r}"
        help = "Add `accelerators:` to the target, with a name that `sky show-gpus --all` lists."
        found.append(Problem("targets.skypilot.accelerators", message, help))
    for name in OURS:
        if name in skypilot.resources:
            message = f"`{name}` follows from the plan and cannot be one of `resources`"
            help = "Say `accelerators:` of the target for the name; their number follows from `hardware:`."
            found.append(Problem("targets.skypilot.resources", message, help))
    return found
