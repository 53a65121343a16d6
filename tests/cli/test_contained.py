"""One bug of zerocfg costs one diagnostic: a rule, a run or a file that fails inside leaves the rest as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import zerocfg.run.discover
import zerocfg.run.releases
from tests.cli.conftest import Outcome
from zerocfg.internal_errors import REPORT
from zerocfg.linter import engine
from zerocfg.lsp.checking import Project
from zerocfg.lsp.documents import Document
from zerocfg.rules.registry import ALL, find
from zerocfg.run.model import Run

Call = Callable[..., Outcome]
DEEPSPEED = '{"train_micro_batch_size_per_gpu": 1, "zero_optimizaton": {"stage": 2}}\n'
ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 7\n"


@pytest.fixture
def call(zerocfg: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """The command as users have it, in a folder of two runs with a finding each: ZC102 and ZC104."""
    monkeypatch.delenv("ZEROCFG_TRACEBACK")
    (tmp_path / "a.json").write_text(DEEPSPEED)
    (tmp_path / "b.yaml").write_text(ACCELERATE)
    return zerocfg


def codes(outcome: Outcome) -> set[tuple[str, str]]:
    return {(one["file"], one["code"]) for one in json.loads(outcome.out)["diagnostics"]}


def break_rule(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """The rule fails after its first finding of a run."""
    rule = find(code)
    assert rule is not None
    check: Any = rule.check

    def broken(run: Run) -> Iterator[Any]:
        yield from list(check(run))[:1]
        raise AssertionError("no such\n::error::thing")

    rules = tuple(_with_check(one, broken) if one is rule else one for one in ALL)
    monkeypatch.setattr(engine, "rules_for", lambda runs: rules)


def _with_check(rule: Any, check: Callable[[Run], Iterator[Any]]) -> Any:
    return replace(rule, check=check)


def test_a_rule_that_fails_costs_that_rule_on_that_run(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = call("lint", "--output-format", "json")
    assert sound.code == 1
    assert len(codes(sound)) >= 2
    break_rule(monkeypatch, "ZC411")
    found = call("lint", "--output-format", "json")
    assert found.code == 2
    assert codes(found) == codes(sound)
    errors = json.loads(found.out)["internal_errors"]
    assert {(one["file"], one["doing"]) for one in errors} == {
        ("a.json", "check ZC411 in the run `a.json`"),
        ("b.yaml", "check ZC411 in the run `b.yaml`"),
    }
    assert {one["error"] for one in errors} == {"AssertionError: no such ::error::thing"}
    told = "zerocfg: internal error: a.json: zerocfg could not check ZC411 in the run `a.json`: AssertionError: "
    assert any(line.startswith(told) for line in found.err.splitlines())
    assert found.err.rstrip().endswith(REPORT)
    assert "Traceback" not in found.err


def test_what_failed_is_no_pass(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "b.yaml").unlink()
    (tmp_path / "a.json").write_text('{"train_micro_batch_size_per_gpu": 1}\n')
    assert "All checks passed in 1 file" in call("lint").out
    break_rule(monkeypatch, "ZC411")
    found = call("lint")
    assert found.code == 2
    assert found.out.startswith("Nothing was found in 1 file. 1 check failed inside zerocfg.")
    sarif = json.loads(call("lint", "--output-format", "sarif").out)["runs"][0]["invocations"][0]
    assert sarif["executionSuccessful"] is False
    (note,) = sarif["toolExecutionNotifications"]
    assert note["level"] == "error" and note["message"]["text"].endswith(REPORT)


def test_the_gate_names_it(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "zerocfg.yaml").write_text("version: 1\nruns: {}\n")
    break_rule(monkeypatch, "ZC411")
    outcome = call("gate", "--only", "lint", "--output-format", "json")
    assert outcome.code == 1, outcome.err
    kinds = [one["kind"] for one in json.loads(outcome.out)["reasons"]]
    assert kinds[:2] == ["internal-error"] * 2


def test_a_run_whose_settings_fail_leaves_the_others(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = zerocfg.run.releases.with_settings

    def broken(run: Run) -> Run:
        if run.name == "a.json":
            raise KeyError("stage")
        return whole(run)

    sound = codes(call("lint", "--output-format", "json"))
    monkeypatch.setattr(zerocfg.run.releases, "with_settings", broken)
    found = call("lint", "--output-format", "json")
    assert codes(found) == {one for one in sound if one[0] == "b.yaml"} != set()
    (error,) = json.loads(found.out)["internal_errors"]
    assert (error["file"], error["doing"], error["error"]) == (
        "a.json",
        "compute the settings of the run `a.json`",
        "KeyError: 'stage'",
    )


def test_a_file_whose_reader_fails_is_named_with_the_reason(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = zerocfg.run.discover.load_as

    def broken(source: Any, format: Any) -> Any:
        if source.name == "a.json":
            raise RecursionError("maximum recursion depth exceeded")
        return whole(source, format)

    monkeypatch.setattr(zerocfg.run.discover, "load_as", broken)
    found = call("lint")
    assert "b.yaml" in found.out
    assert re.search(r"a\.json: .*could not read this file: RecursionError: nested too deeply", found.out), found.out


def test_a_fix_that_makes_a_rule_fail_is_not_applied(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rule = find("ZC411")
    assert rule is not None
    check: Any = rule.check

    def broken(run: Run) -> Iterator[Any]:
        if run.deepspeed is not None and "zero_optimization" in run.deepspeed.source.text:
            raise ZeroDivisionError
        yield from check(run)

    (tmp_path / "b.yaml").unlink()
    before = (tmp_path / "a.json").read_text()
    with monkeypatch.context() as patched:
        rules = tuple(_with_check(one, broken) if one is rule else one for one in ALL)
        patched.setattr(engine, "rules_for", lambda runs: rules)
        call("lint", "--fix", "--unsafe-fixes")
    assert (tmp_path / "a.json").read_text() == before
    call("lint", "--fix", "--unsafe-fixes")
    assert "zero_optimization" in (tmp_path / "a.json").read_text()


def test_with_tracebacks_asked_for_it_is_raised(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    break_rule(monkeypatch, "ZC411")
    monkeypatch.setenv("ZEROCFG_TRACEBACK", "1")
    with pytest.raises(AssertionError, match="no such"):
        call("lint")


def test_the_editor_keeps_the_other_findings(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    break_rule(monkeypatch, "ZC411")
    path = tmp_path / "a.json"
    document = Document(path.as_uri(), DEEPSPEED, 1, str(path))
    snapshot = Project(str(tmp_path)).check([document])
    assert {one.code for one in snapshot.diagnostics} >= {"ZC102"}
    (trouble,) = snapshot.troubles
    assert trouble.startswith("internal error: a.json: zerocfg could not check ZC411")
