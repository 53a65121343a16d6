"""A skip that nothing allows fails, wherever it happens; and one that is allowed is only so where its cause is true."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import skips

TESTS_FOLDER = Path(__file__).parents[1]
PLUGIN = "pytest_plugins = ['tests.skips']\n"
TESTS = """
import pytest

def test_in_the_body():
    pytest.skip({reason!r})

@pytest.fixture
def thing():
    pytest.skip({reason!r})

def test_in_a_fixture(thing):
    pass

@pytest.mark.skipif(True, reason={reason!r})
def test_by_a_mark():
    pass

@pytest.mark.xfail
def test_that_is_known_to_fail():
    assert False
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    pytester.makeconftest(PLUGIN)
    return pytester


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_a_skip_that_nothing_allows_fails(project: pytest.Pytester, workers: str) -> None:
    project.makepyfile(TESTS.format(reason="not today"))
    result = project.runpytest_subprocess(workers, "-p", "no:zerocfg")
    result.assert_outcomes(failed=1, errors=2, xfailed=1)
    result.stdout.fnmatch_lines(["*allows no skip for this reason here: not today*"])


def test_a_module_that_is_skipped_fails_too(project: pytest.Pytester) -> None:
    project.makepyfile("import pytest\npytest.importorskip('no_such_module')\ndef test_nothing(): pass\n")
    result = project.runpytest_subprocess("-n0", "-p", "no:zerocfg")
    result.assert_outcomes(errors=1)
    assert result.ret != 0


def test_an_allowed_skip_passes_and_is_told(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZEROCFG_JOBSET_CRD", raising=False)
    project.makepyfile(TESTS.format(reason="set ZEROCFG_JOBSET_CRD to the CRD of JobSet"))
    result = project.runpytest_subprocess("-n0", "-p", "no:zerocfg")
    result.assert_outcomes(skipped=3, xfailed=1)
    result.stdout.fnmatch_lines(["3 skipped: set ZEROCFG_JOBSET_CRD to the CRD of JobSet (to run: kubectl *)"])


def test_a_reason_holds_only_where_it_is_true(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert skips.allowed("no fish here")
    (tmp_path / "fish").write_text("")
    (tmp_path / "fish").chmod(0o755)
    assert not skips.allowed("no fish here")
    assert not skips.allowed("no fish here, nor elsewhere")
    monkeypatch.setattr(skips, "SHARED", tmp_path)
    assert not skips.allowed("no corpus of real configs here (set ZEROCFG_CORPUS)")
    monkeypatch.setattr(skips, "SHARED", tmp_path / "absent")
    assert skips.allowed("no corpus of real configs here (set ZEROCFG_CORPUS)")
    monkeypatch.delenv("ZEROCFG_OFFLINE", raising=False)
    assert not skips.allowed("no package registry: Could not connect")


def _reasons() -> Iterator[tuple[str, str]]:
    """Every reason that the tests write down to the letter, with its place."""
    for path in sorted(TESTS_FOLDER.rglob("test_*.py")) + sorted(TESTS_FOLDER.rglob("conftest.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            words = (
                node.args[:1]
                if name == "pytest.skip"
                else [each.value for each in node.keywords if each.arg == "reason"]
            )
            if name not in ("pytest.skip", "pytest.mark.skipif"):
                continue
            for word in words:
                if isinstance(word, ast.Constant) and isinstance(word.value, str):
                    yield f"{path.relative_to(TESTS_FOLDER)}:{node.lineno}", word.value


def test_every_reason_that_is_written_down_may_be_allowed() -> None:
    """So that it is not on somebody else's machine that a skip is found to be forbidden everywhere."""
    written = list(_reasons())
    assert len(written) > 10
    unknown = [
        f"{place}: {reason}"
        for place, reason in written
        if not any(re.fullmatch(one.reason, reason, re.DOTALL) for one in skips.ALLOWED)
    ]
    assert unknown == []
