"""Runs made in memory, and rules asked directly about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zerocfg.rules.api import Finding, Fix
from zerocfg.rules.registry import find
from zerocfg.run.model import Effective, Origin, Run, Setting, SourceFile
from zerocfg.source.edit import apply_edits
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText

TRAIN = SourceFile("train.py", "script", SourceText("train.py", "SFTConfig(learning_rate=1, learning_rate2=2)"))


def found(code: str, run: Run) -> list[Finding]:
    """What a rule says of a run as it stands."""
    rule = find(code)
    assert rule is not None
    return list(rule.check(run))


def shown(one: Finding) -> str:
    span = one.location.concrete()
    return one.location.file.source.text[span.start : span.end]


def after(fix: Fix | None) -> str:
    assert fix is not None
    ((file, *_),) = {(file,) for file, _ in fix.edits}
    return apply_edits(file.source.text, [edit for _, edit in fix.edits])


def yaml_file(kind: Any, text: str, name: str = "recipe.yaml") -> SourceFile:
    source = SourceText(name, text)
    return SourceFile(name, kind, source, load_as(source, "yaml"))


def effective(run: Run, environment: dict[str, Any] | None = None, **settings: Any) -> Run:
    def held(values: dict[str, Any]) -> dict[str, Setting]:
        return {name: one if isinstance(one, Setting) else Setting(one, Origin("file")) for name, one in values.items()}

    return replace(run, effective=Effective(environment=held(environment or {}), settings=held(settings)))


def started(text: str, name: str = "run.sh", **more: Any) -> Run:
    source = SourceText(name, f"{text}\n")
    (line,) = read_launch_lines(source).lines
    return Run("a", launch=line, launch_file=SourceFile(name, "launch", source), **more)
