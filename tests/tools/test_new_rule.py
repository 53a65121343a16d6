"""The rule that `make new-rule` writes: fails as it is, passes when filled in."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.rules.examples import fixed, lint_example, told
from tools.new_rule import CODES, PAGE, add, undo, unfilled, with_rule
from zerocfg.linter import engine
from zerocfg.rulebook.example import Example
from zerocfg.rulebook.pages import page_folder, read_page
from zerocfg.rules import registry
from zerocfg.rules.api import Rule, Severity

INSTRUMENTS = ROOT / "zerocfg" / "rules" / "zero" / "instruments.py"
MODULES = sorted(path for path in (ROOT / "zerocfg" / "rules").glob("*/*.py") if path.name != "__init__.py")


def rules_of(text: str, folder: Path) -> tuple[Rule, ...]:
    """The rules of a module with this text."""
    path = folder / "written.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("written", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["written"] = module  # where dataclasses look for it
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["written"]
    return tuple(one for one in vars(module).values() if isinstance(one, Rule))


def codes(rule: Rule, examples: tuple[Example, ...], folder: Path) -> list[str]:
    """What is found in the examples; of the rule itself all that they expect."""
    found = []
    for at, example in enumerate(examples):
        (folder / str(at)).mkdir(parents=True)
        result = lint_example(example, folder / str(at))
        said = [told(one, example.files) for one in result.diagnostics if one.code == rule.code]
        assert said == list(example.expected)
        found += [one.code for one in result.diagnostics]
    return found


def test_a_rule_to_fill_in_fails_and_a_filled_one_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = with_rule(INSTRUMENTS.read_text(encoding="utf-8"), "ZC499", "state-dumped", "warning")
    written = PAGE.format(code="ZC499", name="state-dumped", severity="warning")
    rule, page = rules_of(text, tmp_path)[-1], read_page(written, "ZC499.md")
    assert (rule.code, rule.name, rule.severity) == (page.code, page.name, Severity.WARNING)
    monkeypatch.setattr(engine, "rules_for", lambda runs, rule=rule: (*registry.ALL, rule))
    found = codes(rule, page.bad, tmp_path / "bad")
    assert {"ZC499", "ZC102"} <= set(found), "the key FILL is none that DeepSpeed knows"
    assert page.proof.raises is not None and page.proof.raises.startswith("FILL")

    rule = rules_of(text.replace('"FILL"', '"dump_state"'), tmp_path)[-1]
    page = read_page(written.replace('"FILL"', '"dump_state"'), "ZC499.md")
    assert page.fix_safety == "safe" and page.fix.startswith("FILL")
    monkeypatch.setattr(engine, "rules_for", lambda runs, rule=rule: (*registry.ALL, rule))
    assert codes(rule, page.bad, tmp_path / "filled") == ["ZC499"]
    assert codes(rule, page.good, tmp_path / "good") == []
    (bad,), (good,) = page.bad, page.good
    assert json.loads(fixed(bad, "ZC499", tmp_path / "fixed")["ds.json"]) == json.loads(good.files["ds.json"])


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_module_of_rules_can_be_added_to(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    before, after = rules_of(text, tmp_path), rules_of(with_rule(text, "ZC499", "x-y", "error"), tmp_path)
    assert [rule.code for rule in after] == [*(rule.code for rule in before), "ZC499"]


def test_no_rule_is_left_to_fill_in() -> None:
    for path in (*MODULES, *page_folder().glob("ZC*.md")):
        assert not re.search(r"\bFILL\b", path.read_text(encoding="utf-8")), path


def test_what_is_left_to_fill_in_of_a_rule(tmp_path: Path) -> None:
    """By which the tests of a rule fail; see `tests/rules/conftest.py`."""
    pytest.importorskip("ruff")
    root = _checkout(tmp_path)
    add(root, "ZC499", "state-dumped", "zero/instruments", "warning")
    left = unfilled(root, "ZC499")
    assert left[0] == "docs/rules/ZC499.md:3: FILL: what is written, in a sentence."
    module, page = root / "zerocfg/rules/zero/instruments.py", root / "docs/rules/ZC499.md"
    places = [
        f"{path.relative_to(root).as_posix()}:{number}"
        for path in (page, module)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "FILL" in line
    ]
    assert [":".join(line.split(":")[:2]) for line in left] == places
    assert unfilled(root, "ZC103") == [], "another rule of the same module"
    for path in (page, module):
        path.write_text(path.read_text(encoding="utf-8").replace("FILL", "dump_state"), encoding="utf-8")
    assert unfilled(root, "ZC499") == []


def _checkout(root: Path) -> Path:
    """A repository with one module of rules, one page and one code."""
    for name in ("zerocfg/rules/zero/instruments.py", "docs/rules/ZC103.md"):
        (root / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, root / name)
    (root / CODES).parent.mkdir(parents=True)
    (root / CODES).write_text("ZC103 key-accelerate-ignores\n", encoding="utf-8")
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    return root


def _status(root: Path) -> str:
    words = ["git", "-C", str(root), "status", "--porcelain", "-uall"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_a_rule_that_was_added_can_be_taken_away(tmp_path: Path) -> None:
    pytest.importorskip("ruff")
    root = _checkout(tmp_path)
    add(root, "ZC499", "state-dumped", "zero/instruments", "warning")
    assert _status(root).split() == [
        *("M", CODES.as_posix(), "M", "zerocfg/rules/zero/instruments.py", "??", "docs/rules/ZC499.md"),
    ]
    add(root, "ZC498", "state-kept", "zero/instruments", "error")
    undo(root, "ZC499")
    assert (root / CODES).read_text(encoding="utf-8") == "ZC103 key-accelerate-ignores\nZC498 state-kept\n"
    assert "def state_kept" in (root / "zerocfg/rules/zero/instruments.py").read_text(encoding="utf-8")
    undo(root, "ZC498")
    assert _status(root) == ""


def test_a_rule_that_others_may_know_stays(tmp_path: Path) -> None:
    root = _checkout(tmp_path)
    with pytest.raises(ValueError, match="ZC103 is committed, and its code stays given"):
        undo(root, "ZC103")
    with pytest.raises(ValueError, match="there is no rule ZC104"):
        undo(root, "ZC104")
    assert _status(root) == ""


def test_the_first_rule_of_contributing_is_free_or_written_as_it_says() -> None:
    """Who follows the guide to the letter has its code in `codes.txt`, under its name."""
    named = re.search(r"make new-rule CODE=(ZC\d+) NAME=(\S+)", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert named is not None
    given = dict(line.split() for line in (ROOT / CODES).read_text(encoding="utf-8").splitlines())
    assert given.get(named[1], named[2]) == named[2]
