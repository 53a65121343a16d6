"""Findings about a key hold in the releases that have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerocfg.linter.engine import Diagnostic, Selection
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

PARAMETERS = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "data_types": {"param_dtype": "fp16"}}\n'


def lint(folder: Path, text: str, deepspeed: str | None, code: str) -> list[Diagnostic]:
    (folder / "ds.json").write_text(text)
    versions = {"deepspeed": deepspeed} if deepspeed else {}
    settings = Settings(consumer="deepspeed", versions=versions)
    return Job([folder], settings, Selection(select=(code,)), root=folder).lint().diagnostics


@pytest.mark.parametrize("deepspeed", [None, "==0.19.2", ">=0.19.2"])
def test_where_all_releases_have_the_key(deepspeed: str | None, tmp_path: Path) -> None:
    [found] = lint(tmp_path, PARAMETERS, deepspeed, "ZC313")
    assert found.severity.value == "error" and found.fix is not None
    assert "from DeepSpeed" not in found.message


@pytest.mark.parametrize("deepspeed", ["==0.19.1", "<0.19.2", ">=0.14,<0.17", "==0.14.5"])
def test_where_none_has_it(deepspeed: str, tmp_path: Path) -> None:
    assert not lint(tmp_path, PARAMETERS, deepspeed, "ZC313")
    assert [one.code for one in lint(tmp_path, PARAMETERS, deepspeed, "ZC865")] == ["ZC865"]


def test_where_some_have_it(tmp_path: Path) -> None:
    [found] = lint(tmp_path, PARAMETERS, ">=0.18", "ZC313")
    assert found.severity.value == "warning" and found.fix is None
    assert "(from DeepSpeed 0.19.2 on; " in found.message
