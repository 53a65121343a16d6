"""The page about many repositories: what it says, and that nothing of a repository is markup on it."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

from tests.fleet.conftest import run, write


def page(cwd: Path, *words: str) -> str:
    done = run(cwd, "--repos", ".", *words, "--output-format", "html=page.html")
    assert (cwd / "page.html").exists(), done.stderr
    return (cwd / "page.html").read_text()


def test_the_page_says_what_the_json_says(repositories: Path) -> None:
    run(repositories, "--repos", ".", "--output-format", "json=before.json")
    told = json.loads((repositories / "before.json").read_text())
    text = page(repositories)
    shown = html.unescape(re.sub(r"<[^>]+>", "", text.split("<main>")[1]))
    for one in told["repositories"]:
        found = one["report"]["diagnostics"] if one["report"] else []
        assert (one["name"] in shown) is bool(found or one["problem"])
        for finding in found:
            place = f"{finding['file']}:{finding['start']['line']}:{finding['start']['column']}"
            assert place in shown and finding["message"].replace("`", "") in shown
    assert "has no setting 'nonsense'" in shown
    tiles = re.findall(r'class="value">([^<]*)<', text)
    findings = told["totals"]["findings"]
    assert tiles == [str(findings["error"]), str(findings["warning"]), "1", "1"]
    assert text.count('<details class="rule" id="rule-') == len({one["code"] for one in told["rules"]})


def test_trends(repositories: Path) -> None:
    run(repositories, "--repos", ".", "--output-format", "json=before.json")
    write(repositories / "added", {"train_micro_batch_size_per_gpu": 1})
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 9}}
    (repositories / "clean" / "ds.json").write_text(json.dumps(config))
    text = page(repositories, "--since", "before.json")
    assert re.findall(r'class="value">([^<]*)<', text)[4] == "1"
    row = r'<th scope="row">ZC106</th><td>not-a-choice</td><td class="n">1</td><td class="n">0</td><td class="n">0</td>'
    assert re.search(row, text)
    assert text.count('<span class="badge">new</span>') == 1
    assert "Not in the earlier report, so not compared: added" in text


def test_nothing_of_a_repository_is_markup(repositories: Path) -> None:
    """Names, keys and messages are text; the page loads nothing, and runs no script but its own."""
    evil = "<img src=x onerror=alert(1)>"
    write(
        repositories / evil.replace("/", ""), {"train_micro_batch_size_per_gpu": 1, evil: "<script>alert(2)</script>"}
    )
    text = page(repositories)
    assert evil not in text and html.escape(evil) in text.replace("&#34;", "&quot;")
    assert text.count("<script>") == 1 and "default-src 'none'" in html.unescape(text)
    assert not re.search(r'(?:src|href)="(?!#|data:)', text)
