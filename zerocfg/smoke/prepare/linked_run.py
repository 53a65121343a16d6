"""The run of a folder as the linter links it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.resolve_settings import with_settings
from zerocfg.smoke.prepare.handwritten import CONSUMERS

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.run.model import Run
    from zerocfg.smoke.prepare.folder import RunFolder


def linked_run(folder: RunFolder) -> Run | None:
    """The run as the linter links it; None when its files do not determine it."""
    if folder.handwritten is not None:
        return folder.handwritten.run
    if folder.line is not None or not (folder.hashes or folder.lock.plan):
        return folder.line  # of a command: what else lies in the current folder is no part of it
    try:
        runs, _ = find_runs([folder.path], Files(), root=_top(folder))
    except OSError:
        return None
    runs = [run for run in runs if run.accelerate or run.deepspeed or run.recipe]
    if not runs:
        return None
    run = runs[0]
    if run.consumer is None and folder.consumer in CONSUMERS:  # the lock tells
        return with_settings(replace(run, consumer=folder.consumer))
    return run


def _top(folder: RunFolder) -> Path:
    """The folder of the spec, from which launch.sh starts the script, where it is still there."""
    built = folder.path.resolve()
    top = (built / (folder.lock.spec_folder or "")).resolve()
    return top if built.is_relative_to(top) and top.is_dir() else built
