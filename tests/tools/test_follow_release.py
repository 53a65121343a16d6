"""Following a release: what is written, which stages are played, what is said at the end. No release is changed."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.conftest import ROOT
from tools.follow_release import STAGES, STATED, Outcome, Stage, failures, follow, listed, report, restated

PINNED = dict(re.findall(r"^(\w+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))


@pytest.mark.parametrize("package", PINNED)
@pytest.mark.parametrize("name", STATED)
def test_the_release_is_written_where_it_stands_and_nothing_else_changes(name: str, package: str) -> None:
    text = (ROOT / name).read_text()
    changed = restated(text, STATED[name], package, "9.8.7rc6")
    ((before, after),) = (
        pair for pair in zip(text.splitlines(), changed.splitlines(), strict=True) if pair[0] != pair[1]
    )
    assert package in before and after == before.replace(PINNED[package], "9.8.7rc6")


def test_a_file_that_states_it_twice_or_not_is_refused() -> None:
    with pytest.raises(ValueError, match="0 times"):
        restated("torchvision==2\n", "{package}=={release}", "trl", "3")
    with pytest.raises(ValueError, match="2 times"):
        restated("trl==1\ntrl==2\n", "{package}=={release}", "trl", "3")


@pytest.mark.parametrize("package", ["deepspeed", "accelerate", "transformers", "trl"])
def test_the_release_is_walked_after_the_others(package: str) -> None:
    text = (ROOT / "tools" / "facts" / "releases.yaml").read_text()
    before, after = yaml.safe_load(text), yaml.safe_load(listed(text, package, "99.8.7"))
    before[package]["releases"].append("99.8.7")
    assert after == before
    assert listed(text, package, PINNED[package]) == text == listed(text, "torch", "99.8.7")


def played(*failing: str) -> tuple[list[str], str]:
    """Names of the stages that were played, and the report."""
    names: list[str] = []

    def play(stage: Stage) -> Outcome:
        names.append(stage.name)
        failed = ("tests.x::test_y: AssertionError: z",) if stage.tests and stage.name in failing else ()
        return Outcome(stage, stage.name not in failing, failed)

    return names, report(follow(STAGES, play), STAGES)


def test_stages_go_on_after_one_that_compares_failed() -> None:
    names, said = played("completeness", "proofs")
    assert names == ["lock", "install", "facts", "schemas", "completeness", "parity", "proofs"]
    lines = said.splitlines()
    assert lines[:7] == [
        "lock: passed",
        "install: passed",
        "facts: passed",
        "schemas: passed",
        "completeness: FAILED",
        "  tests.x::test_y: AssertionError: z",
        f"  edit {STAGES[4].edit}",
    ]
    assert lines[7:9] == ["parity: passed", "proofs: FAILED"]


def test_nothing_is_compared_with_a_release_that_is_not_installed() -> None:
    names, said = played("install")
    assert names == ["lock", "install"]
    assert said.splitlines()[-3:] == ["completeness: not run", "parity: not run", "proofs: not run"]


def test_failures_of_a_real_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile(
        test_it="""
        import pytest
        def test_fine(): pass
        def test_wrong(): assert 1 == 2, "one is not two"
        @pytest.fixture
        def broken(): raise KeyError("gone")
        def test_error(broken): pass
        @pytest.mark.skip(reason="no")
        def test_skipped(): pass
        """
    )
    results = pytester.path / "results.xml"
    pytester.runpytest_subprocess("-n0", "-p", "no:zerocfg", f"--junitxml={results}")
    assert failures(results) == (
        "test_it::test_wrong: AssertionError: one is not two",
        "test_it::test_error: failed on setup with \"KeyError: 'gone'\"",
    )


def test_every_stage_names_tests_that_exist() -> None:
    for stage in STAGES:
        for word in stage.words:
            assert not word.startswith("tests/") or (ROOT / word).exists(), word
