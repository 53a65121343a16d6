"""A rank's text against the types of what a rank tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zerocfg.smoke.launch import rank_reports
from zerocfg.smoke.worker.report import Report

GOOD: dict[str, Any] = {
    "rank": 0,
    "seen": {"stage": 3, "gradient_clipping": None, "held": {"master": {"dtypes": ["fp32"]}}, "settings": {"a": [1]}},
    "losses": [1, 2.5, float("nan")],
    "rates": [0.1, None],
    "momentum": None,
    "parts": {"resume": {"state": "done", "from": 1}},
    "memory": {"init": {"seconds": 1, "rss": None}},
    "timeline": [[0.1, 3, "init"]],
    "of a later release": object,
}


def test_what_a_rank_writes_is_read(tmp_path: Path) -> None:
    report = Report(tmp_path)
    report.see({"engine": "ddp"})
    report.phase("init")
    assert rank_reports.read(report.path) == report.content
    assert rank_reports.read(tmp_path / "rank7.json") == {}
    assert rank_reports.is_report(GOOD), "a field that is not known is passed over"


@pytest.mark.parametrize(
    "wrong",
    [
        {"rank": "0"},
        {"losses": [1, "2"]},
        {"losses": [True]},
        {"seen": {"stage": None}},
        {"seen": {"held": {"master": {"dtypes": "fp32"}}}},
        {"parts": {"resume": {"from": "1"}}},
        {"memory": {"init": {"rss": "1"}}},
        {"timeline": [[0.1, None, "init"]]},
        [],
    ],
)
def test_what_does_not_fit_is_no_report(tmp_path: Path, wrong: Any) -> None:
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(wrong))
    assert rank_reports.read(path) == {}
