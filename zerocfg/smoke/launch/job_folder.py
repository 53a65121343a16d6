"""Writes the reduced configs and the job of the ranks into a scratch folder, and makes the command that starts them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import yaml

from zerocfg.smoke.launch import process
from zerocfg.smoke.launch.scratch import make_twin
from zerocfg.smoke.model.reduction import Kind
from zerocfg.smoke.prepare.folder import ACCELERATE, DEEPSPEED
from zerocfg.smoke.worker.job import Job

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.smoke.model.reduction import Reduced
    from zerocfg.smoke.prepare.device import Device
    from zerocfg.smoke.prepare.folder import RunFolder
    from zerocfg.smoke.prepare.handwritten import Handwritten
    from zerocfg.smoke.prepare.nodes import Nodes


def prepare(
    run: RunFolder,
    reduced: Reduced,
    device: Device,
    steps: int,
    scratch: Path,
    memory_limit: int | None = None,
    parts: tuple[str, ...] = ("train",),
    share: str | None = None,
    nodes: Nodes | None = None,
) -> list[str]:
    """Write the reduced configs and the job into ``scratch``; the command that runs them there."""
    saved = _weights(scratch, reduced.in_memory)
    own = run.handwritten
    if own is not None and "deepspeed" in own.texts and reduced.deepspeed == run.deepspeed:
        (scratch / DEEPSPEED).write_bytes(own.texts["deepspeed"])  # as it is, also where no reader takes it
    elif reduced.deepspeed is not None:
        (scratch / DEEPSPEED).write_text(json.dumps(reduced.deepspeed, indent=2))
    if own is not None and "accelerate" in own.texts and reduced.accelerate is None:
        (scratch / ACCELERATE).write_bytes(own.texts["accelerate"])
    if reduced.accelerate is not None:
        section = reduced.accelerate.get("deepspeed_config")
        if isinstance(section, dict) and "deepspeed_config_file" in section:
            section["deepspeed_config_file"] = str(scratch / DEEPSPEED)
        (scratch / ACCELERATE).write_text(yaml.safe_dump(reduced.accelerate, sort_keys=False))
    by_accelerate = own.by_accelerate if own is not None else reduced.accelerate is not None
    config = scratch / DEEPSPEED if (scratch / DEEPSPEED).exists() else None
    trainer = run.consumer in ("transformers", "trl")
    if own is not None and config is not None and trainer and own.run.deepspeed_route in ("trainer", None):
        reduced.arguments["deepspeed"] = str(config)
    saves = not reduced.has(Kind.SAVING)
    job = Job(
        reports=str(scratch / "reports"),
        saved=str(saved),
        consumer=run.consumer,
        by_accelerate=by_accelerate,
        device=device.kind,
        steps=steps,
        model=reduced.model,
        arguments=reduced.arguments,
        sequence=reduced.sequence,
        deepspeed_config=str(config) if config is not None else None,
        memory_limit=memory_limit,
        parts=parts,
        no_resume=_no_resume(run) or _apart(nodes) or (None if saves else "a checkpoint needs saved weights"),
        share=share,
        nodes=nodes.count if nodes is not None else 1,
        saves=saves,
        trainer=reduced.trainer,
        own=reduced.own,
        narrow=reduced.copy,
    )
    job.write(scratch / "job.json")
    command = process.launcher(by_accelerate, reduced.ranks, process.free_port(), nodes)
    if own is not None and by_accelerate:
        command = _as_written(command, own, reduced.ranks, scratch)
    return [*command, str(scratch / "job.json")]


def _weights(scratch: Path, in_memory: bool) -> Path:
    """The folder of the saved weights, beside that of checkpoints; in memory it is linked from ``scratch``."""
    made = make_twin(scratch) if in_memory else None
    saved = (made or scratch) / "weights"
    saved.mkdir()
    if made is not None:
        (scratch / "weights").symlink_to(saved)
    return saved


def _no_resume(run: RunFolder) -> str | None:
    """Why no checkpoint of the run can be resumed from, None when one should."""
    if run.lock.recipe.get("save_only_model"):
        return "save_only_model is true: checkpoints hold the weights alone, and no run resumes from them"
    return None


def _apart(nodes: Nodes | None) -> str | None:
    if nodes is None:
        return None
    return f"not tried over {nodes.count} nodes: each works in a folder of its own, a checkpoint needs one of them all"


def _as_written(command: list[str], own: Handwritten, ranks: int, scratch: Path) -> list[str]:
    """The command line of accelerate's launcher with the options of the user's launch line."""
    words = list(own.options)
    if not (scratch / ACCELERATE).exists():
        at = command.index("--config_file")
        command = [*command[:at], *command[at + 2 :]]
        words += ["--num_processes", str(ranks), "--num_machines", "1"]
    if own.run.deepspeed is not None and "deepspeed_config_file" in own.run.flags:
        words += ["--deepspeed_config_file", str(scratch / DEEPSPEED)]
    at = command.index("-m", command.index("accelerate.commands.launch"))
    return [*command[:at], *words, *command[at:]]


def variables(scratch: Path, own: Handwritten | None = None) -> dict[str, str]:
    """Environment variables of the ranks: where their program lies, and what a hand-written launch line sets."""
    paths = [str(process.program(scratch)), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths), **(own.variables if own is not None else {})}
