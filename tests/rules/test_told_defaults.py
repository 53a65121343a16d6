"""The default that a finding names is that of the stage at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rules.examples import lint
from zerocfg.linter.selection import Selection


@pytest.mark.parametrize(("zero", "default"), [({"stage": 2}, "false"), ({"stage": 3}, "true"), ({}, "false")])
def test_overlap_of_communication_follows_the_stage(zero: dict[str, int], default: str, tmp_path: Path) -> None:
    """deepspeed/runtime/zero/config.py: `overlap_comm` is what `stage == 3` is."""
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {**zero, "overlap_comm": "auto"}}
    (tmp_path / "ds.json").write_text(json.dumps(config))
    (found,) = lint(tmp_path, "deepspeed", Selection(select=("ZC415",))).diagnostics
    assert found.message.endswith(f"DeepSpeed silently takes its default ({default})")
