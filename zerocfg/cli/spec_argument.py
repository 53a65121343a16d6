"""The SPEC argument of the commands that resolve runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zerocfg.resolve.build import BuildResult, build_plans
from zerocfg.resolve.spec.spec_file import SpecFile, read_spec
from zerocfg.run.discover import display_name
from zerocfg.terminal.progress import Working
from zerocfg.workspace.settings import find_settings

if TYPE_CHECKING:
    from pathlib import Path


def read_or_exit(spec: Path) -> SpecFile:
    """The spec at a path, or in the folder of that path. Prints what is wrong with it and exits with 2."""
    path = spec / "zerocfg.yaml" if spec.is_dir() else spec
    if not path.exists():
        hint = "; `zerocfg init` writes a first one" if spec.is_dir() else ""
        raise click.UsageError(f"there is no file '{path}'{hint}")
    read = read_spec(path, display_name(path))
    if read.spec is None:
        for problem in read.problems:
            click.echo(f"{problem}", err=True)
        raise click.exceptions.Exit(2)
    return read


def resolved(read: SpecFile, only: str | None, hardware: str | None, network: str | None = None) -> list[BuildResult]:
    """The runs, resolved; shows which one is at work. Unknown runs, hardware and networks are wrong use."""
    try:
        with Working() as working:
            return build_plans(read, only, hardware, working, find_settings(read.folder).versions, network)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
