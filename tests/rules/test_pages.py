"""The pages in docs/rules are what the rules say, and their examples do what the pages say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Outcome
from tests.cli.conftest import zerocfg as zerocfg  # the command line, as a fixture
from tests.conftest import ROOT
from zerocfg.cli.examples import as_shown, fix_safety
from zerocfg.cli.rules import pages
from zerocfg.rules.docs import FAMILIES, LABELS, RELEASES, as_markdown, as_text, parts
from zerocfg.rules.engine import DOCS
from zerocfg.rules.registry import ALL, find

FOLDER = ROOT / "docs" / "rules"
HEADINGS = (
    "What it does",
    "Why it is bad",
    "What happens",
    "Releases",
    "Example",
    "Use instead",
    "Fix safety",
    "When to ignore",
    "References",
)
Cli = Callable[..., Outcome]


@cache
def page(code: str) -> str:
    """The page of one rule; all of them take seconds."""
    rule = find(code)
    assert rule is not None
    return as_markdown(as_shown(rule), fix_safety(rule))


def test_what_is_written_is_there_and_nothing_else() -> None:
    there = {path.name: path.read_bytes().decode("utf-8") for path in FOLDER.iterdir()}
    assert there == pages(), "stale; run: zerocfg rules --write docs/rules"


@pytest.mark.parametrize("code", [rule.code for rule in ALL])
def test_the_page_is_fresh(code: str) -> None:
    found = (FOLDER / f"{code}.md").read_bytes().decode("utf-8")
    assert found == page(code), "stale; run: zerocfg rules --write docs/rules"


@pytest.mark.parametrize("code", [rule.code for rule in ALL])
def test_the_headings_are_fixed(code: str) -> None:
    assert tuple(re.findall(r"^## (.*)$", page(code), re.M)) == HEADINGS
    rule = find(code)
    assert rule is not None
    assert code[2] in FAMILIES
    assert [line for line in as_text(rule, "none").splitlines() if line in HEADINGS] == list(HEADINGS)


def test_every_diagnostic_leads_to_its_page(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("distributed_type: DEEPSPEED\nmixed_precision: no\n")
    (diagnostic, *_) = json.loads(zerocfg("lint", "--output-format", "json").out)["diagnostics"]
    assert diagnostic["url"] == f"{DOCS}{diagnostic['code']}.md"
    assert (ROOT / diagnostic["url"]).is_file()


def test_the_releases_are_those_of_the_proofs() -> None:
    pinned = dict(re.findall(r"^(\w+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    assert {name.lower(): release for name, release in RELEASES.items()} == pinned


def test_a_docstring_is_read_by_its_labels() -> None:
    rule = find("ZC010")
    assert rule is not None
    said = parts(rule)
    assert said[""].startswith("The mistake that it excused") and said["What happens"].startswith("The comment has")
    assert set(said) - {""} <= set(LABELS)


# The examples, taken from the pages themselves


def examples(text: str, title: str) -> Iterator[tuple[dict[str, str], str | None]]:
    """The files of each example below a heading, and the consumer that it is linted with."""
    section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
    for part in re.split(r"^### \d+$", section, flags=re.M):
        blocks = re.findall(r"^`([^`\n]+)`:\n\n(`{3,})\w*\n(.*?)^\2$", part, re.M | re.S)
        if blocks:
            consumer = re.search(r"--consumer (\w+)", part)
            yield {name: body for name, _, body in blocks}, consumer[1] if consumer else None


def found(zerocfg: Cli, folder: Path, files: dict[str, str], consumer: str | None) -> list[Any]:
    for name, body in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        body = re.sub(r"\\udc([89a-f][0-9a-f])", lambda byte: chr(0xDC00 + int(byte[1], 16)), body)
        path.write_bytes(body.encode("utf-8", "surrogateescape"))
    words = ["--consumer", consumer] if consumer else []
    outcome = zerocfg("lint", "--preview", "--notes", "--output-format", "json", *words)
    return [diagnostic["code"] for diagnostic in json.loads(outcome.out)["diagnostics"]]


def numbered(title: str) -> list[Any]:
    cases = []
    for path in sorted(FOLDER.glob("ZC*.md")):
        here = list(examples(path.read_text(encoding="utf-8"), title))
        assert here, f"{path.name} has no example below '{title}'"
        cases += [pytest.param(path.stem, *one, id=f"{path.stem}-{at}") for at, one in enumerate(here, 1)]
    return cases


@pytest.mark.parametrize(("code", "files", "consumer"), numbered("Example"))
def test_the_example_is_found(
    code: str, files: dict[str, str], consumer: str | None, zerocfg: Cli, tmp_path: Path
) -> None:
    assert code in found(zerocfg, tmp_path, files, consumer)


@pytest.mark.parametrize(("code", "files", "consumer"), numbered("Use instead"))
def test_what_to_use_instead_is_not(
    code: str, files: dict[str, str], consumer: str | None, zerocfg: Cli, tmp_path: Path
) -> None:
    assert code not in found(zerocfg, tmp_path, files, consumer)
