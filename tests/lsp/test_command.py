"""The command itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

from zerocfg.cli.main import run


def test_without_the_extra_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pygls.lsp.server", None)
    monkeypatch.setattr(sys, "argv", ["zerocfg", "lsp"])
    assert run() == 2
    assert "pip install 'zerocfg[lsp]'" in capsys.readouterr().err


def test_lint_loads_nothing_of_it() -> None:
    loaded = "[name for name in sys.modules if 'pygls' in name or '.lsp' in name]"
    code = f"import sys, zerocfg.cli.commands.lint; print({loaded})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
