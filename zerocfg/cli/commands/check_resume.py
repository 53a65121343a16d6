"""``zerocfg check-resume``: can a run resume from a checkpoint?"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from zerocfg.terminal.streams import columns
from zerocfg.terminal.table import folded


@click.command("check-resume")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("run", required=False)
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(checkpoint: Path, run: str | None, output_format: str) -> None:
    """Say whether RUN can resume from CHECKPOINT, what gets lost, and how to get there if it cannot.

    CHECKPOINT: a folder that DeepSpeed, FSDP or the Trainer saved, or a Trainer's output folder (its last checkpoint).
    RUN: a run of a spec (zerocfg.yaml:RUN), a build (OUT/RUN), a config or a launch line (train.sh:3). Without RUN
    the checkpoint is described, with what is missing or damaged in it.

    Names, sizes and headers are read; nothing is unpickled and nothing of the checkpoint is executed.

    Exit codes: 0 resumes, even if something that is listed is lost; 1 does not resume; 2 wrong use, or no checkpoint.
    """
    from zerocfg.compare.sides import SideError
    from zerocfg.emit.lock import LockError
    from zerocfg.resume.checkpoint import CheckpointError
    from zerocfg.resume.read import read_checkpoint
    from zerocfg.resume.target import open_target
    from zerocfg.resume.text import data, render
    from zerocfg.resume.verdict import judge
    from zerocfg.run.discover import Files

    try:
        found = read_checkpoint(checkpoint)
        target = None if run is None else open_target(run, Files())
    except (CheckpointError, SideError, LockError) as error:
        raise click.UsageError(str(error)) from None
    verdict = judge(found, target)
    if output_format == "json":
        click.echo(json.dumps(data(found, target, verdict), indent=2))
    else:
        click.echo(folded(render(found, target, verdict), columns(sys.stdout)), nl=False)
    raise click.exceptions.Exit(1 if verdict.outcome == "does not resume" else 0)
