"""What ranks measure, what was predicted of them, and the rows that hold one beside the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from zerocfg.smoke.certify.result import data
from zerocfg.smoke.judge import measured
from zerocfg.smoke.judge.prediction import expect, largest_expected
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.prepare.reduce import reduce
from zerocfg.smoke.worker import memory
from zerocfg.smoke.worker.report import Report

from .conftest import PARAMETERS
from .launched import CPU, H100, MIB, no_memory, report, verdict
from .standin import until

if TYPE_CHECKING:
    from zerocfg.smoke.model.certificate import Check

    from .conftest import MakeRun

linux = pytest.mark.skipif(sys.platform != "linux", reason="what the kernel counts is read from /proc")


def rows(found: list[Check]) -> dict[str, tuple[str, str, bool | None]]:
    return {one.name: (one.planned, one.seen, one.ok) for one in found}


def test_a_processor_counts_no_tensors(make_run: MakeRun, tmp_path: Path) -> None:
    peaks = {"init": 200, "forward": 300, "own": 900, "save": 250}
    found = verdict(read(make_run(3)), tmp_path, [report(0, peaks), report(1, peaks | {"step": 350})])
    seen = rows(measured.check(found.figures, found.expected, found.outcome))
    assert seen["host memory of a rank (RSS)"] == (
        "-",
        "0.29 GiB to 0.34 GiB; 0.20 GiB to 0.24 GiB since the model was made",
        None,
    )
    assert seen["seconds of a step"] == ("-", "0.5 (the first one 2)", None), "the median of those after the first"
    assert seen["tokens a second, all ranks"] == ("-", "512", None), "2 samples x 2 steps x 2 ranks x 32 tokens"
    assert "peak allocated" not in seen
    content = data(found)["measured"]
    assert content["memory"][0]["forward"]["rss"] == 300 * MIB
    assert content["memory"][0]["forward"]["allocated"] is None
    assert "own" not in content["memory"][0], "what the smoke-run itself took"
    assert content["peak_memory_bytes"] == [300 * MIB, 350 * MIB]
    assert content["timeline"]["of"] == "rss" and len(content["timeline"]["points"]) == 4


def test_a_card_is_held_against_the_prediction(make_run: MakeRun, tmp_path: Path) -> None:
    peaks = {"init": 10, "forward": 60, "backward": 70, "step": 65, "save": 20}
    reports = [report(rank, peaks, card=True, device_memory=80 << 30) for rank in (0, 1)]
    found = verdict(read(make_run(3)), tmp_path, reports, H100)
    expected = found.expected
    assert not isinstance(expected, str) and expected.prediction.complete and expected.time is not None
    seen = rows(measured.check(found.figures, expected, found.outcome))
    planned, words, ok = seen["peak allocated"]
    apart = 70 * MIB / expected.allocated.expected - 1
    assert ok is None and planned.startswith("predicted ") and words.startswith(f"70.0 MiB ({apart:+.1%}")
    assert seen["peak reserved"][1].startswith("0.14 GiB")
    assert {"seconds of a step", "tokens a second, all ranks", "TFLOP/s of a rank"} <= seen.keys()
    assert all(one[2] is None for one in seen.values()), "a prediction that is wrong fails no run"
    assert data(found)["measured"]["predicted"]["allocated"][1] == expected.allocated.expected


def test_memory_that_ran_out_fails_with_the_prediction_beside_it(make_run: MakeRun, tmp_path: Path) -> None:
    reports = [report(0, {"init": 10}, card=True), no_memory(1, "card", "backward")]
    found = verdict(read(make_run(3)), tmp_path, reports, H100, failure="OutOfMemoryError: CUDA out of memory")
    planned, seen, ok = rows(measured.check(found.figures, found.expected, found.outcome))["memory is enough"]
    assert ok is False and planned.endswith("predicted")
    assert seen == "rank 1 ran out of the card's memory in backward, when it held 0.29 GiB"
    assert not measured.ran_out(verdict(read(tmp_path / "out" / "tiny"), tmp_path, [report(0, {})]).outcome)


def test_the_prediction_is_of_what_really_runs(make_run: MakeRun, tmp_path: Path) -> None:
    """Ranks, stage and offload are those of the reduced configs; operations are 6 a parameter and token, at least."""
    run = read(make_run(3))
    reduced = reduce(run, CPU, 2, tmp_path)
    found = expect(reduced, CPU, run.consumer)
    assert not isinstance(found, str) and found.time is None, "nobody knows a processor's rates"
    assert found.setup.options.world_size == 2 and found.setup.workload is not None
    assert found.setup.workload.sequence_length == 32 and found.setup.workload.micro_batch == 2
    tokens = 2 * 2 * 32
    assert found.flops is not None and 6 * PARAMETERS * tokens <= found.flops < 8 * PARAMETERS * tokens
    larger = expect(reduced, CPU, run.consumer, 16)
    assert not isinstance(larger, str) and larger.allocated.expected > found.allocated.expected


def test_the_batch_that_is_expected_to_fit(make_run: MakeRun, tmp_path: Path) -> None:
    run = read(make_run(3))
    reduced = reduce(run, CPU, 2, tmp_path)
    size = largest_expected(reduced, CPU, run.consumer, 50 * MIB)
    assert size is not None and size > 1
    below, above = (expect(reduced, CPU, run.consumer, one) for one in (size, size + 1))
    assert not isinstance(below, str) and not isinstance(above, str)
    assert below.allocated.expected <= 50 * MIB < above.allocated.expected
    seen = largest_expected(reduced, CPU, run.consumer, 250 * MIB, (size, 250 * MIB))
    assert seen == size, "what was seen counts, the prediction only tells how it grows"


def test_ddp_in_16_bit_is_predicted_from_below(make_run: MakeRun, tmp_path: Path) -> None:
    run = read(make_run(None))
    found = expect(reduce(run, CPU, 2, tmp_path), CPU, run.consumer)
    assert not isinstance(found, str) and not found.prediction.complete


@linux
def test_a_recorder_tells_phases_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(memory, "time", SimpleNamespace(monotonic=lambda: now))
    assert memory._reset_peak(), "what this process held before, for other tests, is no part of it"
    content = Report(tmp_path)
    recorder = memory.Recorder(content, "cpu")
    recorder.enter("init")

    def sampled() -> bool:
        content.write()
        return bool(content.content["timeline"])

    until(sampled)
    ballast = bytearray(256 * MIB)
    ballast[::4096] = b"x" * len(ballast[::4096])
    now = 107.5
    recorder.enter("forward")
    del ballast
    recorder.enter("backward")
    content.write()
    assert set(content.content["memory"]) == {"init", "forward", "backward"}, "also the one that is not over"
    recorder.enter("forward")
    recorder.stop()
    found, start = content.content["memory"], content.content["memory_start"]["rss"]
    assert found["init"]["rss"] >= start + 200 * MIB
    assert found["backward"]["rss"] <= found["init"]["rss"] - 50 * MIB, "the peak begins anew with each phase"
    assert found["forward"]["times"] == 2 and found["init"]["seconds"] == 7.5
    assert all(one["allocated"] is None and one["pinned"] is None for one in found.values())
    points = content.content["timeline"]
    assert [point[0] for point in points] == sorted(point[0] for point in points)
    assert max(size for _, size, phase in points if phase == "init") == found["init"]["rss"]


def test_a_timeline_is_bounded_and_keeps_its_peaks() -> None:
    points = [memory.Point(float(at), 7 if at == 33 else 1, "forward") for at in range(memory.POINTS)]
    thinned = memory._thinned(points)
    assert len(thinned) == memory.POINTS // 2
    assert memory.Point(33.0, 7, "forward") in thinned


@linux
def test_a_limit_of_the_host_is_real(tmp_path: Path) -> None:
    program = (
        "from zerocfg.smoke.worker import memory\n"
        "memory.limit(128 << 20, 'cpu')\n"
        "kept = bytearray(32 << 20); print('32 fit', flush=True)\n"
        "more = bytearray(256 << 20)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "32 fit\n" and "MemoryError" in done.stderr
    done = subprocess.run(
        [sys.executable, "-c", program.replace("128 << 20", "1 << 20")], capture_output=True, text=True, cwd=tmp_path
    )
    assert "the libraries alone take" in done.stderr
