"""The documentation site: built strictly, every key with its facts, rules and keys linked, nothing fetched."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.conftest import ROOT
from website.keys import SCHEMAS, KeyPages, key_pages
from website.releases import release_pages
from zerocfg.catalog.alternatives import own_keys
from zerocfg.catalog.changes import known_libraries
from zerocfg.cli.main import COMMANDS, EXAMPLES

Node = dict[str, Any]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. --strict: a warning, as of a link or an anchor that leads nowhere, is an error.

    Not with --quiet, under which mkdocs counts no warnings.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    # The workers of pytest-xdist share what the first of them builds.
    with FileLock(f"{folder}.lock"):
        if not (folder / "built").is_file():
            _build(folder)
            (folder / "built").touch()
    return folder


def _build(folder: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=540)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def made() -> KeyPages:
    return key_pages(ROOT / "schemas", {("deepspeed", "zero_optimization.stage"): ["[ZC402](../../rules/ZC402.md)"]})


def keys(schema: Node, section: Node, path: str = "", seen: tuple[str, ...] = ()) -> Iterator[tuple[str, Node]]:
    """Every key of a section and of those below it, by a road of its own: references, mappings, lists, variants."""
    for name, node in section.get("properties", {}).items():
        if "read_as" in node.get("x-zerocfg", {}):
            continue  # told where the key itself is
        here = f"{path}.{name}" if path else name
        yield here, node
        held = [(here, branch) for branch in [node, *node.get("anyOf", [])]]
        held += [(f"{here}.NAME", one.get("additionalProperties")) for _, one in held]
        held += [(f"{here}[]", one.get("items")) for _, one in held if isinstance(one, dict)]
        cases = node.get("x-zerocfg", {}).get("variants", {}).get("cases", {})
        held += [(here, {"$ref": target}) for target in cases.values()]
        for at, one in held:
            target = one.get("$ref", "").rsplit("/", 1)[-1] if isinstance(one, dict) else ""
            if target and target not in seen:
                yield from keys(schema, schema["$defs"][target], at, (*seen, target))


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_key_has_its_facts(name: str, made: KeyPages) -> None:
    schema = json.loads((ROOT / "schemas" / f"{name}.json").read_text())
    found = list(keys(schema, schema))
    assert len(found) >= len(own_keys(schema["properties"]))
    paths = [path for path, _ in found]
    for path, node in found:
        page, _, anchor = made.anchors[name, path].partition("#")
        text = made.pages[page]
        place = re.search(rf"\{{ #{re.escape(anchor)} \}}|<a id=\"{re.escape(anchor)}\">", text)
        assert place, path
        # Of sections that stand in for each other the first to have a key owns the anchor; the others follow.
        own = text[place.end() :]
        own = own if paths.count(path) > 1 else re.split(r"^#+ ", own, maxsplit=1, flags=re.M)[0]
        known = node.get("x-zerocfg", {})
        if known.get("unit"):
            assert f"| unit | {known['unit']} |" in own, path
        if "default" in node and not known.get("removed"):
            assert f"| default | `{json.dumps(node['default'], ensure_ascii=False)}`" in own.replace("\\|", "|"), path
        if known.get("since"):
            assert f"| since | {known['since']} |" in own, path
        if known.get("auto"):
            assert "| `auto` |" in own, path
        for old in known.get("aliases", []):
            assert f"`{old}`" in own, path


def test_a_key_in_full(made: KeyPages) -> None:
    page = made.pages["deepspeed/zero_optimization.md"]
    text = page.partition("{ #zero_optimization.reduce_bucket_size }")[2].partition("{ #")[0]
    for row in ('| type | integer above 0 or `"auto"` |', "| default | `500000000` |", "| unit | elements |"):
        assert row in text
    assert "accelerate: hidden" in text and "unfilled, the library drops it" in text
    assert "| rules | [ZC402](../../rules/ZC402.md) |" in page
    clipping = made.pages["deepspeed/index.md"].partition("{ #gradient_clipping }")[2]
    assert "| default | `1.0`; `0.0` before 0.19.3 |" in clipping
    page = "../../releases/deepspeed.md"
    assert f"| by release | [0.10.0]({page}): default 0.0<br>[0.19.3]({page}): default 1.0 |" in clipping


@pytest.mark.parametrize("library", known_libraries())
def test_what_each_release_changed(library: str, made: KeyPages) -> None:
    """Every change of a history stands under its release, once, by the history's own text."""
    raw = json.loads((ROOT / "schemas" / "releases" / f"{library}.json").read_text())
    page = release_pages(made.anchors)[f"{library}.md"]
    for release in raw["releases"][1:]:
        part = page.partition(f"## {release} {{ #v{release} }}\n")[2].partition("\n## ")[0]
        came = [
            key
            for key, history in raw["keys"].items()
            for (_, before), (since, now) in pairwise(history)
            if since == release and before is None and not key.endswith(".*") and not now.get("removed")
        ]
        for key in came:
            if key[0].isupper() and key.partition(".")[0] in came and "." in key:
                assert f"`{key.partition('.')[0]}`: new" in part
                continue
            name = key.rpartition(".")[2]
            assert re.search(rf"^- .*\b{re.escape(name)}\b.*: new", part, re.M), (release, key)
        assert bool(part) or f", {release}" in page or f"{release}, " in page, release
    assert f"{len(raw['releases'])} releases, {raw['releases'][0]} to {raw['releases'][-1]}" in page


def test_the_changes_that_cost_people_time(made: KeyPages) -> None:
    """As issue threads and live engines of both sides tell them."""
    page = release_pages(made.anchors)["deepspeed.md"]
    parts = dict(re.findall(r"^## ([\d.]+) \{.*?\}\n(.*?)(?=^## |\Z)", page, re.M | re.S))
    assert (
        "- [`gradient_clipping`](../keys/deepspeed/index.md#gradient_clipping): default 1.0, was 0.0\n"
        in parts["0.19.3"]
    )
    pinned = "../keys/deepspeed/zero_optimization.md#zero_optimization.offload_optimizer.pin_memory"
    assert (
        f"- [`zero_optimization.offload_optimizer.pin_memory`]({pinned}): default true, was false\n" in parts["0.19.5"]
    )
    strict = next(line for line in parts["0.17.1"].splitlines() if "#bf16)" in line and "not known" in line)
    assert strict.endswith(": a key that is not known in it is an error")


def test_rules_and_keys_lead_to_each_other(site: Path) -> None:
    rule = (site / "rules" / "ZC401" / "index.html").read_text()
    assert "../../keys/deepspeed/zero_optimization/#zero_optimization.stage" in rule
    key = (site / "keys" / "deepspeed" / "zero_optimization" / "index.html").read_text()
    part = key.partition('id="zero_optimization.stage"')[2].partition("<h2")[0]
    assert "../../../rules/ZC401/" in part


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_page(name: str, site: Path) -> None:
    """With every option, in the help's own words, and reachable from the page of all commands."""
    text = unescape(re.sub(r"<[^>]+>", "", (site / "commands" / name / "index.html").read_text(encoding="utf-8")))
    module = import_module(f"zerocfg.cli.commands.{name.replace('-', '_')}")
    for parameter in module.command.params:
        assert all(option in text for option in parameter.opts) or parameter.param_type_name == "argument"
        assert " ".join((getattr(parameter, "help", None) or "").replace("*", "").split()) in text
    assert EXAMPLES[name] in " ".join(text.split())
    assert f'href="{name}/"' in (site / "commands" / "index.html").read_text(encoding="utf-8")


def test_the_search_knows_every_rule_and_key(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    places = {one["location"] for one in index["docs"]}
    rules = {path.stem for path in (ROOT / "docs" / "rules").glob("ZC*.md")}
    assert {f"rules/{code}/" for code in rules} <= places
    assert "keys/deepspeed/zero_optimization/#zero_optimization.stage" in places


def test_no_page_asks_for_anything_outside(site: Path) -> None:
    """Links may lead out; what a browser fetches by itself may not."""
    fetched = re.compile(r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?(https?:)?//|<link[^>]*\shref=[\"']?https?://")
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8").replace('<link rel="canonical"', "")
        assert not fetched.search(text), page


def test_marks_for_the_tests_are_not_shown(site: Path) -> None:
    for page in site.glob("*/index.html"):
        assert not re.search(r"<!-- (?:start in|first|exit|not run)", unescape(page.read_text(encoding="utf-8"))), page


def test_in_a_browser(site: Path) -> None:
    pages = [
        "",
        "commands/lint/",
        "rules/ZC401/",
        "keys/deepspeed/zero_optimization/",
        "releases/",
        "releases/deepspeed/",
        "memory/",
    ]
    words = ["node", str(Path(__file__).with_name("site.mjs")), str(site), *pages]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for view in found["views"]:
        where = (view["name"], view["width"])
        assert view["errors"] == [] and view["outside"] == [] and view["broken"] == [], where
        assert view["wide"] <= view["width"] and view["title"], where
    assert len({view["background"] for view in found["views"]}) == 2
    assert found["anchor"]["text"].startswith("device") and 0 <= found["anchor"]["top"] < 900
    assert "ZC401" in found["search"]
