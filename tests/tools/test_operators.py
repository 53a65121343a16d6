"""What the compilation of DeepSpeed's operators lacks is told in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import operators


def test_a_compiler_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "clang++")
    with pytest.raises(SystemExit) as stopped:
        operators.main()
    assert stopped.value.code == (
        "DeepSpeed compiles its operators for a processor, and there is no C++ compiler `clang++`: apt install g++, or "
        "name one in CXX"
    )
    (tmp_path / "clang++").write_text("")
    (tmp_path / "clang++").chmod(0o755)
    assert operators.missing() is None
    monkeypatch.setattr(operators.sysconfig, "get_path", lambda _: str(tmp_path))
    assert operators.missing() == "Python.h is not there: apt install python3-dev"
