"""What a change does to the findings in all repositories whose trees are here, each with what was judged of it.

    python -m benchmarks.wild.compare FOLDER --write BEFORE.jsonl     # on the code of before
    python -m benchmarks.wild.compare FOLDER --before BEFORE.jsonl    # on the changed code

Prints the findings that are gone and those that are new, by repository, rule and verdict; a minute for 300
repositories.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.wild import data
from benchmarks.wild.figures import SEVERITIES, judged
from benchmarks.wild.lint import findings
from benchmarks.wild.repositories import commit_of


def lines(found: Iterable[data.Finding], judgements: Sequence[data.Judgement]) -> list[str]:
    """Findings by repository, rule, severity and verdict, with how many there are and the first place."""
    count: Counter[tuple[str, str, str, str]] = Counter()
    first: dict[tuple[str, str, str, str], str] = {}
    for row in judged(found, judgements):
        verdict = row.judgement.verdict if row.judgement is not None else "not judged"
        key = (row.finding.repository, row.finding.code, row.finding.severity, verdict)
        count[key] += 1
        first.setdefault(key, row.finding.place)
    return [f"  {' '.join(key)} x{number}: {first[key]}" for key, number in sorted(count.items())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    there = [one for one in data.repositories() if commit_of(one.tree(given.folder)) == one.commit]
    found, broken = findings({one.tree(given.folder): one for one in there})
    told = [one for one in found if one.severity in SEVERITIES]
    print(f"{len(there)} repositories, {len(told)} findings", *broken, sep="\n")
    if given.write is not None:
        given.write.write_text("".join(json.dumps(asdict(one)) + "\n" for one in told), encoding="utf-8")
    if given.before is not None:
        before = [data.Finding(**json.loads(line)) for line in given.before.read_text(encoding="utf-8").splitlines()]
        places = [{(one.repository, one.place, one.code, one.severity) for one in every} for every in (before, told)]
        judgements = data.judgements()
        for name, every, others in (("gone", before, places[1]), ("new", told, places[0])):
            changed = [one for one in every if (one.repository, one.place, one.code, one.severity) not in others]
            print(f"{name}: {len(changed)}", *lines(changed, judgements), sep="\n")


if __name__ == "__main__":
    main()
