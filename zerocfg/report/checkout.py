"""The path of a file in the checkout of a CI service, which need not be the current folder."""

from __future__ import annotations

import os
from pathlib import Path

from zerocfg.source import disk

GITHUB, GITLAB = "GITHUB_WORKSPACE", "CI_PROJECT_DIR"
"""The variables in which the services name the folder of the checkout."""


def in_checkout(name: str, variable: str) -> str:
    """The name of a file relative to the root of the checkout, with slashes; unchanged outside of a checkout."""
    root = os.environ.get(variable)
    if root:
        path = disk.resolved(Path(name).parent) / Path(name).name  # a link is itself
        top = disk.resolved(Path(root))
        if path.is_relative_to(top):
            return path.relative_to(top).as_posix()
    return name.replace("\\", "/")
