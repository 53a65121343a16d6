"""docs/python.md does what it says."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import zerocfg
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "python.md").read_text()


@pytest.mark.libs
def test_the_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ROOT / "examples" / "quickstart", tmp_path / "job", ignore=shutil.ignore_patterns("built"))
    shutil.copytree(ROOT / "examples" / "pitfalls", tmp_path / "job" / "configs")
    monkeypatch.chdir(tmp_path / "job")
    monkeypatch.setattr("sys.argv", ["train.py", "recipe.yaml"])
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.S):
        exec(compile(block, "docs/python.md", "exec"), {})
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("ZC") and "3 ds_config.json" in out
    assert (tmp_path / "job" / "built" / "quickstart" / "zerocfg.lock").is_file()


def test_every_function_is_on_the_page() -> None:
    functions = {name for name in zerocfg.__all__ if name.islower() and not name.startswith("_")}
    assert functions == set(re.findall(r"^\| `(\w+)\(", PAGE, flags=re.M))
