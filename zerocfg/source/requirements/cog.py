"""What `cog.yaml` installs, from which Cog builds the image of a model; without `train` it only predicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from zerocfg.source.requirements.installs import read_installs
from zerocfg.source.requirements.manifests import Read
from zerocfg.source.requirements.pip import Requirement, read_requirements
from zerocfg.source.text import SourceText, Span


def read_cog(text: str, data: object) -> Read:
    """The packages that it lists, those that its commands install, and the files that either names; ``data`` is its
    parsed content."""
    build = data.get("build") if isinstance(data, dict) and "train" in data else None
    found: list[Requirement] = []
    includes: list[str] = []
    for line in _texts(build, "python_packages"):
        requirements, others = read_requirements(line)
        found += _placed(text, line, requirements)
        includes += others
    for command in _texts(build, "run"):
        requirements, others = read_installs(SourceText("run.sh", command))
        found += _placed(text, command, requirements)
        includes += others
    included = build.get("python_requirements") if isinstance(build, dict) else None
    return found, [*includes, *([included] if isinstance(included, str) else [])]


def _texts(build: object, key: str) -> Iterator[str]:
    listed = build.get(key) if isinstance(build, dict) else None
    for item in listed if isinstance(listed, list) else ():
        text = item.get("command") if isinstance(item, dict) else item
        if isinstance(text, str):
            yield text


def _placed(text: str, line: str, requirements: list[Requirement]) -> list[Requirement]:
    """With the line's place in the file, where it stands there as it was read."""
    start = max(0, text.find(line))
    return [replace(item, span=Span(start, start + len(line))) for item in requirements]
