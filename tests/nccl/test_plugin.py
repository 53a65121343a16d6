"""Tests on several ranks are found, and run twice."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from . import INSTALLED, LAUNCHES, SWITCH
from .exempt import EXEMPT
from .uses import ROOT

CONFTEST = "from tests.nccl.plugin import collectives, pytest_generate_tests\n"
LAUNCH = f"""
import os, pytest, socket
def launch():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.sendto(b"2 ranks: train.py", os.environ["{LAUNCHES}"])
"""


def run(pytester: pytest.Pytester, code: str) -> pytest.RunResult:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(LAUNCH + code)
    pytester.makeini("[pytest]\nmarkers =\n    libs\n    several_ranks\n")
    return pytester.runpytest("-v", "-p", "no:cacheprovider")


def test_a_marked_test_runs_with_both(pytester: pytest.Pytester) -> None:
    code = f"""
@pytest.mark.libs
@pytest.mark.several_ranks
def test_it(collectives):
    launch()
    assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == {str(INSTALLED)!r}
    assert os.environ.get("{SWITCH}") == {{"gloo": None, "nccl": "1"}}[collectives]
"""
    run(pytester, code).assert_outcomes(passed=2)
    assert SWITCH not in os.environ and LAUNCHES not in os.environ


def test_a_launch_in_an_unmarked_test_fails(pytester: pytest.Pytester) -> None:
    result = run(pytester, "@pytest.mark.libs\ndef test_it(): launch()\n")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["starts several ranks, so mark it several_ranks: 2 ranks: train.py"])


def test_a_mark_without_a_launch_fails(pytester: pytest.Pytester) -> None:
    result = run(pytester, "@pytest.mark.libs\n@pytest.mark.several_ranks\ndef test_it(): pass\n")
    result.assert_outcomes(passed=2, errors=2)


@pytest.mark.parametrize("code", ["def test_it(): pass\n", "@pytest.mark.libs\ndef test_it(): pass\n"])
def test_others_run_once(pytester: pytest.Pytester, code: str) -> None:
    run(pytester, code).assert_outcomes(passed=1)


@pytest.mark.parametrize("name", EXEMPT)
def test_what_is_exempt_is_there_and_marked(name: str) -> None:
    file, _, test = name.partition("::")
    for node in ast.walk(ast.parse(Path(ROOT, "tests", file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == test:
            assert any(ast.unparse(one) == "pytest.mark.several_ranks" for one in node.decorator_list)
            assert EXEMPT[name]
            return
    pytest.fail("no such test")
