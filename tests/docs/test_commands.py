"""Every command of README.md, docs/ and examples/README.md runs, and prints what the page shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.blocks import Page, Scenario, read
from tests.docs.runner import differs, play
from tools.slurm_nodes import missing

PAGES = [
    ROOT / "README.md",
    ROOT / "examples" / "README.md",
    *sorted(path for path in ROOT.glob("docs/**/*.md") if path.parent.name not in ("rules", "keys")),
]


def scenarios() -> list[object]:
    return [
        pytest.param(page, number, id=f"{page.relative_to(ROOT)}:{scenario.line}", marks=_marks(scenario))
        for page in PAGES
        for number, scenario in enumerate(read(page).scenarios)
    ]


def _marks(scenario: Scenario) -> list[pytest.MarkDecorator]:
    slurm = [pytest.mark.xdist_group("slurm"), pytest.mark.skipif(bool(missing()), reason=missing())]
    return [pytest.mark.libs] * scenario.libs + slurm * scenario.slurm


@pytest.mark.parametrize(("page", "number"), scenarios())
def test_commands(page: Path, number: int, tmp_path: Path, count: Callable[[str, int], None]) -> None:
    count("commands of the documentation run", play(page, read(page).scenarios[number], tmp_path / "here"))


@pytest.mark.parametrize("page", [read(page) for page in PAGES], ids=lambda page: str(page.path.relative_to(ROOT)))
def test_no_command_is_overlooked(page: Page, count: Callable[[str, int], None]) -> None:
    """Those that cannot run here say why; the number is told at the end of the tests."""
    assert not page.loose, f"commands in no block of console or bash, lines {page.loose}"
    count("blocks of the documentation not run, for a stated reason", len(page.not_run))


def test_few_are_not_run() -> None:
    pages = [read(page) for page in PAGES]
    left = [
        f"{page.path.relative_to(ROOT)}:{line}: {why}"
        for page in pages
        for line, why in page.not_run
        if not why.startswith("tests/")
    ]
    ran = sum(len(scenario.parts) for page in pages for scenario in page.scenarios)
    assert len(left) * 3 < ran, "\n".join(left)


def test_named_targets_of_make_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = {target for page in PAGES for target in read(page).make}
    assert named >= {"demo", "test"}
    assert not [target for target in named if not re.search(rf"^{target}:", makefile, re.M)]


@pytest.mark.parametrize(
    ("shown", "seen"),
    [
        ("one\ntwo\n", "one\ntwo\n"),
        ("one\n...\n", "one\ntwo\nthree\n"),
        ("...\nthree\n", "one\ntwo\nthree\n"),
        ("took ... s\n", "took 3.2 s\n"),
        ("on 2026-01-01\n", "on 2027-05-06\n"),
        ("There are: ...\n", "There are: a, b\n"),
    ],
)
def test_what_counts_as_the_same(shown: str, seen: str) -> None:
    assert not differs(shown, seen)


@pytest.mark.parametrize(
    ("shown", "seen"),
    [("one\n", "one\ntwo\n"), ("two\n", "one\ntwo\n"), ("took ... s\n", "took 3.2 min\n"), ("a.b\n", "axb\n")],
)
def test_what_does_not(shown: str, seen: str) -> None:
    assert "+" in differs(shown, seen)


def test_how_a_page_is_read(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "<!-- start in: nothing -->\n<!-- file: a.txt -->\n\n```\nhello\n```\n\n"
        "<!-- first: export NAME=you -->\n<!-- exit 3 -->\n```console\n$ cat a.txt\nhello\n$ cd /\n$ sh -c \\\n"
        "> 'exit 3'\n```\n\n```bash\n# a remark\necho $NAME $PWD\n```\n\n<!-- not run: needs a GPU -->\n"
        "```bash\nfail\n```\n"
    )
    page = read(path)
    assert page.not_run == [(24, "needs a GPU")] and len(page.scenarios) == 1
    assert play(path, page.scenarios[0], tmp_path / "here") == 5
    path.write_text("```console\n$ echo $PWD\n/nowhere\n```\n")
    with pytest.raises(AssertionError, match="/nowhere"):
        play(path, read(path).scenarios[0], tmp_path / "there")
