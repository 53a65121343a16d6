"""The run that a user's own command starts, as its launch line and the files that it names tell it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.run.discover import Files, launch_lines
from zerocfg.run.linking.follow import Paths
from zerocfg.run.linking.launch_line_runs import from_line
from zerocfg.run.resolve_settings import with_settings

if TYPE_CHECKING:
    from zerocfg.run.model import Run

_NAME = "the command"


def run_of_command(command: str) -> Run | None:
    """The run of the one launch line of a command, or of the script that it starts; None where there is no one line."""
    here = Path.cwd()
    own = here / f"{_NAME}.sh"
    files = Files({os.path.realpath(own): f"{command}\n"})
    for path in (own, *_scripts(command)):
        file = files.open(path)
        lines = launch_lines(file)
        if len(lines) == 1:
            run = from_line(Paths(files, here), file, lines[0])
            return with_settings(run) if run is not None else None
        if lines:
            return None
    return None


def _scripts(command: str) -> list[Path]:
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    return [Path(word) for word in words if word.endswith(".sh") and Path(word).is_file()]
