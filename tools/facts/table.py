"""``python -m tools.facts.table``: writes ``docs/rules-by-release.md``, what the examples of every rule with a release
bound were seen to do on each release set."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tools.facts.environment import ROOT
from tools.facts.explained import CHANGED, LESS, MILDER, NOT_INSTALLED, TOLD
from tools.facts.played import good_beside
from tools.facts.release_bound import REASONS, Bound, bounds
from zerocfg.catalog.rule_outcomes import Outcome, RuleOutcomes, Side, rule_outcomes
from zerocfg.rulebook.example import Example
from zerocfg.rulebook.older_releases import LIBRARIES, key_of
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.api import Rule
from zerocfg.run.config import VERSIONS

FILE = ROOT / "docs" / "rules-by-release.md"
TODAY = "today"
YET = "open, not yet"
SHOWN, NOT, OPEN, HISTORY, PASSES, STOPS = "shown", "not", "open", "history", "passes", "stops"
MEANING = {
    SHOWN: "the bad example does what the rule claims; with a phase: there, and not where today's releases do it",
    NOT: "it was played and does not; with a phase: to the end of that one; with a number: what was seen instead",
    PASSES: "the good example passes; `not`: with other values than its page says",
    STOPS: "another error stops the example, so that its claim is not seen; the number says which",
    OPEN: "not played; the number says why it cannot be; without one: not yet",
    HISTORY: "not played: judged by what every release reads (`schemas/releases`), which was asked of each by itself",
}
CITED = "the claim is cited, as its page says; nothing here can play it"
CARD = "the claim shows on a card only"


@dataclass(frozen=True)
class Cell:
    """``word``: one of `MEANING`. ``phase``: where that is another one than the claim's. ``why``: what was seen
    instead, or why nothing was."""

    word: str
    phase: str = ""
    why: str = ""


@dataclass(frozen=True)
class Row:
    """``name``: of an example. ``cells``: by set, today's last."""

    name: str
    good: bool
    phase: str
    cells: tuple[Cell, ...]


def rows(bound: Bound, played: RuleOutcomes) -> list[Row]:
    """The examples of a rule, the good ones last."""
    rule, page = bound.rule, page_of(bound.rule)
    if rule.by_each_release:
        return [Row(rule.code, False, "", tuple(Cell(HISTORY) for _ in (*played.sets, TODAY)))]
    sides: list[tuple[Side, Sequence[Example]]] = [("bad", page.bad), ("good", page.good)]
    return [_row(rule, side, number, played) for side, examples in sides for number in range(len(examples))]


def _row(rule: Rule, side: Side, number: int, played: RuleOutcomes) -> Row:
    page = page_of(rule)
    example = (page.good if side == "good" else page.bad)[number]
    good = side == "good"
    name = f"{rule.code}-{number + 1}" + (" good" if good else "")
    if page.proof.status != "executed":
        cell = Cell(OPEN, why=CARD if page.proof.status == "needs_gpu" else CITED)
        return Row(name, good, "", tuple(cell for _ in (*played.sets, TODAY)))
    known = {of_set: played.outcomes(rule.code, [key_of(rule, example)], of_set, side)[0] for of_set in played.sets}
    passed = _passed(rule, number, played) if good else set()
    cells = [
        Cell(PASSES) if outcome is None and name in passed else cell_of(outcome, side)
        for name, outcome in known.items()
    ]
    return Row(name, good, (example.proof or page.proof).phase, (*cells, Cell(PASSES if good else SHOWN)))


def _passed(rule: Rule, good: int, played: RuleOutcomes) -> set[str]:
    """The sets on which a bad example was held against this good one, and did not show its claim: where the good one
    stops as well, nothing is said of the bad one (`tools.facts.outcome`)."""
    numbers = [number for number in range(len(page_of(rule).bad)) if good_beside(rule, number) == good]
    keys = [key_of(rule, page_of(rule).bad[number]) for number in numbers]
    return {
        name
        for name in played.sets
        if any(
            outcome and outcome.kind in ("runs", "other", "stops") for outcome in played.outcomes(rule.code, keys, name)
        )
    }


def cell_of(outcome: Outcome | None, side: Side) -> Cell:
    """``outcome``: None where an example was not played."""
    if outcome is None:
        return Cell(OPEN)
    if outcome.kind == "unplayable":
        return Cell(OPEN, why=outcome.seen)
    if outcome.kind == "same":
        return Cell(PASSES if side == "good" else SHOWN, phase=outcome.seen.removeprefix("in "))
    if outcome.kind == "runs":
        return Cell(NOT, phase=outcome.seen)
    return Cell(STOPS if outcome.kind == "stops" else NOT, why=outcome.seen)


def text() -> str:
    played = rule_outcomes()
    found = bounds()
    table = [row for bound in found for row in rows(bound, played)]
    reasons = {why: number for number, why in enumerate(_reasons(table), 1)}
    return "\n".join(
        [
            "# Rules by release",
            "",
            "<!-- Written by `python -m tools.facts.table`; do not edit. -->",
            "",
            *_head(found, table, played),
            "## The sets",
            "",
            *_aligned([["set", *LIBRARIES], *_sets(played)]),
            "",
            *_not_installed(),
            "## What was seen",
            "",
            "A row for each example, by its number on the page of its rule, with the phase of its claim today.",
            "",
            *(f"- `{word}`: {meaning}" for word, meaning in MEANING.items()),
            "",
            *_aligned([["example", *played.sets, TODAY], *(_shown(row, reasons) for row in table)]),
            "",
            "## What was seen instead, and why nothing was",
            "",
            *(f"{number}. {_code(why)}" for why, number in reasons.items()),
            "",
            "## What is said where something else was seen",
            "",
            "With a set pinned, no rule speaks of what was seen not to be there, and none is silent about what was",
            "seen: see `tests/rules/test_older_releases.py`. The exceptions:",
            "",
            *(f"- {_link(code)}: {why}" for code, why in sorted({**TOLD, **MILDER, **LESS}.items())),
            "",
            "## The bounds",
            "",
            *_aligned([["rule", "releases that it names", "depends on releases, as"], *map(_of_bound, found)]),
            "",
            *(f"- `{reason}`: {words}" for reason, words in REASONS.items()),
            "",
        ]
    )


def _head(found: Sequence[Bound], table: Sequence[Row], played: RuleOutcomes) -> list[str]:
    return [
        "What the examples of every rule whose claim depends on a release were seen to do: on older release sets,",
        "played to the phase that decides (`python -m tools.facts.play`), and on today's, in every full test run.",
        "",
        *_aligned(
            [
                ["what", "number"],
                ["rules with a release bound", str(len(found))],
                ["older release sets", str(len(played.sets))],
                ["bounds that changed by what was seen", str(len(CHANGED))],
            ]
        ),
        "",
        *_aligned(
            [
                ["cells of older sets", "bad examples", "good examples"],
                *([f"`{word}`", *counts] for word, counts in _counted(table).items()),
            ]
        ),
        "",
        *([*(f"- {_link(code)}: {change}" for code, change in CHANGED.items()), ""] if CHANGED else []),
    ]


def _counted(table: Sequence[Row]) -> dict[str, list[str]]:
    """The cells of older sets by word, of bad and of good examples."""
    found = Counter((row.good, _kind(cell)) for row in table for cell in row.cells[:-1])
    return {word: [str(found[good, word]) for good in (False, True)] for word in (*MEANING, YET)}


def _kind(cell: Cell) -> str:
    return YET if cell.word == OPEN and not cell.why else cell.word


def _sets(played: RuleOutcomes) -> list[list[str]]:
    named = {**played.sets, TODAY: VERSIONS}
    return [[name, *(libraries.get(library, "") for library in LIBRARIES)] for name, libraries in named.items()]


def _not_installed() -> list[str]:
    return ["Not installed:", "", *(f"- {what}: {why}" for what, why in NOT_INSTALLED.items()), ""]


def _reasons(table: Iterable[Row]) -> list[str]:
    return [*dict.fromkeys(cell.why for row in table for cell in row.cells if cell.why)]


def _shown(row: Row, reasons: dict[str, int]) -> list[str]:
    cells = [" ".join([cell.word, *filter(None, [cell.phase, _number(cell, reasons)])]) for cell in row.cells]
    return [f"{row.name} {row.phase}".strip(), *cells]


def _number(cell: Cell, reasons: dict[str, int]) -> str:
    return str(reasons[cell.why]) if cell.why else ""


def _of_bound(bound: Bound) -> list[str]:
    named = ", ".join(f"`{releases}`" for releases in bound.releases)
    return [_link(bound.rule.code), named, ", ".join(reason for reason in REASONS if reason in bound.reasons)]


def _link(code: str) -> str:
    return f"[{code}](rules/{code}.md)"


def _code(seen: str) -> str:
    if seen in (CITED, CARD):
        return seen
    return f"`{seen.replace('`', chr(39)).replace(chr(10), ' ').strip()}`"


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """A table whose columns are as wide as their widest cell; the first line is its heading."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    heading, *rest = (
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )
    return [heading, "|" + "|".join("-" * (width + 2) for width in widths) + "|", *rest]


def main() -> int:
    FILE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
