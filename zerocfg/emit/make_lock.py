"""Makes the lockfile of a plan: JSON without dates and without absolute paths."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from zerocfg.emit.lock import HUB, Choice, Lock, Source, Weighed, sha256, without_secrets
from zerocfg.source.secrets import masked_words

if TYPE_CHECKING:
    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.resolve.plan import Considered, Decision, Plan

_CACHED = re.compile(r"(?:^|/)models--([^/]+)/(?:snapshots|blobs)/")
RUNNERS_UP = 8
SUMMARY = (
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
"""Settings that stand in the lock's plan, too."""


def lock_of(plan: Plan, files: dict[str, bytes], inputs: dict[str, Source], spec_folder: str) -> Lock:
    """What is recorded of a plan.

    ``files`` are the emitted files by name, ``inputs`` the source files by role; ``spec_folder`` is the folder of the
    spec as seen from the lock's own.
    """
    ranks = {"engine": plan.engine, "num_processes": plan.num_processes, "num_machines": plan.num_machines}
    recipe = without_secrets(plan.recipe)
    return Lock(
        run=plan.name,
        spec_folder=spec_folder,
        consumer=plan.consumer,
        script=plan.script,
        arguments=tuple(masked_words(plan.arguments)),
        launcher=plan.launcher,
        hosts=tuple(plan.hosts),
        hardware=hardware_facts(plan.hardware, plan.profile),
        model_config=plan.model_config,
        model_facts=plan.model_facts,
        recipe=dict(sorted(recipe.items())),
        plan={**ranks, **{name: plan.settings[name].value for name in SUMMARY if name in plan.settings}},
        settings=_values(plan.settings),
        accelerate=_values(plan.accelerate),
        changes=_values(plan.changes),
        considered=_choice(plan.considered),
        notes=tuple(plan.notes),
        versions=dict(sorted(plan.versions.items())),
        inputs={role: Source(_portable(source.path), source.sha256) for role, source in sorted(inputs.items())},
        files={name: sha256(data) for name, data in sorted(files.items())},
    )


def hardware_facts(name: str, profile: HardwareProfile | None) -> dict[str, object]:
    """What values depend on; nothing that is another figure tomorrow (free memory and space, the date of a probe).

    Memory in GiB (2^30 bytes) to plan with, bandwidths in GB/s as vendors print them, memlock in bytes.
    """
    if profile is None:
        return {"name": name}
    device, host, between = profile.accelerator, profile.host, profile.link_between_nodes
    facts: dict[str, object] = {
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
        "link_between_nodes": between.kind if between is not None and not between.assumed else None,
    }
    if host is not None:
        facts["host_memory_gib"] = None if host.planning_gib is None else round(host.planning_gib, 1)
        facts["memlock_bytes"] = host.memlock
        facts["nvme"] = sorted(mount.path for mount in host.nvme)
    return {key: value for key, value in facts.items() if value not in (None, [])}


def _values(found: dict[str, Decision]) -> dict[str, Decision]:
    return {name: _without_secrets_in(name, decision) for name, decision in sorted(found.items())}


def _without_secrets_in(name: str, decision: Decision) -> Decision:
    return replace(
        decision, value=without_secrets({name: decision.value})[name], inputs=dict(sorted(decision.inputs.items()))
    )


def _choice(plans: list[Considered]) -> Choice:
    """The plans that were compared, in short: the one taken, and those that came next with what excluded them."""
    taken = next((plan for plan in plans if not plan.excluded), None)
    others = [plan for plan in plans if plan is not taken][:RUNNERS_UP]
    return Choice(len(plans), None if taken is None else _weighed(taken), tuple(map(_weighed, others)))


def _weighed(item: Considered) -> Weighed:
    return Weighed(
        dict(sorted(item.settings.items())),
        item.verdict,
        None if item.device_gib is None else float(f"{item.device_gib:.2f}"),
        None if item.seconds_per_token is None else float(f"{item.seconds_per_token:.3g}"),
        item.excluded,
    )


def _portable(path: str) -> str:
    """A file of the hub's cache by the model's name: where the cache lies is another place on every machine."""
    cached = _CACHED.search(path)
    return HUB + cached[1].replace("--", "/") if cached else path
