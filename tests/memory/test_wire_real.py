"""A few cases of benchmarks/time/wire: what real DeepSpeed, DDP and FSDP send is what is predicted, to the byte."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "time" / "wire"
LABELS = (
    "ZeRO-0, fp32",
    "ZeRO-1, 2 ranks, accumulation 2",
    "ZeRO-2, 2 ranks, accumulation 2, checkpointing",
    "ZeRO-3, 2 ranks, accumulation 2, nothing kept",
    "ZeRO-3, 2 ranks, accumulation 1, checkpointing, all kept",
    "ZeRO-3, only the query projections trained",
    "DDP, accumulation 2, without no_sync",
    "FSDP 1, 2 ranks, accumulation 1",
    "FSDP 2, 2 ranks, accumulation 4",
)


@pytest.fixture(scope="module")
def compare() -> ModuleType:
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("wire_compare", FOLDER / "compare.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    return module


@pytest.mark.libs
@pytest.mark.usefixtures("warm_python")
def test_real_collectives(compare: ModuleType) -> None:
    chosen = [case for case in compare.cases() if case.label in LABELS]
    assert len(chosen) == len(LABELS)
    for case, answer in zip(chosen, compare.count(chosen), strict=True):
        assert "error" not in answer, answer
        assert compare.counted(answer) == compare.predicted(case), case.label


def test_committed_results_are_still_what_is_predicted(compare: ModuleType) -> None:
    """A change of a formula shows against what the libraries sent when the results were made."""
    rows: list[dict[str, Any]] = json.loads((FOLDER / "results" / "wire.json").read_text())["rows"]
    cases = {case.label: case for case in compare.cases()}
    assert {row["label"] for row in rows} == set(cases)
    for row in rows:
        found = compare.predicted(cases[row["label"]])
        if row["exact"]:
            assert found == row["counted"], row["label"]
        else:
            assert sum(found.values()) == pytest.approx(sum(row["counted"].values()), rel=0.05), row["label"]
