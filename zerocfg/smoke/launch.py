"""Write what the ranks need into a scratch folder, and the command that starts them there."""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING

import yaml

from zerocfg.smoke import process
from zerocfg.smoke.folder import ACCELERATE, DEEPSPEED
from zerocfg.smoke.worker.job import Job

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.smoke.device import Device
    from zerocfg.smoke.folder import RunFolder
    from zerocfg.smoke.reduce import Reduced


def prepare(run: RunFolder, reduced: Reduced, device: Device, steps: int, scratch: Path) -> list[str]:
    """Write the reduced configs and the job into ``scratch``; the command that runs them there."""
    saved = scratch / "weights"
    saved.mkdir()
    if reduced.deepspeed is not None:
        (scratch / DEEPSPEED).write_text(json.dumps(reduced.deepspeed, indent=2))
    if reduced.accelerate is not None:
        section = reduced.accelerate.get("deepspeed_config")
        if isinstance(section, dict) and "deepspeed_config_file" in section:
            section["deepspeed_config_file"] = str(scratch / DEEPSPEED)
        (scratch / ACCELERATE).write_text(yaml.safe_dump(reduced.accelerate, sort_keys=False))
    job = Job(
        reports=str(scratch / "reports"),
        saved=str(saved),
        consumer=run.consumer,
        by_accelerate=reduced.accelerate is not None,
        device=device.kind,
        steps=steps,
        model=reduced.model,
        arguments=reduced.arguments,
        sequence=reduced.sequence,
        deepspeed_config=str(scratch / DEEPSPEED) if reduced.deepspeed is not None else None,
    )
    job.write(scratch / "job.json")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    return [*process.launcher(reduced.accelerate is not None, reduced.ranks, port), str(scratch / "job.json")]


def variables(scratch: Path) -> dict[str, str]:
    """Environment variables of the ranks: where their program lies."""
    paths = [str(process.program(scratch)), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths)}
