"""Applies or shows the fixes of ``lint --fix`` and ``lint --diff``."""

from __future__ import annotations

from pathlib import Path

import click

from zerocfg.linter.engine import Result
from zerocfg.linter.fixing import fix_all
from zerocfg.run.discover import display_name
from zerocfg.source.edit import unified_diff
from zerocfg.source.write import Change, write_together
from zerocfg.terminal.progress import Working
from zerocfg.terminal.streams import write_diff, write_exactly
from zerocfg.workspace.job import Job


def show_fixes(job: Job, result: Result, *, unsafe: bool, quiet: bool = False) -> bool:
    """Print what the fixes would change as a diff; returns whether there is anything."""
    with Working("trying fixes"):
        texts, _, applied = fix_all(result, job.lint, unsafe=unsafe, wanted=job.is_reported)
    changed = _changed(job, texts)
    for path, text in changed.items():
        write_diff(unified_diff(display_name(Path(path)), job.original(path), text))
    if applied and not quiet:
        click.echo(f"Would apply {_count(applied, 'fix')} in {_count(len(changed), 'file')}.", err=True)
    return bool(changed)


def fix_files(job: Job, result: Result, *, unsafe: bool, quiet: bool = False) -> Result:
    """Apply the fixes to the files on disk; returns what remains.

    Standard input is answered with its fixed text on standard output.
    """
    with Working("trying fixes"):
        texts, remaining, applied = fix_all(result, job.lint, unsafe=unsafe, wanted=job.is_reported)
    changed = _changed(job, texts)
    write_together(
        Change(Path(path), job.original(path).encode("utf-8"), text.encode("utf-8"))
        for path, text in changed.items()
        if path not in job.stdin
    )
    for path in job.stdin:
        write_exactly(changed.get(path, job.original(path)))
    if applied and not quiet:
        click.echo(f"Applied {_count(applied, 'fix')} in {_count(len(changed), 'file')}.", err=True)
    return remaining


def _changed(job: Job, texts: dict[str, str]) -> dict[str, str]:
    return {path: text for path, text in sorted(texts.items()) if text != job.original(path)}


def _count(number: int, what: str) -> str:
    plural = "es" if what.endswith("x") else "s"
    return f"{number} {what}{plural * (number != 1)}"
