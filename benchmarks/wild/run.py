"""Lints whole public repositories as their owners would, and holds what is found against what was judged.

    python -m benchmarks.wild.run FOLDER [--only NAME] [--no-planted] [--fix] [--write RESULTS]

FOLDER holds the trees that `python -m benchmarks.wild.repositories` brings. Prints precision by code, findings that
nobody judged, judged findings that are gone, readers of launch lines, recall of planted mistakes; with --fix also what
the fixes do to copies of the trees, which needs the training libraries. With --write also
puts findings.jsonl, results.md and results.svg into RESULTS (benchmarks/wild/results is kept).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.wild import data
from benchmarks.wild.figures import (
    SEVERITIES,
    Judged,
    Precision,
    Reading,
    counted,
    judged,
    precision,
    recall,
    vanished,
)
from benchmarks.wild.lint import LintError, consumers, findings
from benchmarks.wild.planting import Outcome, outcomes
from benchmarks.wild.repositories import commit_of

_HEAD = ("findings", "true", "wrong", "not judged", "precision", "by file")

if TYPE_CHECKING:
    from benchmarks.wild.fixing import Fixed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", default=[], help="part of a repository's name")
    parser.add_argument("--no-planted", action="store_true")
    parser.add_argument("--fix", action="store_true")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    chosen = [one for one in data.repositories() if not given.only or any(word in one.name for word in given.only)]
    there = [one for one in chosen if commit_of(one.tree(given.folder)) == one.commit]
    for one in chosen:
        if one not in there:
            print(f"{one.name} is not there at {one.commit[:12]}", file=sys.stderr)
    names = {one.name for one in there}
    found, broken = findings({one.tree(given.folder): one for one in there}) if there else ([], [])
    said: dict[tuple[str, str], str] = {}
    read = {one.repository for one in data.readers()}
    for one in there:
        try:
            if one.name in read:
                said |= {(one.name, line): who for line, who in consumers(one.tree(given.folder)).items()}
        except LintError as error:
            broken.append(str(error))
    rows = judged(found, data.judgements())
    gone = vanished(found, data.judgements(), names)
    readings = [
        Reading(one, line, said.get((one.repository, line)))
        for one in data.readers()
        if one.repository in names
        for line in one.lines
    ]
    planted = [] if given.no_planted else [one for one in data.planted() if one.repository in names]
    told = list(outcomes(planted, there, given.folder))
    fixes = list(_fixes(there, given.folder, broken)) if given.fix else []
    held = {one.name for one in chosen if one.held_out}
    text = report(
        there, rows, gone, [one for one in readings if one.reader.repository not in held], told, fixes, broken
    )
    for folder in data.HELD_OUT:
        part = {one.name for one in there if one.held_out == folder}
        text += held_out(folder, part, rows, [one for one in readings if one.reader.repository in part])
    print(text)
    if given.write is not None:
        from benchmarks.wild.picture import draw

        given.write.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(asdict(one), ensure_ascii=False) for one in found if one.severity in SEVERITIES]
        (given.write / "findings.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (given.write / "results.md").write_text(text, encoding="utf-8")
        study = [row for row in rows if row.finding.repository not in held]
        draw(study, [one for one in readings if one.reader.repository not in held], told, given.write / "results.svg")


def report(
    repositories: Sequence[data.Repository],
    rows: Sequence[Judged],
    gone: Sequence[tuple[data.Judgement, str]],
    readings: Sequence[Reading],
    told: Sequence[Outcome],
    fixes: Sequence[Fixed],
    broken: Sequence[str],
) -> str:
    held = {one.name for one in repositories if one.held_out}
    parts = [f"# {len(repositories) - len(held)} whole repositories\n", *[f"- {one}" for one in broken]]
    parts += ["## Precision\n", "A finding that misleads counts as wrong. A file counts once for each code.\n"]
    parts.append(_table(_HEAD, _precisions([row for row in rows if row.finding.repository not in held])))
    parts += ["\n## Wrong, by cause\n"]
    parts += [f"- {line}" for line in _causes(rows)] or ["none"]
    parts += ["\n## Not judged\n"]
    parts += [
        f"- {one.repository} {one.place}: {one.severity} {one.code}"
        for one in (row.finding for row in rows if row.judgement is None)
    ] or ["none"]
    parts += ["\n## Judged and gone\n", "Wrong ones that are gone are mended; true ones that are gone are missed.\n"]
    wrong = sum(judgement.verdict != "true" for judgement, _ in gone)
    parts.append(f"{wrong} wrong ones are gone.\n")
    missed = [(judgement, place) for judgement, place in gone if judgement.verdict == "true"]
    parts += [f"- {judgement.repository} {place}: {judgement.code}" for judgement, place in missed]
    if readings:
        parts += ["\n## Readers of launch lines\n", _readers(readings)]
    if told:
        parts += ["\n## Planted mistakes\n", _recalls(told)]
        parts += ["\nNot told:\n"]
        parts += [_planted(one) for one in told if one.planted.codes and not one.told] or ["none"]
        parts += ["\nAlarms at harmless edits:\n"]
        parts += [_planted(one) for one in told if not one.planted.codes and one.other] or ["none"]
    if fixes:
        from benchmarks.wild.fix_report import fix_report

        parts += ["\n## After the fixes\n", fix_report(fixes)]
    return "\n".join(parts) + "\n"


def _fixes(repositories: Sequence[data.Repository], folder: Path, broken: list[str]) -> Iterator[Fixed]:
    from benchmarks.wild.fixing import fixed  # reads with the training libraries

    with ProcessPoolExecutor() as pool:  # a job for each processor
        tried = [
            pool.submit(fixed, one, one.tree(folder), unsafe=unsafe) for unsafe in (False, True) for one in repositories
        ]
        for one in tried:
            try:
                yield one.result()
            except LintError as error:
                broken.append(str(error))


def held_out(folder: str, linted: set[str], rows: Sequence[Judged], readings: Sequence[Reading]) -> str:
    """The part of the report about a set of repositories that nobody had looked at: what it was, what it is now."""
    before = judged(data.first_findings(folder), data.judgements())
    number = len([one for one in data.repositories() if one.held_out == folder])
    parts = [
        f"\n## Held out ({folder}): {number} more repositories\n",
        "Chosen by what they train with and judged before any change; then the causes of what was wrong were mended. "
        "The first figures are those of repositories that nobody has looked at.\n",
    ]
    table = []
    for one in SEVERITIES:
        table.append(_row(f"**{one}s**, before any change", precision(r for r in before if r.finding.severity == one)))
        now = [r for r in rows if r.finding.severity == one and r.finding.repository in linted]
        table += [_row(f"**{one}s**, now", precision(now))] if linted else []
    table += [_row(f"{name}, before any change", one) for name, one in _by_code(before)]
    parts.append(_table(_HEAD, table))
    if readings:
        parts += ["", _readers(readings)]
    return "\n".join(parts) + "\n"


def _by_code(rows: Sequence[Judged]) -> Iterator[tuple[str, Precision]]:
    for severity in SEVERITIES:
        here = [row for row in rows if row.finding.severity == severity]
        for code in sorted({row.finding.code for row in here}):
            yield f"{severity} {code}", precision(row for row in here if row.finding.code == code)


def _precisions(rows: Sequence[Judged]) -> list[tuple[str, ...]]:
    table = [_row(f"**{one}s**", precision(row for row in rows if row.finding.severity == one)) for one in SEVERITIES]
    return table + [_row(name, one) for name, one in _by_code(rows)]


def _row(name: str, one: Precision) -> tuple[str, ...]:
    shares = (one.share, one.share_of_files)
    return name, str(one.true), str(one.wrong), str(one.unjudged), *("" if s is None else f"{s:.0%}" for s in shares)


def _causes(rows: Iterable[Judged]) -> list[str]:
    causes: dict[tuple[str, str, str], int] = {}
    for row in rows:
        if row.wrong:
            assert row.judgement is not None
            key = (row.finding.repository, row.finding.code, row.judgement.evidence)
            causes[key] = causes.get(key, 0) + 1
    ranked = sorted(causes.items(), key=lambda pair: (-pair[1], pair[0]))
    return [f"{number} {code} in {name}: {why}" for (name, code, why), number in ranked]


def _readers(readings: Sequence[Reading]) -> str:
    count = counted(readings)
    right = count["right"] + count["family"]
    lines = [
        f"Of {len(readings)} launch lines whose script is there, {right} have the reader that the script shows "
        f"({right / len(readings):.0%}; {count['family']} of them are a Trainer whose class is not told), "
        f"{count['unknown']} are left open, {count['wrong']} have another reader, "
        f"{count['unseen']} are not looked at.\n"
    ]
    pairs: dict[tuple[str, str], int] = {}
    for one in readings:
        if one.outcome == "wrong":
            assert one.said is not None
            key = (one.reader.reader, one.said)
            pairs[key] = pairs.get(key, 0) + 1
    lines += [f"- {number} of {reader} are taken for {said}" for (reader, said), number in sorted(pairs.items())]
    lines += [
        f"- {one.reader.repository} {one.line} ({one.reader.script}): {one.reader.reader}, not {one.said}"
        for one in readings
        if one.outcome == "wrong"
    ]
    return "\n".join(lines)


def _recalls(told: Sequence[Outcome]) -> str:
    rows = recall(told)
    rows.append(
        ("**all**", sum(r[1] for r in rows), sum(r[2] for r in rows), sum(r[3] for r in rows), sum(r[4] for r in rows))
    )
    shown = [
        (name, str(planted), str(found), f"{found / planted:.0%}" if planted else "", str(harmless), str(alarms))
        for name, planted, found, harmless, alarms in rows
    ]
    return _table(("where", "planted", "told", "recall", "harmless edits", "alarms"), shown)


def _planted(one: Outcome) -> str:
    it = one.planted
    edit = f"`{' '.join(it.old.split())}` -> `{' '.join(it.new.split())}`"
    told = f"; told: {', '.join(one.other)}" if one.other else ""
    return f"- {it.format}, {it.repository} {it.file}: {edit} ({it.consequence}{told})"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    main()
