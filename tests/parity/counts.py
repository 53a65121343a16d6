"""The counts of comparisons with releases, kept as data, and the page that is made of them."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

from packaging.version import Version

from tests.parity.released import Compared
from tools.facts.environment import ROOT, Release
from zerocfg.catalog.versions import library_name

DATA = ROOT / "benchmarks" / "releases" / "parity.json"
PAGE = DATA.with_suffix(".md")
Counts = dict[str, dict[str, dict[str, Any]]]
"""By library and release: how many cases, what came of them, and when."""
_HEAD = """# What releases refuse, and what zerocfg says with them pinned

Written by `python -m tests.parity.releases --write`. A case is a config or a recipe: a file that somebody wrote, an
example of a rule, or one that was generated. Compared are refusals, and for accelerate what its launcher exports.
"""


def keep(release: Release, found: Compared[Any]) -> None:
    """Puts the counts of one comparison in the place of those that are kept of its release."""
    kept = read()
    kept.setdefault(release.library, {})[release.version] = {
        "cases": found.cases,
        "made": found.made,
        "refused": found.refused,
        "disagreements": found.failed,
        "limits": dict(sorted(found.limited.items())),
        "date": date.today().isoformat(),
    }
    ordered = {library: dict(sorted(of.items(), key=lambda one: Version(one[0]))) for library, of in kept.items()}
    DATA.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(ordered), encoding="utf-8")


def read() -> Counts:
    found: Counts = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}
    return found


def page(kept: Counts) -> str:
    return _HEAD + "".join(_section(library, of) for library, of in kept.items())


def _section(library: str, of: dict[str, dict[str, Any]]) -> str:
    total = {word: sum(row[word] for row in of.values()) for word in ("cases", "made", "disagreements")}
    lines = [
        f"\n## {library_name(library)}\n",
        f"{total['cases']:,} pairs of a case and a release, {total['made']:,} of them with a case that was made; "
        f"{total['disagreements']} disagreements.\n",
        "| release | cases | of them made | refused | disagreements | within limits | played |",
        "|---|---|---|---|---|---|---|",
    ]
    for version, row in of.items():
        words = ("cases", "made", "refused", "disagreements")
        figures = (*(row[word] for word in words), sum(row["limits"].values()), row["date"])
        lines.append(f"| {version} | " + " | ".join(map(str, figures)) + " |")
    met: dict[str, int] = {}
    for row in of.values():
        for limit, times in row["limits"].items():
            met[limit] = met.get(limit, 0) + times
    lines += ["", "Limits that were met:", ""] if met else []
    lines += [f"- {limit}: {times}" for limit, times in sorted(met.items())]
    return "\n".join(lines) + "\n"
