"""Defects of the checkpoint itself: files that are missing, truncated or empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.resume.finding import ASSERTION, CUT_OFF, DISTRIBUTED, NO_CHECKPOINT, Finding, listed
from zerocfg.resume.remediations import quoted

if TYPE_CHECKING:
    from zerocfg.resume.checkpoint import Checkpoint, DeepSpeed, Fsdp
    from zerocfg.resume.target import Target
    from zerocfg.resume.weights import Weights


def own_faults(checkpoint: Checkpoint, target: Target | None) -> list[Finding]:
    """What is missing or damaged of the files that the run would read; without a run, of all files."""
    found: list[Finding] = []
    engine = None if target is None else target.engine
    for name, reason in checkpoint.damaged.items():
        error = CUT_OFF if name.endswith(".pt") else ""
        found.append(_damaged(name, reason, error))
    deepspeed = checkpoint.deepspeed
    if deepspeed is not None and engine in ("deepspeed", None):
        converted = target is not None and target.universal and deepspeed.universal_tag is not None
        found += [] if converted else _deepspeed_faults(checkpoint, deepspeed)
    if checkpoint.fsdp is not None and engine in ("fsdp", None):
        found += _fsdp_faults(checkpoint.fsdp)
    if checkpoint.weights is not None and engine not in ("deepspeed", "fsdp"):
        found += _weights_faults(checkpoint.weights)
    return found


def _weights_faults(weights: Weights) -> list[Finding]:
    found: list[Finding] = []
    if weights.missing:
        found.append(Finding("stops", "missing", f"the index of the weights names {listed(weights.missing)}, absent"))
    if weights.empty:
        found.append(
            Finding(
                "stops",
                "empty-weights",
                f"{len(weights.empty)} tensors are empty ({listed(weights.empty)}): saved under ZeRO-3 without "
                "gathering them",
            )
        )
    for name, reason in weights.damaged.items():
        error = CUT_OFF if name.endswith(".bin") else "SafetensorError: Error while deserializing header"
        found.append(_damaged(name, reason, error))
    return found


def _deepspeed_faults(checkpoint: Checkpoint, deepspeed: DeepSpeed) -> list[Finding]:
    found: list[Finding] = []
    others = [tag for tag in deepspeed.tags if tag != deepspeed.tag]
    if deepspeed.latest is None and not deepspeed.universal:
        found.append(
            Finding(
                "stops",
                "no-latest",
                f"there is no file 'latest' that says which tag to load (here: {listed(deepspeed.tags)}); a custom "
                "training loop only gets a warning and starts from scratch",
                f"ValueError: [deepspeed] failed to resume from checkpoint {checkpoint.path}",
                remediations=(f"printf %s {quoted(deepspeed.tags[-1])} > {quoted(checkpoint.path / 'latest')}",)
                if deepspeed.tags
                else (),
            )
        )
    if deepspeed.tag not in deepspeed.tags:
        remediations = tuple(f"printf %s {quoted(tag)} > {quoted(checkpoint.path / 'latest')}" for tag in others[-1:])
        found.append(
            Finding(
                "stops",
                "wrong-tag",
                f"'latest' says {deepspeed.tag[:80]!r}, and there is no such folder (here: {listed(others) or 'none'})",
                ASSERTION if others else NO_CHECKPOINT.format(path=checkpoint.path),
                remediations=remediations or ("take an earlier checkpoint",),
            )
        )
        return found
    if deepspeed.missing:
        ranks = f" of {deepspeed.world_size} ranks" if deepspeed.world_size else ""
        found.append(
            Finding(
                "stops",
                "missing",
                f"{len(deepspeed.missing)} files{ranks} are missing: {listed(deepspeed.missing)}; every node writes "
                "those of its own ranks, so look at the disks of the other nodes",
                "FileNotFoundError: [Errno 2] No such file or directory"
                if all(name.endswith("optim_states.pt") for name in deepspeed.missing)
                else ASSERTION,
                remediations=("copy them here, or take an earlier checkpoint",),
            )
        )
    for name, reason in deepspeed.damaged.items():
        found.append(_damaged(name, reason, CUT_OFF))
    return found


def _fsdp_faults(fsdp: Fsdp) -> list[Finding]:
    found = []
    if fsdp.missing:
        message = f"{len(fsdp.missing)} files are missing: {listed(fsdp.missing)}"
        remediations = ("copy them here from the nodes that wrote them",)
        found.append(Finding("stops", "missing", message, DISTRIBUTED, remediations=remediations))
    for name, reason in fsdp.damaged.items():
        found.append(_damaged(name, reason))
    return found


def _damaged(name: str, reason: str, error: str = "") -> Finding:
    return Finding("stops", "damaged", f"{name} {reason}", error, remediations=("take an earlier checkpoint",))
