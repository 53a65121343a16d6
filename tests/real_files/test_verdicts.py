"""Parity on real files of public repositories: what the real loaders reject gets an error that names the reason, and
what they accept gets no error that claims rejection."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import corpus_folder
from tests.real_files.oracle import accelerate_error, deepspeed_error
from zerocfg.linter.engine import Diagnostic, lint_runs
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.api import Severity
from zerocfg.rules.registry import find
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs

# Errors that say something about this machine, not about the file.
ABOUT_THE_MACHINE = re.compile(r"fp8|transformer_engine|torchao|MS-AMP|not installed|is not available|MPI|mpi", re.I)


def _files(prefix: str) -> Iterator[tuple[str, Path]]:
    folder = corpus_folder()
    if folder is None:
        return
    with (folder / "INDEX.tsv").open(encoding="utf-8", newline="") as index:
        for row in csv.DictReader(index, delimiter="\t"):
            if row["kind"].startswith(prefix):
                yield f"{row['repo']}/{row['path']}", folder / row["repo"].replace("/", "__") / row["path"]


def _lint_alone(path: Path, tmp_path: Path) -> list[Diagnostic]:
    """Diagnostics of one file, copied out of its repository so that nothing else points to it."""
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    runs, asked = find_runs([copy], Files(), root=tmp_path)
    return lint_runs(runs, asked=asked).diagnostics


LEFT_TO_THE_LINE = ("ZC104", "ZC701")
"""Notes of these say that a file alone does not launch, and that the line that starts it may complete it."""


def _claims_rejection(diagnostic: Diagnostic) -> bool:
    rule = find(diagnostic.code)
    assert rule is not None
    early = page_of(rule).proof.phase in ("read", "launch", "parse")
    return diagnostic.severity is Severity.ERROR and page_of(rule).proof.raises is not None and early


def _names_the_reason(diagnostics: list[Diagnostic], error: str) -> bool:
    """Some error diagnostic speaks of a key, a value or a word that the library's own message has."""
    words = set(re.findall(r"\w{3,}", error.lower()))
    for diagnostic in diagnostics:
        if diagnostic.severity is Severity.ERROR or diagnostic.code in LEFT_TO_THE_LINE:
            key = diagnostic.span.path.split(".")[-1].lower()
            said = set(re.findall(r"\w{3,}", diagnostic.message.lower()))
            both = words & said
            if key in words or len(both) >= 2 or any("_" in word for word in both):
                return True
    return False


@pytest.mark.libs
@pytest.mark.parametrize(
    ("kind", "library", "real_error"),
    [("deepspeed", "DeepSpeedConfig", deepspeed_error), ("accelerate", "accelerate launch", accelerate_error)],
)
def test_same_verdict_as_the_real_loader(
    kind: str,
    library: str,
    real_error: Callable[[Path], str | None],
    corpus: Path,
    tmp_path: Path,
    count: Callable[[str, int], None],
) -> None:
    rejected, wrong = 0, []
    files = list(_files(kind))
    for name, path in files:
        if "template" in path.name:
            continue  # of the autotuner, which completes it; nothing is said of it alone
        error = real_error(path)
        if error is not None and kind == "accelerate" and ABOUT_THE_MACHINE.search(error):
            error = None
        diagnostics = _lint_alone(path, tmp_path)
        if error is not None:
            rejected += 1
            if not _names_the_reason(diagnostics, error):
                said = [d.message for d in diagnostics]
                wrong.append(f"{name}: {library} says {error[:300]}; zerocfg says {said}")
        else:
            wrong += [f"{name}: loads, but {d.code}: {d.message}" for d in diagnostics if _claims_rejection(d)]
    count(f"real files compared with {library}", len(files))
    count(f"real files that {library} rejects, each with its reason found", rejected)
    assert files
    assert not wrong, "\n".join(wrong)


def test_whole_corpus_never_crashes(corpus: Path, count: Callable[[str, int], None]) -> None:
    files = Files()
    runs, asked = find_runs([corpus], files)
    lint_runs(runs, asked=asked)
    count("real files linted", len(asked))
    assert len(asked) > 300
