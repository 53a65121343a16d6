"""Rules that are new, old or gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from tests.cli.conftest import zerocfg as zerocfg  # the command line, as a fixture
from zerocfg.linter import engine
from zerocfg.rules import registry
from zerocfg.rules.codes import REMOVED, Removed

Cli = Callable[..., Outcome]
TEXT = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  zero_stage: 2\n  overlap_comm: true\n"


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Make ZC103, which the file in this folder breaks, another kind of rule."""
    (tmp_path / "a.yaml").write_text(TEXT)

    def change(**how: str) -> None:
        rules = tuple(replace(rule, **how) if rule.code == "ZC103" else rule for rule in registry.ALL)
        monkeypatch.setattr(engine, "rules_for", lambda runs: rules)
        monkeypatch.setattr(registry, "_BY_WORD", {word: one for one in rules for word in (one.code, one.name)})

    return change


def codes(outcome: Outcome) -> list[str]:
    return [diagnostic["code"] for diagnostic in json.loads(outcome.out)["diagnostics"]]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), False),
        (("--select", "ZC1"), False),
        (("--select", "ALL"), False),
        (("--select", "ZC103"), True),
        (("--select", "key-accelerate-ignores"), True),
        (("--preview",), True),
        (("--preview", "--select", "ZC1"), True),
        (("--preview", "--ignore", "ZC103"), False),
    ],
)
def test_a_preview_rule_runs_when_asked_for(
    zerocfg: Cli, become: Callable[..., None], words: tuple[str, ...], told: bool
) -> None:
    become(status="preview")
    assert ("ZC103" in codes(zerocfg("lint", "--output-format", "json", *words))) is told


def test_preview_in_the_settings(zerocfg: Cli, become: Callable[..., None], tmp_path: Path) -> None:
    become(status="preview")
    (tmp_path / "zerocfg.toml").write_text("preview = true\n")
    assert "ZC103" in codes(zerocfg("lint", "--output-format", "json"))
    (tmp_path / "zerocfg.toml").write_text("preview = 'yes'\n")
    assert zerocfg("lint").code == 2


def test_a_comment_about_a_preview_rule_is_not_judged_without_it(
    zerocfg: Cli, become: Callable[..., None], tmp_path: Path
) -> None:
    become(status="preview")
    (tmp_path / "a.yaml").write_text(
        TEXT.replace("overlap_comm: true", "gradient_clipping: 1.0 # zerocfg: ignore[ZC103]")
    )
    assert codes(zerocfg("lint", "--output-format", "json")) == []
    assert codes(zerocfg("lint", "--preview", "--output-format", "json")) == ["ZC010"]


def test_a_deprecated_rule_says_what_replaces_it(zerocfg: Cli, become: Callable[..., None]) -> None:
    become(status="deprecated", replaced_by="ZC101")
    usual = zerocfg("lint")
    assert "this rule is deprecated, ZC101 replaces it" in usual.out and usual.err == ""
    assert (
        zerocfg("lint", "--select", "ZC103").err == "zerocfg: ZC103 (key-accelerate-ignores) is deprecated; use ZC101\n"
    )
    assert "deprecated, replaced by ZC101" in zerocfg("explain", "ZC103").out


def test_a_removed_rule_is_refused_with_its_reason(
    zerocfg: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(REMOVED, "ZC998", Removed("an-old-rule", "0.2", "no release does this any more"))
    reason = "ZC998 (an-old-rule) was removed in 0.2: no release does this any more"
    for words in (("lint", "--select", "ZC998"), ("lint", "--ignore", "zc998"), ("explain", "ZC998")):
        outcome = zerocfg(*words)
        assert outcome.code == 2 and reason in outcome.err
    (tmp_path / "zerocfg.toml").write_text('ignore = ["ZC998"]\n')
    assert f"zerocfg.toml: {reason}" in zerocfg("lint").err
