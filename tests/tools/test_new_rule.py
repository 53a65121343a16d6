"""The rule that `make new-rule` writes: fails as it is, passes when filled in."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.rules.examples import lint_example, told
from tools.new_rule import with_rule
from zerocfg.rules import engine, registry
from zerocfg.rules.api import Rule, Severity

INSTRUMENTS = ROOT / "zerocfg" / "rules" / "zero" / "instruments.py"
MODULES = sorted(path for path in (ROOT / "zerocfg" / "rules").glob("*/*.py") if path.name != "__init__.py")


def rules_of(text: str, folder: Path) -> tuple[Rule, ...]:
    """RULES of a module with this text."""
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
    found: tuple[Rule, ...] = module.RULES
    return found


def codes(rule: Rule, kind: str, folder: Path) -> list[str]:
    found = []
    for at, example in enumerate(getattr(rule, kind)):
        (folder / f"{kind}{at}").mkdir()
        result = lint_example(example, folder / f"{kind}{at}")
        if kind == "bad":
            said = [told(one, example.files) for one in result.diagnostics if one.code == rule.code]
            assert said == list(example.expected)
        found += [one.code for one in result.diagnostics]
    return found


def test_a_rule_to_fill_in_fails_and_a_filled_one_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = with_rule(INSTRUMENTS.read_text(encoding="utf-8"), "ZC499", "state-dumped", "warning")
    rule = rules_of(text, tmp_path)[-1]
    assert (rule.code, rule.name, rule.severity) == ("ZC499", "state-dumped", Severity.WARNING)
    monkeypatch.setattr(engine, "ALL", (*registry.ALL, rule))
    assert {"ZC499", "ZC102"} <= set(codes(rule, "bad", tmp_path)), "the key FILL is none that DeepSpeed knows"
    assert rule.proof.raises is not None and rule.proof.raises.startswith("FILL")

    (tmp_path / "filled").mkdir()
    rule = rules_of(text.replace('"FILL"', '"dump_state"'), tmp_path)[-1]
    monkeypatch.setattr(engine, "ALL", (*registry.ALL, rule))
    assert codes(rule, "bad", tmp_path / "filled") == ["ZC499"]
    assert codes(rule, "good", tmp_path / "filled") == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_module_of_rules_can_be_added_to(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    before, after = rules_of(text, tmp_path), rules_of(with_rule(text, "ZC499", "x-y", "error"), tmp_path)
    assert [rule.code for rule in after] == [*(rule.code for rule in before), "ZC499"]


def test_no_rule_is_left_to_fill_in() -> None:
    for path in MODULES:
        assert not re.search(r"\bFILL\b", path.read_text(encoding="utf-8")), path
