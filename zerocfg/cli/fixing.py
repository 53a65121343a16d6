"""What ``lint --fix`` and ``lint --diff`` do with the fixes that hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from zerocfg.cli.settings import Settings
from zerocfg.rules.engine import Result, Selection
from zerocfg.rules.fixing import fix_all
from zerocfg.run.discover import Files, display_name
from zerocfg.source.edit import unified_diff, write_atomic


def fix_files(
    result: Result, targets: list[Path], settings: Settings, selection: Selection, *, unsafe: bool, dry: bool
) -> Result:
    """Apply the fixes to the files on disk, or print them as a diff when ``dry``; returns what remains."""
    from zerocfg.cli.lint import lint

    def relint(texts: Mapping[str, str]) -> Result:
        return lint(targets, Files(texts), settings, selection)

    texts, remaining, applied = fix_all(result, relint, unsafe=unsafe)
    for name, text in texts.items():
        path = Path(name)
        before = path.read_bytes().decode("utf-8")
        if dry:
            click.echo(unified_diff(display_name(path), before, text), nl=False)
        elif text != before:
            write_atomic(path, text.encode("utf-8"))
    if not dry and applied:
        fixes, files = f"fix{'es' * (applied != 1)}", f"file{'s' * (len(texts) != 1)}"
        click.echo(f"{applied} {fixes} applied in {len(texts)} {files}.", err=True)
    return remaining
