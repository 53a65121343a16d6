"""The figures of the study: precision by judgement, readers by script, recall of planted mistakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.wild.data import FORMATS, Finding, Judgement, Reader
from benchmarks.wild.planting import Outcome

SEVERITIES = ("error", "warning")
FAMILY = {"transformers", "trl"}
"""Readers that share the Trainer; which of both it is decides only about TRL's own keys."""
KNOWN = {"transformers", "trl", "accelerate", "deepspeed"}


@dataclass(frozen=True)
class Precision:
    """Counts of findings, and of files in which a code was found (``files_*``), by what they are worth."""

    true: int
    wrong: int
    unjudged: int
    files_true: int
    files_wrong: int

    @property
    def share(self) -> float | None:
        return self.true / (self.true + self.wrong) if self.true + self.wrong else None

    @property
    def share_of_files(self) -> float | None:
        return self.files_true / (self.files_true + self.files_wrong) if self.files_true + self.files_wrong else None


@dataclass(frozen=True)
class Judged:
    finding: Finding
    judgement: Judgement | None

    @property
    def wrong(self) -> bool:
        return self.judgement is not None and self.judgement.verdict != "true"

    @property
    def true(self) -> bool:
        return self.judgement is not None and self.judgement.verdict == "true"


def judged(findings: Iterable[Finding], judgements: Sequence[Judgement]) -> list[Judged]:
    """Every finding that is no note with its judgement; one that is exact goes before one with a pattern."""
    exact: dict[tuple[str, str, str, str], list[Judgement]] = {}
    patterns: dict[str, list[Judgement]] = {}
    for one in judgements:
        for place in one.places:
            exact.setdefault((one.repository, one.commit, one.code, place), []).append(one)
        patterns.setdefault(one.repository, []).append(one)
    found = []
    for finding in findings:
        if finding.severity not in SEVERITIES:
            continue
        key = (finding.repository, finding.commit, finding.code, finding.place)
        here = [one for one in exact.get(key, ()) if one.is_about(finding)]
        here += [one for one in patterns.get(finding.repository, ()) if one.covers(finding)]
        found.append(Judged(finding, max(here, key=lambda one: bool(one.message)) if here else None))
    return found


def vanished(
    findings: Iterable[Finding], judgements: Iterable[Judgement], linted: set[str]
) -> list[tuple[Judgement, str]]:
    """Places that were judged in a repository that was linted and have no such finding any more."""
    here = {(one.repository, one.code, one.place) for one in findings}
    return [
        (one, place)
        for one in judgements
        if one.repository in linted
        for place in one.places
        if "*" not in place and (one.repository, one.code, place) not in here
    ]


def precision(rows: Iterable[Judged]) -> Precision:
    rows = list(rows)
    known = [row for row in rows if row.judgement is not None]
    files = {(row.finding.repository, row.finding.file, row.finding.code, row.wrong) for row in known}
    wrong = sum(one[-1] for one in files)
    return Precision(
        sum(row.true for row in rows),
        sum(row.wrong for row in rows),
        sum(row.judgement is None for row in rows),
        len(files) - wrong,
        wrong,
    )


@dataclass(frozen=True)
class Reading:
    """What zerocfg takes for the reader of one launch line; None where it sees no run in it."""

    reader: Reader
    line: str
    said: str | None

    @property
    def outcome(self) -> str:
        """ "right", "family" (the Trainer, but not which), "unknown" (it does not say), "unseen" or "wrong".

        Of a program that is none of zerocfg's readers nothing is to be said.
        """
        judged = self.reader.reader if self.reader.reader in KNOWN else ""
        if self.said is None:
            return "unseen" if judged else "right"
        if self.said == self.reader.reader or (not judged and self.said not in KNOWN):
            return "right"
        if {self.said, judged} == FAMILY:
            return "family"
        return "wrong" if self.said in KNOWN else "unknown"


def recall(outcomes: Sequence[Outcome]) -> list[tuple[str, int, int, int, int]]:
    """By format: mistakes planted, told, harmless edits, alarms at them."""
    rows: list[tuple[str, int, int, int, int]] = []
    for name in FORMATS:
        here = [one for one in outcomes if one.planted.format == name]
        mistakes = [one for one in here if one.planted.codes]
        harmless = [one for one in here if not one.planted.codes]
        told = sum(bool(one.told) for one in mistakes)
        rows.append((name, len(mistakes), told, len(harmless), sum(bool(one.other) for one in harmless)))
    return rows


def counted(readings: Iterable[Reading]) -> Counter[str]:
    return Counter(one.outcome for one in readings)
