"""What the study keeps: repositories, judgements, readers, planted mistakes. Types, and how they are read.

What is held out stands in folders of its own, in the same form.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

HERE = Path(__file__).resolve().parent
HELD_OUT = ("held_out", *(f"held_out_{number}" for number in range(2, 21)))
"""Folders, one for each time that repositories were chosen anew; oldest first."""
Verdict = Literal["true", "false", "misleading"]
Format = Literal["yaml", "json", "recipe", "line", "python"]
FORMATS: tuple[Format, ...] = get_args(Format)


@dataclass(frozen=True)
class Repository:
    """A public repository at one commit, and why it is part of the study.

    ``held_out``: the folder of its set, where nobody had looked at it before zerocfg was first held against it.
    """

    name: str
    commit: str
    why: str
    held_out: str = ""

    def tree(self, folder: Path) -> Path:
        return folder / self.name.replace("/", "+")


@dataclass(frozen=True)
class Finding:
    """One finding of a lint of a whole repository. ``message`` is the hash of its text."""

    repository: str
    commit: str
    file: str
    line: int
    key: str
    code: str
    severity: str
    message: str

    @property
    def place(self) -> str:
        """Where it stands, in the words of judgements: the key of a config, else the line."""
        return f"{self.file} {self.key or self.line}"


@dataclass(frozen=True)
class Judgement:
    """Whether the findings of one code at some places of a repository are true, and what shows it.

    ``places`` are "path key" or "path line", with `*` where one reason holds for many files of the repository; a code
    may end in `*` too. ``message``: the hash of the only text that it is about, where the same finding was told in
    another one once.
    """

    repository: str
    commit: str
    code: str
    places: tuple[str, ...]
    verdict: Verdict
    evidence: str
    message: str = ""

    def covers(self, finding: Finding) -> bool:
        return (
            self.is_about(finding)
            and (self.repository, self.commit) == (finding.repository, finding.commit)
            and fnmatchcase(finding.code, self.code)
            and any(one == finding.place or ("*" in one and fnmatchcase(finding.place, one)) for one in self.places)
        )

    def is_about(self, finding: Finding) -> bool:
        return self.message in ("", finding.message)


@dataclass(frozen=True)
class Reader:
    """Who reads the configs of the launch lines (``lines``: "path:line") that start a script."""

    repository: str
    script: str
    reader: str
    evidence: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Planted:
    """A small edit of a repository: a mistake and the ``codes`` that may tell it, or (``codes`` empty) a harmless one.

    The edit replaces the first ``old`` of the file by ``new``. ``consequence`` says what the library then does.
    """

    repository: str
    file: str
    format: Format
    old: str
    new: str
    consequence: str
    codes: tuple[str, ...] = ()


def repositories() -> list[Repository]:
    return [
        Repository(str(row["repository"]), str(row["commit"]), str(row["why"]), folder)
        for folder in ("", *HELD_OUT)
        for row in _rows("repositories", folder)
    ]


def judgements() -> list[Judgement]:
    commits = {one.name: one.commit for one in repositories()}
    found = []
    for row in _everywhere("judgements"):
        verdict = str(row["verdict"]).lower()
        assert verdict in get_args(Verdict), row
        name = row["repository"]
        commit = str(row.get("commit", commits.get(name, "")))
        places = tuple(map(str, row["places"]))
        about = (row["evidence"], row.get("message", ""))
        found.append(Judgement(name, commit, row["code"], places, verdict, *about))  # type: ignore[arg-type]
    return found


def readers() -> list[Reader]:
    return [
        Reader(row["repository"], row["script"], row["reader"], row["evidence"], tuple(map(str, row["lines"])))
        for row in _everywhere("readers")
    ]


def first_findings(folder: str) -> list[Finding]:
    """What zerocfg said of the repositories of a set that is held out before anything was mended for them."""
    lines = (HERE / folder / "first.jsonl").read_text(encoding="utf-8").splitlines()
    return [Finding(**json.loads(line)) for line in lines]


def planted() -> list[Planted]:
    found = []
    for row in _rows("planted"):
        assert row["format"] in FORMATS, row
        codes = tuple(row.get("codes", ()))
        place = (row["repository"], row["file"], row["format"])
        found.append(Planted(*place, row["old"], row["new"], row["consequence"], codes))
    return found


def _everywhere(name: str) -> list[dict[str, Any]]:
    return [row for folder in ("", *HELD_OUT) for row in _rows(name, folder)]


def _rows(name: str, folder: str = "") -> list[dict[str, Any]]:
    text = (HERE / folder / f"{name}.yaml").read_text(encoding="utf-8")
    rows = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    assert isinstance(rows, list)
    return rows
