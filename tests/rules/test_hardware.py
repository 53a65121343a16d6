"""Rules that need the memory of a machine, which the caller of the rules puts into the run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.rules.zero import more_sharding_than_needed
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import HardwareSummary, ModelSummary, Run

if TYPE_CHECKING:
    from pathlib import Path


def stage_3(folder: Path, **zero: Any) -> Run:
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, **zero}}
    path = folder / "ds.json"
    path.write_text(json.dumps(config))
    (run,), _ = find_runs([path], Files(), root=folder)
    run.model = ModelSummary("tiny", parameters=350_000_000)
    run.hardware = HardwareSummary("8xA100-80GB", 1, 8, 80.0, True, {2: 6.0, 3: 4.0})
    return run


def codes(run: Run) -> list[str]:
    return [finding.message for finding in more_sharding_than_needed.check(run)]


def test_small_states_need_no_stage_3(tmp_path: Path) -> None:
    (message,) = codes(stage_3(tmp_path))
    assert "6.0 of 80 GiB" in message


@pytest.mark.parametrize("states", [{2: 41.0, 3: 10.0}, {}])
def test_large_or_unknown_states_are_left_alone(tmp_path: Path, states: dict[int, float]) -> None:
    run = stage_3(tmp_path)
    run.hardware = HardwareSummary("8xA100-80GB", 1, 8, 80.0, True, states)
    assert codes(run) == []


def test_offloaded_parameters_are_left_alone(tmp_path: Path) -> None:
    assert codes(stage_3(tmp_path, offload_param={"device": "cpu"})) == []


def test_without_hardware_nothing_is_said(tmp_path: Path) -> None:
    run = stage_3(tmp_path)
    run.hardware = None
    assert codes(run) == []
