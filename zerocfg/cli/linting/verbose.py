"""``lint --verbose``: the settings in use, the files read and the runs found, on standard error."""

from __future__ import annotations

import click

from zerocfg.run.discover import display_name
from zerocfg.workspace.job import Job


def report_details(job: Job, seconds: float) -> None:
    """Print what the last lint of a job did."""
    source = job.settings.source
    lines = [f"settings from {display_name(source)}" if source is not None else "no settings file"]
    lines += [f"--config {word}" for word in job.settings.given]
    files = sorted({file.name: file for file in job.files.all()}.items()) if job.files is not None else []
    for name, file in files:
        kind = f" ({file.kind})" if file.kind else ""
        lines.append(f"read {name}{kind}{', excluded' if job.excluded(file) else ''}")
    lines += [f"run {run.name}, read by {run.consumer or 'unknown'}" for run in job.runs]
    lines.append(f"{_count(len(files), 'file')} read, {_count(len(job.runs), 'run')} found, {seconds:.2f} s")
    for line in lines:
        click.echo(f"zerocfg: {line}", err=True)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
