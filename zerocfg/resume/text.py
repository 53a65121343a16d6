"""The verdict as text and as data for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerocfg.resume.checkpoint import Checkpoint
    from zerocfg.resume.finding import Finding
    from zerocfg.resume.target import Target
    from zerocfg.resume.verdict import Verdict

VERSION = 1
_TITLES = {"stops": "blocks resuming", "loses": "lost", "note": "note"}


def render(checkpoint: Checkpoint, target: Target | None, verdict: Verdict) -> str:
    """The verdict as text."""
    rows = [("checkpoint", str(checkpoint.path)), *describe(checkpoint)]
    if target is not None:
        rows += [("run", target.name), *_needs(target)]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    for finding in verdict.findings:
        lines += ["", *_block(finding)]
    return "\n".join([*lines, "", _last(verdict, target)]) + "\n"


def _last(verdict: Verdict, target: Target | None) -> str:
    if verdict.outcome == "resumes with a loss":
        return f"resumes with a loss of: {', '.join(verdict.lost)}"
    if verdict.outcome == "described":
        rest = "name the run to check whether it fits" if target is None else "whether it fits the run is not judged"
        return f"nothing wrong with the checkpoint itself; {rest}"
    if verdict.outcome == "resumes" and any(finding.kind != "steps" for finding in verdict.findings):
        return "resumes if the run is as the notes say"
    return str(verdict.outcome)


def _block(finding: Finding) -> list[str]:
    lines = [f"{_TITLES[finding.effect]}: {finding.message}"]
    if finding.error:
        lines.append(f"  library error: {finding.error}")
    lines += [f"  fix: {step}" if not number else f"       {step}" for number, step in enumerate(finding.remediations)]
    return lines


def describe(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    """What the checkpoint is, as named lines."""
    rows = [("kind", _kind(checkpoint))]
    found = checkpoint.deepspeed
    if found is not None:
        stage = "1 or 2" if found.stage is None else str(found.stage)
        ranks = "unknown" if found.world_size is None else str(found.world_size)
        parts = f", {found.model_parallel} model-parallel parts" if found.model_parallel > 1 else ""
        types = "" if found.bf16 is None else ", bf16" if found.bf16 else ", fp16 or fp32"
        types = types if found.half is None else ", bf16 or fp16" if found.half else ", fp32"
        rows.append(("tag", found.tag or "none"))
        if found.optimizer_files or found.stage is not None:
            rows.append(("saved by", f"{ranks} data-parallel ranks{parts}, ZeRO stage {stage}{types}"))
        if found.version:
            rows.append(("DeepSpeed", found.version))
    if checkpoint.fsdp is not None:
        fsdp = checkpoint.fsdp
        ranks = "" if fsdp.world_size is None else f", saved by {fsdp.world_size} ranks"
        rows.append(("state dicts", f"model {fsdp.model or 'none'}, optimizer {fsdp.optimizer or 'none'}{ranks}"))
    weights = checkpoint.weights
    if weights is not None:
        types = ", ".join(f"{count} {dtype}" for dtype, count in sorted(weights.dtypes.items()))
        count = f": {weights.tensors} tensors ({types}), {weights.elements} elements" if weights.tensors else ""
        rows.append(("weights", ", ".join(weights.files[:3]) + (" ..." if len(weights.files) > 3 else "") + count))
    if checkpoint.step is not None:
        rows.append(("step", str(checkpoint.step)))
    return rows + [("note", note) for note in checkpoint.notes]


def _kind(checkpoint: Checkpoint) -> str:
    if checkpoint.deepspeed is not None:
        name = "universal DeepSpeed checkpoint" if checkpoint.deepspeed.universal else "DeepSpeed checkpoint"
    else:
        name = {"fsdp": "FSDP checkpoint", "trainer": "Trainer checkpoint", "weights": "weights"}[checkpoint.kind]
    return f"{name} of a Trainer" if checkpoint.trainer and checkpoint.kind in ("deepspeed", "fsdp") else name


def _needs(target: Target) -> list[tuple[str, str]]:
    engine = target.engine or "unknown engine"
    if target.stage is not None:
        engine += f", ZeRO stage {target.stage}"
    if target.state_dict_type:
        engine += f" {target.fsdp_version or ''}, {target.state_dict_type}"
    ranks = "unknown" if target.world_size is None else str(target.world_size)
    return [("needs", f"{engine}, {ranks} ranks, {target.precision or 'unknown precision'}")]


def data(checkpoint: Checkpoint, target: Target | None, verdict: Verdict) -> dict[str, object]:
    """The verdict as JSON data."""
    deepspeed, fsdp, weights = checkpoint.deepspeed, checkpoint.fsdp, checkpoint.weights
    return {
        "version": VERSION,
        "outcome": verdict.outcome,
        "lost": verdict.lost,
        "checkpoint": {
            "path": str(checkpoint.path),
            "kind": checkpoint.kind,
            "notes": checkpoint.notes,
            "step": checkpoint.step,
            "trainer_state": checkpoint.trainer,
            "scheduler": checkpoint.scheduler,
            "deepspeed": None
            if deepspeed is None
            else {
                "tag": deepspeed.tag,
                "tags": deepspeed.tags,
                "latest": deepspeed.latest,
                "stage": deepspeed.stage,
                "data_parallel_ranks": deepspeed.world_size,
                "model_parallel_parts": deepspeed.model_parallel,
                "bf16": deepspeed.bf16,
                "half_precision": deepspeed.half,
                "version": deepspeed.version,
                "universal": deepspeed.universal,
                "missing": deepspeed.missing,
                "damaged": deepspeed.damaged,
            },
            "fsdp": None
            if fsdp is None
            else {
                "model": fsdp.model,
                "optimizer": fsdp.optimizer,
                "ranks": fsdp.world_size,
                "missing": fsdp.missing,
                "damaged": fsdp.damaged,
            },
            "weights": None
            if weights is None
            else {
                "files": weights.files,
                "tensors": weights.tensors,
                "elements": weights.elements,
                "dtypes": dict(sorted(weights.dtypes.items())),
                "empty": weights.empty,
                "missing": weights.missing,
                "damaged": weights.damaged,
            },
            "damaged": checkpoint.damaged,
        },
        "run": None
        if target is None
        else {
            "name": target.name,
            "engine": target.engine,
            "num_processes": target.world_size,
            "stage": target.stage,
            "precision": target.precision,
            "state_dict_type": target.state_dict_type,
            "origins": target.origins,
        },
        "findings": [
            {
                "effect": finding.effect,
                "kind": finding.kind,
                "message": finding.message,
                "library": finding.error or None,
                "lost": finding.lost or None,
                "ways_out": list(finding.remediations),
            }
            for finding in verdict.findings
        ],
    }
