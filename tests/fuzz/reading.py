"""Readers: no text makes one raise, and what one tells of a place lies within the text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.fuzz.campaign import BrokenError, Campaign, Input
from tests.fuzz.texts import text
from zerocfg.errors import UsageError
from zerocfg.run.kinds import sniff
from zerocfg.run.model import SourceFile
from zerocfg.run.requirements.declared import read_requirements_of
from zerocfg.run.script.modules import parse
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.load import decode, load_bytes
from zerocfg.source.node import Problem, walk
from zerocfg.source.text import SourceText, Span
from zerocfg.workspace.settings import find_settings

NAMES = {
    "yaml": ("config.yaml",),
    "json": ("config.json",),
    "shell": ("run.sh", "run.slurm"),
    "make": ("Makefile",),
    "markdown": ("README.md",),
    "notebook": ("train.ipynb",),
    "python": ("train.py", "setup.py"),
    "toml": ("pyproject.toml", "zerocfg.toml", "uv.lock", "Pipfile"),
    "requirements": ("requirements.txt", "environment.yml", "setup.cfg", "Dockerfile", "setup.sh"),
}


def _make(form: str) -> Callable[[Random], Input]:
    return lambda random: {random.choice(NAMES[form]): text(form, random)}


def _source(folder: Path) -> SourceText | None:
    (path,) = folder.iterdir()
    found = decode(path.name, path.read_bytes())
    return None if isinstance(found, Problem) else found


def _within(spans: Iterable[Span], source: SourceText) -> None:
    for span in spans:
        if not 0 <= span.start <= span.end <= len(source.text):
            raise BrokenError(f"{span} lies outside of a text of {len(source.text)} characters")
        source.place(span.start)


def _document(folder: Path, random: Random) -> None:
    (path,) = folder.iterdir()
    document = load_bytes(path.name, path.read_bytes())
    if document.root is None and not document.problems:
        raise BrokenError("nothing was read and nothing is said of it")
    nodes = [] if document.root is None else list(walk(document.root))
    _within([*(node.span for _, node, _ in nodes), *(one.span for one in document.problems)], document.source)
    sniff(document.data(), path.name)


def _launches(folder: Path, random: Random) -> None:
    source = _source(folder)
    if source is None:
        return
    found = read_launch_lines(source)
    spans = [line.span for line in found.lines] + [one.span for one in found.exhausted]
    spans += [option.span for line in found.lines for option in (*line.options, *line.script_options)]
    _within(spans, source)


def _script(folder: Path, random: Random) -> None:
    source = _source(folder)
    if source is not None:
        read_launch_lines(source)
        module = parse(SourceFile(source.name, "script", source), folder / source.name)
        if module is not None:
            module.code(None)
        _required(folder, random)


def _settings(folder: Path, random: Random) -> None:
    with suppress(UsageError):
        find_settings(folder)
    _required(folder, random)


def _required(folder: Path, random: Random) -> None:
    source = _source(folder)
    if source is None:
        return
    items, _ = read_requirements_of(SourceFile(source.name, "other", source), source.name)
    _within([one.span for one in items], source)


_CHECKS = {
    "yaml": _document,
    "json": _document,
    "shell": _launches,
    "make": _launches,
    "markdown": _launches,
    "notebook": _launches,
    "python": _script,
    "toml": _settings,
    "requirements": _required,
}
READERS = tuple(Campaign(f"read-{form}", 2000, 112_000, _make(form), check) for form, check in _CHECKS.items())
"""A million a night, together."""
