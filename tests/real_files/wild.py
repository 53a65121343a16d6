"""Writes docs/found-in-the-wild.md: what zerocfg finds in the configs of public repositories, with what the real
library then did. Run in the root of the checkout, with the corpus at hand:

    python -m tests.real_files.wild
"""

from __future__ import annotations

import csv
import re
import tempfile
from collections import defaultdict
from pathlib import Path

from tests.conftest import corpus_folder
from tests.real_files.confirm import confirmed
from tests.real_files.pairs import Pair
from tests.real_files.test_confirmed import launches, played
from tests.rules.examples import lint_example
from zerocfg.linter.engine import Diagnostic
from zerocfg.rulebook.example import Example
from zerocfg.rules.api import Severity

PAGE = Path(__file__).parents[2] / "docs" / "found-in-the-wild.md"
TOLD = ("ZC102", "ZC401")
"""Rules whose warnings are told too: keys that nobody reads, weights that are not saved."""

ON_PURPOSE = ("/test_configs/", "/config_templates/")
"""Parts of the paths of files that are wrong, or left open, on purpose: tests of a loader, templates of a tuner."""

HEAD = """# Found in the wild

What zerocfg reports on config files of public repositories, as they were at the commit that is linked, and what the
real DeepSpeed 0.19.8, accelerate 1.15.0 and transformers 5.23.0 did when they were given these very files. Each line
was shown by a run; `tests/real_files` runs them again wherever the files are at hand. Many of the files worked with the
releases of their time: the point is what they do today. Files that are wrong on purpose are left out.

| file | zerocfg says | what the library did |
|---|---|---|
"""


def main() -> None:
    corpus = corpus_folder()
    if corpus is None:
        raise SystemExit("no corpus of real configs here (set ZEROCFG_CORPUS)")
    with (corpus / "INDEX.tsv").open(encoding="utf-8", newline="") as index:
        commits = {(row["repo"], row["path"]): row["commit"] for row in csv.DictReader(index, delimiter="\t")}
    rows: dict[tuple[str, str, str], tuple[str, str]] = {}
    keys: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for pair in launches(corpus):
        for diagnostic, evidence in shown(pair):
            repo, path = place(pair, diagnostic)
            row = (repo, path, diagnostic.code)
            if (repo, path) in commits and not any(part in f"/{path}" for part in ON_PURPOSE):
                keys[row].add(diagnostic.span.path)
                rows.setdefault(row, (diagnostic.message, evidence))
    lines = [line(row, len(keys[row]) - 1, *rows[row], commits[row[0], row[1]]) for row in sorted(rows)]
    files, repositories = len({row[:2] for row in rows}), len({row[0] for row in rows})
    count = f"\n{len(rows)} findings in {files} files of {repositories} repositories.\n"
    PAGE.write_text(HEAD + "\n".join(lines) + "\n" + count, encoding="utf-8")


def shown(pair: Pair) -> list[tuple[Diagnostic, str]]:
    """The errors, and the warnings of TOLD, that the real library shows on the files of a launch."""
    with tempfile.TemporaryDirectory() as folder:
        result = lint_example(Example(pair.files, pair.consumer), Path(folder))
        wanted = [d for d in result.diagnostics if d.severity is Severity.ERROR or d.code in TOLD]
        play = played(pair, Path(folder)) if wanted else None
    found = []
    for diagnostic in wanted:
        assert play is not None
        verdict = confirmed(diagnostic, play)
        if not verdict.reasons:
            found.append((diagnostic, verdict.evidence))
    return found


def place(pair: Pair, diagnostic: Diagnostic) -> tuple[str, str]:
    """Repository and path of the file that a finding stands in; the launch line is told at the config it names."""
    name = diagnostic.span.file.name
    if ": " not in pair.name:
        folder, _, path = pair.name.partition("/")
        return folder.replace("__", "/", 1), path
    repo = pair.name.split(": ")[0]
    return repo, name if name != "train.sh" else next(iter(pair.files))


def line(row: tuple[str, str, str], more: int, message: str, evidence: str, commit: str) -> str:
    """One row of the table; ``more``: keys of the same file of which the rule says the same."""
    repo, path, code = row
    link = f"[{repo}: {path}](https://github.com/{repo}/blob/{commit}/{path})"
    others = f" (and of {more} more)" if more else ""
    evidence = re.sub(r"/tmp/\S+/", "", evidence)
    return f"| {link} | [{code}](rules/{code}.md) {cell(message)}{others} | {cell(evidence)} |"


def cell(text: str, most: int = 300) -> str:
    text = text.replace("|", "\\|").replace("\n", " ")
    return text if len(text) <= most else text[: most - 1] + "…"


if __name__ == "__main__":
    main()
