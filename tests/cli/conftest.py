"""Running the command in this process, as a user would from a shell in some folder."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from zerocfg.cli.main import run


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def zerocfg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """``zerocfg("lint", "--select", "ZC1")`` in a folder of its own; internal errors are raised, not printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZEROCFG_TRACEBACK", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def call(*words: str, stdin: str | None = None) -> Outcome:
        out, err = io.StringIO(), io.StringIO()
        monkeypatch.setattr(sys, "argv", ["zerocfg", *words])
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run()
        return Outcome(code, out.getvalue(), err.getvalue())

    return call
