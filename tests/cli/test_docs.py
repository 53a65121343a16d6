"""The hand-written pages in docs/ agree with the program and with each other."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from zerocfg.workspace.settings import KNOWN, Settings, find_settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGES = sorted(ROOT.glob("docs/**/*.md"))


def test_every_setting_is_described(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`([^`]+)`", row)} == KNOWN
    (example,) = re.findall(r"^```toml\n(.*?)^```", text, re.M | re.S)
    (tmp_path / "pyproject.toml").write_text(example)
    found = find_settings(tmp_path)
    assert found != Settings() and found.consumer == "transformers" and found.selection.per_file


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "docs"], ids=lambda page: page.name)
def test_toml_examples_are_settings(page: Path, tmp_path: Path) -> None:
    for number, example in enumerate(re.findall(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)):
        if "zerocfg" not in tomllib.loads(example).get("tool", {}):
            continue  # the configuration of an editor
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "pyproject.toml").write_text(example)
        assert find_settings(folder).source == folder / "pyproject.toml"
