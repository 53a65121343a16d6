"""What ranks send: counted on the real libraries, beside what is predicted, to the byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zerocfg.smoke.certify.result import data
from zerocfg.smoke.judge import measured
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.smoke import Options, smoke

from .conftest import PARAMETERS, MakeRun
from .launched import report, verdict
from .test_runs import with_fsdp

HALF, FULL, MICRO = 2, 4, 2
"""Bytes of bf16 and of fp32; micro steps of the run."""
NORMS = 5 * 64
"""Elements of the tensors that stay on every rank: the threshold of the run is 64."""
TAIL = 64 + 64 * 64
"""Elements of the last norm and the head. accelerate 1.15 keeps them gathered until the backward pass
(utils/fsdp_utils.py, fsdp2_prepare_model); what is predicted gathers every unit again."""
USED = 21 * 4
"""Bytes of the map of used parameters, which DDP sums, too: the Trainer of transformers looks for unused ones where
nothing is recomputed. It is not predicted."""
WHOLE = PARAMETERS * HALF
# What each engine sends in a step of two micro steps, in whole buffers.
SENT: dict[str, dict[str, int]] = {
    "ZeRO-1": {"all_reduce": WHOLE, "all_gather": WHOLE},
    "ZeRO-2": {"all_reduce": WHOLE * MICRO, "all_gather": WHOLE},
    "ZeRO-3": {"all_gather": WHOLE * MICRO - NORMS * HALF, "reduce_scatter": WHOLE * MICRO},
    "DDP": {"all_reduce": PARAMETERS * FULL + USED},
    "FSDP 2": {"all_gather": (2 * WHOLE - TAIL * HALF) * MICRO, "reduce_scatter": WHOLE},
}
MORE = {"FSDP 2": {"all_gather": TAIL * HALF * MICRO}, "DDP": {"all_reduce": -USED}}
"""What is predicted beyond that."""
SHOWN = {"FSDP 2": "(-8,320, -2.5%) ", "DDP": "(+84, +0.0%) "}


def engine(make_run: MakeRun, name: str) -> Path:
    if name == "FSDP 2":
        return with_fsdp(make_run(None), 2)
    return make_run(None if name == "DDP" else int(name[-1]))


@pytest.mark.several_ranks
@pytest.mark.libs
@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("name", SENT)
def test_what_is_counted_is_what_is_predicted(make_run: MakeRun, name: str) -> None:
    found = smoke(engine(make_run, name), Options(ranks=2, device="cpu", steps=3, parts=("train",)))
    assert found.passed, (found.outcome.failure, found.outcome.detail)
    expected = found.expected
    assert not isinstance(expected, str), expected
    more = MORE.get(name, {})
    assert {kind: one.payload - more.get(kind, 0) for kind, one in expected.collectives().items()} == SENT[name]
    assert len(found.figures.collectives) == 2
    for rank in found.figures.collectives:
        counted = {kind: one for kind, one in rank.items() if kind not in ("flags", "broadcast")}
        assert {kind: one["payload"] for kind, one in counted.items()} == SENT[name]
        for kind, one in counted.items():
            assert one["sent"] == SENT[name][kind] // (1 if kind == "all_reduce" else 2), "a ring of two ranks"
            assert one["calls"] > 0 and 0 < one["seconds"] < found.outcome.seconds
    rows = {one.name: one for one in found.checks}
    for kind, payload in SENT[name].items():
        sent = payload // (1 if kind == "all_reduce" else 2)
        planned = expected.collectives()[kind].sent
        assert rows[f"bytes sent by {kind}"].planned == f"predicted {planned:,}"
        apart = "" if planned == sent else SHOWN[name]
        assert rows[f"bytes sent by {kind}"].seen.startswith(f"{sent:,} {apart}in ")
    certified = json.loads((found.run.path / "smoke.json").read_text())["measured"]
    assert certified["communication"] == found.figures.collectives
    assert {kind: one["payload"] for kind, one in certified["predicted"]["communication"].items()} == {
        kind: payload + more.get(kind, 0) for kind, payload in SENT[name].items()
    }


def rank(**kinds: tuple[int, int, float]) -> dict[str, Any]:
    return {
        kind: {"calls": calls, "payload": size, "sent": size // 2, "seconds": seconds}
        for kind, (calls, size, seconds) in kinds.items()
    }


def test_rows_hold_what_was_counted_beside_what_was_predicted(make_run: MakeRun, tmp_path: Path) -> None:
    both = [
        rank(all_gather=(7, 328320, 0.114), reduce_scatter=(1, 400000, 0.02), flags=(3, 0, 0.01)),
        rank(all_gather=(7, 328320, 0.2), reduce_scatter=(1, 400000, 0.02), flags=(3, 0, 0.03), broadcast=(1, 64, 0.0)),
    ]
    times = [2.0, 0.5, 0.4, 0.9]
    reports = [report(at, {}, collectives=one, step_seconds=times) for at, one in enumerate(both)]
    found = verdict(read(make_run(3)), tmp_path, reports)
    rows = {one.name: (one.planned, one.seen) for one in measured.check(found.figures, found.expected, found.outcome)}
    assert rows["bytes sent by all_gather"] == ("predicted 164,160", "164,160 in 7 calls, 0.114 s")
    assert rows["bytes sent by reduce_scatter"] == ("predicted 164,480", "200,000 (+35,520, +21.6%) in 1 call, 0.02 s")
    assert rows["seconds in collectives"] == ("-", "0.25 of 0.9, in the step that was counted"), "the slowest rank's"
    assert rows["seconds of a step"][1] == "0.45 (the first one 2)", "without the step that was counted"
    assert not {name for name in rows if "flags" in name or "broadcast" in name}
    assert data(found)["measured"]["communication"] == both


@pytest.mark.parametrize(("times", "usual"), [([2.0], None), ([2.0, 0.9], "0.9"), ([2.0, 0.5, 0.9], "0.5")])
def test_the_step_that_is_counted_is_no_usual_one(
    make_run: MakeRun, tmp_path: Path, times: list[float], usual: str | None
) -> None:
    reports = [report(at, {}, collectives=rank(all_gather=(1, 64, 0.1)), step_seconds=times) for at in (0, 1)]
    found = verdict(read(make_run(3)), tmp_path, reports)
    rows = {one.name: one.seen for one in measured.check(found.figures, found.expected, found.outcome)}
    assert rows.get("seconds of a step") == (usual and f"{usual} (the first one 2)")


def test_without_a_prediction_what_is_sent_is_told(make_run: MakeRun, tmp_path: Path) -> None:
    reports = [report(at, {}, collectives=rank(alltoall=(2, 100, 0.1))) for at in (0, 1)]
    found = verdict(read(make_run(3)), tmp_path, reports)
    rows = {one.name: (one.planned, one.seen) for one in measured.check(found.figures, "unknown", found.outcome)}
    assert rows["bytes sent by alltoall"] == ("-", "50 in 2 calls, 0.1 s")
    rows = {one.name: (one.planned, one.seen) for one in measured.check(found.figures, found.expected, found.outcome)}
    assert rows["bytes sent by all_gather"] == ("predicted 164,160", "nothing")
    assert rows["bytes sent by alltoall"] == ("predicted 0", "50 in 2 calls, 0.1 s")


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ({}, {"all_reduce": 164480 * 2, "all_gather": 164480}),
        ({"communication_data_type": "fp32"}, {"all_reduce": 164480 * 4, "all_gather": 164480}),
        ({"use_multi_rank_bucket_allreduce": False}, {"reduce": 164480 * 2, "all_gather": 164480}),
        ({"use_multi_rank_bucket_allreduce": False, "reduce_scatter": False},
         {"all_reduce": 164480 * 2, "all_gather": 164480}),
    ],
)  # fmt: skip
def test_settings_of_deepspeed_that_change_what_is_sent(
    make_run: MakeRun, tmp_path: Path, values: dict[str, Any], kinds: dict[str, int]
) -> None:
    folder = make_run(2)
    config = json.loads((folder / "ds_config.json").read_text())
    for name, value in values.items():
        (config if name == "communication_data_type" else config["zero_optimization"])[name] = value
    (folder / "ds_config.json").write_text(json.dumps(config))
    expected = verdict(read(folder), tmp_path, [report(0, {}), report(1, {})]).expected
    assert not isinstance(expected, str)
    assert {kind: one.payload for kind, one in expected.collectives().items()} == kinds
