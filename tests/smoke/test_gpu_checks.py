"""The scripts that wait for a card: every check is listed as what it is, and what is made of measured figures."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import ROOT

FOLDER = ROOT / "benchmarks" / "gpu"


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("gpu_run", FOLDER / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "gpu_run", module)  # where its dataclasses look their types up
        spec.loader.exec_module(module)
        yield module


def test_the_table_lists_every_check_and_its_state(script: ModuleType) -> None:
    rows = re.findall(r"^\| `([^`]+)` \|.*\| ([^|]+) \|$", (FOLDER / "README.md").read_text(encoding="utf-8"), re.M)
    assert sorted(name for name, _ in rows) == sorted(script.CHECKS)
    for name, state in rows:
        path = FOLDER / "results" / f"{name}.json"
        if path.exists():
            assert json.loads(path.read_text())["date"][:10] in state, f"{name} was run"
        else:
            assert state.startswith("not run yet"), f"{name} was not run"


def test_the_runs_exist(script: ModuleType) -> None:
    for spec, run, options in script.SMOKE.values():
        assert (ROOT / spec).is_file()
        assert (ROOT / spec).parent.joinpath("built", run, "zerocfg.lock").is_file()
        assert "--ranks" in options


def test_without_a_card_it_says_so(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "cards", list)
    assert script.main(["share-gpu"]) == 0
    assert capsys.readouterr().out == "share-gpu: not run: no NVIDIA card here\n"
    assert script.main(["nothing"]) == 2


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (
            {
                "peak_memory_bytes": [100, 120],
                "step_seconds": [9.0, 0.5, 0.7, 0.6],
                "predicted": {"allocated": [90, 110, 115], "step_seconds": [0.3, 0.5, 1.0]},
            },
            {
                "allocated": {"measured": 120, "predicted": [90, 110, 115], "ratio": 1.091, "inside": False},
                "step_seconds": {"measured": 0.6, "predicted": [0.3, 0.5, 1.0], "ratio": 1.2, "inside": True},
            },
        ),
        ({"peak_memory_bytes": [None], "step_seconds": [1.0], "predicted": {"unknown": "why"}}, {}),
        ({}, {}),
    ],
)
def test_measured_beside_predicted(script: ModuleType, measured: dict[str, Any], expected: dict[str, Any]) -> None:
    assert script.against_prediction(measured) == expected
