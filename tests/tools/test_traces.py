"""A test that changes the process fails, and the next one finds it as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

CHANGES = {
    "os.environ": "os.environ['ZEROCFG_LEFT'] = 'x'",
    "os.environ, replaced": "os.environ = {**os.environ, 'ZEROCFG_LEFT': 'x'}",
    "the current folder": "os.chdir('/')",
    "sys.argv": "sys.argv.append('x')",
    "sys.path": "sys.path.insert(0, '/nowhere')",
    "the root logger": "logging.root.setLevel(1)",
    "what SIGINT does": "signal.signal(signal.SIGINT, lambda *_: None)",
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_left_behind_is_told_and_put_back(
    what: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    pytester.makeconftest("pytest_plugins = ['tests.traces']\n")
    pytester.makepyfile(
        f"""
        import logging, os, signal, sys
        BEFORE = (os.environ, dict(os.environ), os.getcwd(), list(sys.argv), list(sys.path), logging.root.level,
                  signal.getsignal(signal.SIGINT))
        def test_first():
            {CHANGES[what]}
        def test_second():
            now = dict(os.environ)
            was = BEFORE[1]
            for one in (now, was):
                one.pop("PYTEST_CURRENT_TEST", None)
            assert os.environ is BEFORE[0] and now == was
            assert (os.getcwd(), sys.argv, sys.path) == BEFORE[2:5]
            assert (logging.root.level, signal.getsignal(signal.SIGINT)) == BEFORE[5:]
        """
    )
    result = pytester.runpytest_subprocess("-n0", "-p", "no:zerocfg")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["left behind:", f"{what.partition(',')[0]}: *"])
