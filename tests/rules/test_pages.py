"""The pages in docs/rules: one for each rule, in their form; and their examples, as shown, do what the pages say."""

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
from zerocfg.linter.engine import DOCS
from zerocfg.rulebook.example import Expected
from zerocfg.rulebook.pages import COMMON, PageError, page_of, read_page
from zerocfg.rulebook.proof import at_least, at_most, crashes, printed, shows, unprinted
from zerocfg.rulebook.rendering import FAMILIES, RELEASES, as_markdown, as_text
from zerocfg.rules.api import Rule
from zerocfg.rules.registry import ALL, find
from zerocfg.workspace.examples import as_shown

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
    return as_markdown(rule, as_shown(page_of(rule)))


def test_every_rule_has_its_page_and_there_is_no_other() -> None:
    there = {path.name for path in FOLDER.iterdir()}
    assert there == {"index.md", COMMON, *(f"{rule.code}.md" for rule in ALL)}


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.code)
def test_page_and_rule_have_one_code_and_name(rule: Rule) -> None:
    assert (page_of(rule).code, page_of(rule).name) == (rule.code, rule.name)


def test_a_shared_file_is_one_that_several_examples_use() -> None:
    pages = "".join((FOLDER / f"{rule.code}.md").read_text(encoding="utf-8") for rule in ALL)
    shared = re.findall(r"^## (.*)$", (FOLDER / COMMON).read_text(encoding="utf-8"), re.M)
    used = {title: pages.count(f"[{title}](common.md#{re.sub(r'[^a-z0-9]+', '-', title.lower())})") for title in shared}
    assert {title: count for title, count in used.items() if count < 3} == {}


@pytest.mark.parametrize("code", [rule.code for rule in ALL])
def test_the_headings_are_fixed(code: str) -> None:
    assert tuple(re.findall(r"^## (.*)$", page(code), re.M)) == HEADINGS
    rule = find(code)
    assert rule is not None
    assert code[2] in FAMILIES
    assert [line for line in as_text(rule, page_of(rule)).splitlines() if line in HEADINGS] == list(HEADINGS)


def test_every_diagnostic_leads_to_its_page(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("distributed_type: DEEPSPEED\nmixed_precision: no\n")
    (diagnostic, *_) = json.loads(zerocfg("lint", "--output-format", "json").out)["diagnostics"]
    assert diagnostic["url"] == f"{DOCS}{diagnostic['code']}.md"
    assert (ROOT / diagnostic["url"]).is_file()


def test_the_releases_are_those_of_the_proofs() -> None:
    pinned = dict(re.findall(r"^(\w+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    assert {name.lower(): release for name, release in RELEASES.items()} == pinned


# The form of a page

PAGE = """# ZC999 some-name

What is wrong.

Why it is bad, with \\<angles> and `\\<code>`.

## What happens

It stops.

## Example

### 1

A note.

Read by `deepspeed`.

Seen with `deepspeed>=0.18,<0.19`.

```json ds.json
{"a": 1}
```

- `train.py`: [Script that imports DeepSpeed](common.md#script-that-imports-deepspeed)

```yaml finds
- error: 'ds.json: "a": 1'
  figures: 1 2.50
  also:
    - train.py
```

```yaml proof
phase: step
shows:
  weights: [empty, complete]
  memory.pinned: [{at_least: 10}, {at_most: 9}]
  log: {logged: is deprecated}
```

## Use instead

Write b.

````yaml a.yaml
```
````

## Proof

```yaml proof
phase: init
raises: KeyError
ranks: 2
```

## References

- deepspeed/runtime/engine.py@0.19.8
"""


def test_what_a_page_says() -> None:
    found = read_page(PAGE, "ZC999.md")
    assert (found.code, found.name, found.summary) == ("ZC999", "some-name", "What is wrong.")
    assert found.why == "Why it is bad, with <angles> and `\\<code>`."
    assert (found.happens, found.instead, found.fix, found.ignore) == ("It stops.", "Write b.", "", "")
    (bad,) = found.bad
    assert bad.files == {"ds.json": '{"a": 1}\n', "train.py": "import deepspeed\n"}
    assert (bad.consumer, bad.note, bad.releases) == ("deepspeed", "A note.", "deepspeed>=0.18,<0.19")
    assert bad.expected == (Expected("error", 'ds.json: "a": 1', ("1", "2.50"), ("train.py",)),)
    assert bad.proof == shows(
        "step",
        {
            "weights": ("empty", "complete"),
            "memory.pinned": (at_least(10), at_most(9)),
            "log": (printed("is deprecated"), unprinted("is deprecated")),
        },
    )
    (good,) = found.good
    assert good.files == {"a.yaml": "```\n"} and good.consumer is None and not good.releases
    assert found.proof == crashes("init", "KeyError", ranks=2)
    assert found.references == ("deepspeed/runtime/engine.py@0.19.8",)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("# ZC999 some-name", "# some-name", "ZC999.md:1: a page begins with"),
        ("## What happens", "## What happened", "'## What happened' is none of"),
        ("## Use instead", "## What happens", "or stands there twice"),
        ("```\n\n## References", "## References", "a fenced block that is not closed"),
        ("common.md#script-that-imports-deepspeed", "common.md#nothing", "common.md has no 'nothing'"),
        ("phase: init", "phase: [", "ZC999.md:52: not a proof"),
        ("phase: init", "fase: init", "ZC999.md:52: not a proof"),
        ("  weights: [empty, complete]", "  weights: [empty]", "not a proof"),
        ("## Proof", "## Fix", "no proof"),
    ],
)
def test_a_page_that_is_not_in_its_form(old: str, new: str, said: str) -> None:
    assert old in PAGE
    with pytest.raises(PageError) as error:
        read_page(PAGE.replace(old, new, 1), "ZC999.md")
    assert said in str(error.value)


def test_a_page_shows_in_which_releases_a_claim_is_seen() -> None:
    rule = find("ZC212")
    assert rule is not None
    assert as_text(rule, page_of(rule)).count(" Seen with `deepspeed>=0.19.7`.\n") == 1
    assert page("ZC212").count("\nSeen with `deepspeed>=0.19.7`.\n") == 1


def test_headings_stand_in_their_order() -> None:
    happens, example = "## What happens\n\nIt stops.\n\n", "## Example\n"
    with pytest.raises(PageError, match="in the order"):
        read_page(PAGE.replace(happens + example, example).replace("## Use", f"{happens}## Use"), "ZC999.md")


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
    outcome = zerocfg("lint", str(folder), "--preview", "--notes", "--output-format", "json", *words)
    return [diagnostic["code"] for diagnostic in json.loads(outcome.out)["diagnostics"]]


@pytest.mark.parametrize("code", [rule.code for rule in ALL])
def test_the_example_is_found_and_what_to_use_instead_is_not(code: str, zerocfg: Cli, tmp_path: Path) -> None:
    shown = page(code)
    for title in ("Example", "Use instead"):
        here = list(examples(shown, title))
        assert here, f"{code} shows no example below '{title}'"
        for number, (files, consumer) in enumerate(here):
            folder = tmp_path / title[:3] / str(number)
            assert (code in found(zerocfg, folder, files, consumer)) is (title == "Example"), (title, number + 1)
