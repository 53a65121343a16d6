"""The manifest of a plan for Kubernetes: one JobSet with a pod for each node."""

from __future__ import annotations

import hashlib
import re
from io import StringIO
from typing import TYPE_CHECKING

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString as Text

from zerocfg.emit.launch_sh import PORT
from zerocfg.emit.values import one_line
from zerocfg.resolve.plan import Problem

if TYPE_CHECKING:
    from zerocfg.models.spec import JobSet
    from zerocfg.resolve.plan import Plan

NAME = "jobset.yaml"
JOB = "node"
RESOURCES = {
    "nvidia": "nvidia.com/gpu",
    "amd": "amd.com/gpu",
    "intel": "gpu.intel.com/i915",
    "habana": "habana.ai/gaudi",
}
"""Names under which the vendors' device plugins offer their devices."""
_LONGEST = 63  # a DNS label
_SUFFIX = len("-abcde")  # Kubernetes makes the names of pods unique
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def name_of(plan: Plan) -> str:
    """The run's name as the DNS label that a JobSet and the names of its pods need.

    A name that cannot be kept as it is gets a hash of itself, so that two runs never share one.
    """
    longest = _LONGEST - len(f"-{JOB}-0-{plan.num_machines - 1}") - _SUFFIX
    label = re.sub(r"[^a-z0-9]+", "-", plan.name.lower()).strip("-")
    if not label[:1].isalpha():
        label = f"run-{label}".rstrip("-")
    if label == plan.name and len(label) <= longest:
        return label
    digest = hashlib.sha256(plan.name.encode()).hexdigest()[:6]
    return f"{label[: longest - 7].rstrip('-')}-{digest}"


def manifest(plan: Plan, jobset: JobSet, here: str) -> dict[str, object]:
    """The JobSet as nested mappings; ``here`` is the emitted folder as seen from the spec's."""
    name, each = name_of(plan), plan.num_processes // plan.num_machines
    container: dict[str, object] = {
        "name": "train",
        "image": Text(jobset.image),
        "workingDir": Text(jobset.folder),
        # Kubernetes replaces $(NAME) in a command; $$ stands for $.
        "command": ["bash", Text(f"{here}/launch.sh".replace("$", "$$"))],
    }
    if plan.num_machines > 1:
        container["env"] = _network(name)
    resource = resource_of(plan, jobset)
    if resource:
        container["resources"] = {"limits": {Text(resource): each}}
    container["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]
    memory = {"medium": "Memory", "sizeLimit": f"{jobset.shared_memory_gib}Gi"}
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "shm", "emptyDir": memory}],
    }
    job = {
        "parallelism": plan.num_machines,
        "completions": plan.num_machines,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    metadata = {"name": Text(name)} | ({"namespace": Text(jobset.namespace)} if jobset.namespace else {})
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {
            "network": {"enableDNSHostnames": True, "subdomain": Text(name)},
            "replicatedJobs": [{"name": JOB, "replicas": 1, "template": {"spec": job}}],
        },
    }


def render(plan: Plan, jobset: JobSet, here: str) -> str:
    """The text of ``jobset.yaml``."""
    lines = [
        f"# Starts the run {plan.name} on {one_line(plan.hardware)}: kubectl create -f {NAME}. Written by zerocfg.",
        f"# The image must hold the spec's folder at {one_line(jobset.folder)},",
        f"# and as seen from there {one_line(here)}/launch.sh.",
        "# A pod that fails ends the whole job (backoffLimit 0): the others cannot go on without it.",
    ]
    yaml = YAML()
    yaml.width = 10_000
    yaml.indent(sequence=4, offset=2)
    text = StringIO()
    yaml.dump(manifest(plan, jobset, here), text)
    return "\n".join(lines) + "\n" + text.getvalue()


def resource_of(plan: Plan, jobset: JobSet) -> str | None:
    """The name of the device resource; None without devices, or where nothing tells it."""
    return jobset.resource or RESOURCES.get(plan.vendor or "")


def problems(plan: Plan, jobset: JobSet) -> list[Problem]:
    """What Kubernetes would refuse."""
    found = []
    if plan.vendor is None and jobset.resource is None:
        message = f"{plan.hardware!r} does not tell whose devices it has, so there is no resource to ask for"
        help = "Add `resource:` to the target, for example `resource: nvidia.com/gpu`."
        found.append(Problem("targets.jobset.resource", message, help))
    if not jobset.folder.startswith("/"):
        message = f"{jobset.folder!r} is not an absolute path"
        found.append(Problem("targets.jobset.folder", message, "Write where the spec's folder is inside the image."))
    space = jobset.namespace
    if space is not None and (len(space) > _LONGEST or _LABEL.fullmatch(space) is None):
        message = f"{space!r} cannot name a namespace: at most {_LONGEST} lower-case letters, digits and '-'"
        found.append(Problem("targets.jobset.namespace", message, "Write the namespace as `kubectl get ns` shows it."))
    return found


def _network(name: str) -> list[dict[str, object]]:
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    return [
        {"name": "MACHINE_RANK", "valueFrom": {"fieldRef": {"fieldPath": Text(index)}}},
        {"name": "MAIN_PROCESS_IP", "value": Text(f"{name}-{JOB}-0-0.{name}")},
        {"name": "MAIN_PROCESS_PORT", "value": Text(str(PORT))},
    ]
