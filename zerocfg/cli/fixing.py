"""What ``lint --fix`` and ``lint --diff`` do with the fixes that hold."""

from __future__ import annotations

from pathlib import Path

import click

from zerocfg.cli.linting import Job
from zerocfg.rules.engine import Result
from zerocfg.rules.fixing import fix_all
from zerocfg.run.discover import display_name
from zerocfg.source.edit import unified_diff
from zerocfg.source.write import Change, write_together


def fix_files(job: Job, result: Result, *, unsafe: bool, dry: bool) -> Result:
    """Apply the fixes to the files on disk, or print them as a diff when ``dry``; returns what remains.

    Standard input is answered with its fixed text on standard output.
    """
    texts, remaining, applied = fix_all(result, job.lint, unsafe=unsafe)
    changed = {path: text for path, text in sorted(texts.items()) if text != job.original(path)}
    if dry:
        for path, text in changed.items():
            click.echo(unified_diff(display_name(Path(path)), job.original(path), text), nl=False)
        return remaining
    write_together(
        Change(Path(path), job.original(path).encode("utf-8"), text.encode("utf-8"))
        for path, text in changed.items()
        if path not in job.stdin
    )
    for path in job.stdin:
        click.echo(changed.get(path, job.original(path)), nl=False)
    if applied:
        fixes, files = f"fix{'es' * (applied != 1)}", f"file{'s' * (len(changed) != 1)}"
        click.echo(f"{applied} {fixes} applied in {len(changed)} {files}.", err=True)
    return remaining
