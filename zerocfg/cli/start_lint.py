"""Starts ``zerocfg lint`` without click where it can: from the cached outcome, or for a line of paths alone.

Importing click and parsing a line without options takes a tenth of the CPU time of a short lint.
"""

from __future__ import annotations

import os
import sys

from zerocfg.cli.exit_code import exit_code
from zerocfg.patterns import compiled_when_used
from zerocfg.source import boundary

with compiled_when_used():  # `json` compiles patterns that its scanner in C does not use
    from zerocfg.cli.coloured import write_coloured
    from zerocfg.terminal.streams import prepare, write_exactly
    from zerocfg.workspace.cache import kept_outcome


def run() -> int:
    """Run the lint of the command line, and return its exit code."""
    if "_ZEROCFG_COMPLETE" in os.environ or sys.stdout is None:
        return _with_click()
    prepare()
    return exit_code(_lint)


def _lint() -> int:
    words = sys.argv[1:]
    cached = kept_outcome(words)
    if cached is not None:
        text, exactly, code = cached
        if exactly:
            write_exactly(text)
        else:
            write_coloured(text, sys.stdout)
        return code
    with compiled_when_used():
        import yaml  # noqa: F401 - the reader of YAML needs it
    # On Windows click also expands file patterns; elsewhere the shell did.
    if os.name == "nt" or any(word.startswith("-") for word in words):
        return _with_click()
    from pathlib import Path

    from zerocfg.cli.linting.lint import Options, lint

    paths = tuple(map(Path, words[1:]))
    with boundary.reading(paths):
        return lint(Options(paths=paths))


def _with_click() -> int:
    from zerocfg.cli.main import run as run_with_click

    return run_with_click()
