"""What a smoke-run has not passed without: each essential check that has no result makes the verdict incomplete."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.smoke import many
from zerocfg.smoke.certify import certificate_file
from zerocfg.smoke.certify.current import is_certified
from zerocfg.smoke.certify.result import data
from zerocfg.smoke.judge import instruments, settings, training
from zerocfg.smoke.judge.figures import figures
from zerocfg.smoke.judge.verdict import Verdict, run_checks
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.model.certificate import Check, Command, exit_code_of
from zerocfg.smoke.model.reduction import Kind, Reduction
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.prepare.reduce import reduce
from zerocfg.smoke.smoke import certify
from zerocfg.smoke.text import render
from zerocfg.smoke.worker.report_schema import ABSENT

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import MakeRun

CPU = Device("cpu", "cpu")
ALL = (
    "engine",
    "ZeRO stage",
    "world size",
    "optimizer steps, loss finite",
    "parameters change",
    "saved parameters",
    "loaded by from_pretrained",
)
REPORT: dict[str, Any] = {
    "seen": {"engine": "deepspeed", "stage": 3, "world_size": 2, "dtype": "bf16"},
    "losses": [4.0],
}


def verdict_of(folder: Path, tmp_path: Path, checks: list[Check], failure: str | None = None) -> Verdict:
    run = read(folder)
    outcome = Outcome([dict(REPORT), dict(REPORT)], failure, seconds=3.0)
    verdict = Verdict(run, CPU, reduce(run, CPU, 2, tmp_path), outcome, checks)
    verdict.expected = "nothing was predicted"
    return verdict


def rows(*without: str) -> list[Check]:
    return [Check(name, "1", "1", True) for name in ALL if name not in without]


def test_with_all_of_them_it_passes(make_run: MakeRun, tmp_path: Path) -> None:
    found = verdict_of(make_run(3), tmp_path, rows())
    assert (found.state, found.passed, found.unmeasured) == ("passed", True, [])
    assert data(found)["verdict"] == "passed" and render(found).endswith("passed: 7 checks ok, 0 failed, 3 s\n")


@pytest.mark.parametrize("name", ALL)
def test_without_one_it_is_incomplete(make_run: MakeRun, tmp_path: Path, name: str) -> None:
    folder = make_run(3)
    gone = verdict_of(folder, tmp_path, rows(name))
    broken = verdict_of(folder, tmp_path, [*rows(name), instruments.unmeasured(name, "RuntimeError: x")])
    for found in (gone, broken):
        assert (found.state, found.passed, found.unmeasured) == ("incomplete", False, [name])
        content = data(found)
        assert (content["verdict"], content["passed"], content["unmeasured"]) == ("incomplete", False, [name])
        assert f"\nINCOMPLETE: not measured: {name}; 6 checks ok, 0 failed, 3 s\n" in render(found)
        result = many.Result(folder, found)
        assert many.exit_code([result]) == 3 and "INCOMPLETE" in many.summary([result])
        assert f"not measured: {name}" in many.summary([result], 200)
    failed = verdict_of(folder, tmp_path, [*rows(name), Check("precision", "bf16", "fp32", False)])
    assert failed.state == "failed" and many.exit_code([many.Result(folder, failed)]) == 1
    assert verdict_of(folder, tmp_path, rows(name), failure="killed").state == "failed"


def test_a_certificate_says_it_and_does_not_count(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(3)
    found = verdict_of(folder, tmp_path, rows())
    assert certify(found, 3) is not None and is_certified(found.run)
    found = verdict_of(folder, tmp_path, rows("saved parameters"))
    found.outcome.reports[1]["instruments"] = {"saved weights": "OSError: gone", "checksums": ""}
    assert certify(found, 3) is not None and not is_certified(found.run)
    seen = certificate_file.read(folder / "smoke.json").result
    assert (seen.state, seen.passed, seen.unmeasured) == ("incomplete", False, ("saved parameters",))
    assert (seen.instruments, seen.not_measured) == (("checksums",), {"saved weights": "OSError: gone (rank 1)"})


def test_a_certificate_that_contradicts_itself_failed(make_run: MakeRun, tmp_path: Path) -> None:
    content = verdict_of(make_run(3), tmp_path, rows()).run.lock.content
    good = data(verdict_of(tmp_path / "out" / "tiny", tmp_path, rows())) | {"date": "2026-11-26", "versions": {}}
    assert content and certificate_file.smoke_result(good).state == "passed"
    assert certificate_file.smoke_result(good | {"passed": False}).state == "failed"
    assert certificate_file.smoke_result(good | {"verdict": "incomplete"}).state == "failed"
    assert certificate_file.smoke_result(good | {"verdict": "failed"}).state == "failed"
    assert certificate_file.smoke_result(good | {"verdict": "incomplete", "passed": False}).state == "incomplete"
    del good["verdict"]  # from before there were verdicts
    assert certificate_file.smoke_result(good).state == "passed"


def test_parameters_have_to_change_and_not_only_to_be_looked_at(make_run: MakeRun, tmp_path: Path) -> None:
    idle = Check("parameters change", "yes", "no tensor; 3 optimizer steps were skipped", None)
    found = verdict_of(make_run(3), tmp_path, [*rows("parameters change"), idle])
    assert found.unmeasured == ["parameters change"]
    found.command = Command("bash train.sh")  # whose learning rate is its own
    assert found.state == "passed"
    found.checks[-1] = replace(idle, measured=False)
    assert found.state == "incomplete"


def test_what_is_only_noted_is_measured(make_run: MakeRun, tmp_path: Path) -> None:
    """Of a command without a plan the engine is shown, and compared with nothing."""
    noted = [replace(row, planned="-", ok=None) if row.name in ALL[:3] else row for row in rows()]
    assert verdict_of(make_run(3), tmp_path, noted).state == "passed"


def test_a_run_that_saves_nothing_needs_no_weights(make_run: MakeRun, tmp_path: Path) -> None:
    found = verdict_of(make_run(3), tmp_path, rows("saved parameters", "loaded by from_pretrained"))
    assert found.unmeasured == ["saved parameters", "loaded by from_pretrained"]
    found.reduced.changes.append(Reduction(Kind.SAVING, why="asked for"))
    assert found.state == "passed"


def test_only_deepspeed_has_a_stage(make_run: MakeRun, tmp_path: Path) -> None:
    found = verdict_of(make_run(None), tmp_path, rows("ZeRO stage"))
    assert found.unmeasured == ["ZeRO stage"], "the engine that came up is DeepSpeed's"
    for report in found.outcome.reports:
        report["seen"] = {"engine": "ddp", "world_size": 2, "dtype": "bf16"}
    assert found.state == "passed"


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ([], 0),
        (["passed"], 0),
        (["passed", "incomplete"], 3),
        (["incomplete", "failed"], 1),
        (["failed", "problem"], 2),
        (["incomplete", "problem", "passed"], 2),
    ],
)
def test_exit_codes(states: list[Any], code: int) -> None:
    assert exit_code_of(states) == code


def test_a_planned_stage_is_asked_for_where_no_engine_was_read(make_run: MakeRun, tmp_path: Path) -> None:
    found = verdict_of(make_run(3), tmp_path, rows("ZeRO stage"))
    for report in found.outcome.reports:
        report["seen"] = {"world_size": 2}
    assert found.unmeasured == ["ZeRO stage"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"passed": False},
        {"failure": {"message": "killed"}},
        {"unmeasured": ["engine"]},
        {"checks": [{"name": "engine", "planned": "1", "seen": "2", "ok": False}]},
        {"run": "another"},
    ],
)
def test_a_certificate_with_a_word_against_it_does_not_count(
    wrong: dict[str, Any], make_run: MakeRun, tmp_path: Path
) -> None:
    found = verdict_of(make_run(3), tmp_path, rows())
    assert certify(found, 3) is not None and is_certified(found.run)
    path = found.run.path / "smoke.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | wrong))
    assert not is_certified(found.run)


def test_the_reason_is_that_of_a_rank_that_has_one() -> None:
    """A rank that only went without another one has none of its own; later reasons replace no earlier one."""
    reports: list[Any] = [
        {"instruments": {"checksums": ABSENT, "loss": "", "rate": "first"}},
        {"instruments": {"checksums": "OSError: gone", "loss": "", "rate": "second"}},
    ]
    assert instruments.broken(reports) == {"checksums": "OSError: gone (rank 1)", "rate": "first (rank 0)"}
    assert instruments.broken(reports[1:]) == {"checksums": "OSError: gone", "rate": "second"}


def test_an_instrument_that_broke_has_a_row_and_no_figures(make_run: MakeRun, tmp_path: Path) -> None:
    run = read(make_run(3))
    reduced = reduce(run, CPU, 2, tmp_path)
    counted = {"all_gather": {"calls": 2, "bytes": 8, "seconds": 0.1, "largest": 4}}
    measured = {"memory": {"step 1": {"rss": 5}}, "collectives": counted, "timeline": [[0.0, 8, "forward"]]}
    report: Any = REPORT | {"rates": [0.1], "step_seconds": [1.0], **measured}
    broken: Any = report | {"instruments": {"memory recorder": "OSError: x", "collective counter": "OSError: y"}}
    whole, part = (figures(reduced, CPU, [one] * 2) for one in (report, broken))
    assert whole.timeline and whole.memory == [measured["memory"]] * 2 and whole.collectives == [counted] * 2
    assert part.memory == [{}, {}] and part.collectives == [] and part.timeline == []
    checks = run_checks(run, reduced, Outcome([broken] * 2), 1)
    row = next(one for one in checks if one.name == "memory recorder")
    assert row.seen == "not measured: OSError: x (rank 0)" and not row.measured


def test_a_setting_that_was_not_read_back_is_not_held_against_the_plan(make_run: MakeRun, tmp_path: Path) -> None:
    run = read(make_run(3))
    reduced = reduce(run, CPU, 2, tmp_path)
    held: dict[str, Any] = {"parameters": 10, "trainable": 10, "tensors": 1, "experts": 0}
    seen = {"engine": "deepspeed", "stage": 3, "world_size": 2, "held": held}

    def stage(seen: dict[str, Any], broken: str) -> Check:
        report: Any = {"seen": seen, "instruments": {broken: "KeyError: x"}}
        return next(one for one in settings.check(run, reduced, [report, report]) if one.name == "ZeRO stage")

    lost = stage({**seen, "stage": None}, "read-back of the stage")
    assert (lost.ok, lost.measured, lost.seen) == (None, False, "not measured: KeyError: x (rank 0)")
    assert stage(seen, "read-back of the streams").ok is True, "what was read is judged, whatever else broke"
    assert stage({**seen, "stage": 2}, "read-back of the streams").ok is False
    assert stage({**seen, "stage": None}, "checksums").ok is False, "an engine without a stage, that was asked"


def test_what_a_broken_loss_or_rate_leaves_open() -> None:
    report: Any = {
        "seen": {"dtype": "fp32"}, "losses": [4.0, 5.0], "rates": [0.1, 0.1], "step_seconds": [1.0, 1.0],
        "sums": {"a": 1}, "changed": 1, "instruments": {},
    }  # fmt: skip
    states = {one.name: (one.ok, one.measured) for one in training.check([report], 2)}
    assert states["loss falls"] == (False, True) and states["optimizer steps, loss finite"] == (True, True)
    broken = report | {"instruments": {"learning rate": "OSError: x"}}
    states = {one.name: (one.ok, one.measured) for one in training.check([broken], 2)}
    assert states["loss falls"] == (None, False) and states["parameters change"] == (True, True)
    states = {one.name: (one.ok, one.measured) for one in training.check([broken | {"step_seconds": [1.0]}], 2)}
    assert states["optimizer steps, loss finite"] == (False, True), "steps are counted without a rate, too"
    broken = report | {"losses": [], "instruments": {"loss": "OSError: x"}}
    states = {one.name: (one.ok, one.measured) for one in training.check([broken], 2)}
    assert states == {"optimizer steps, loss finite": (None, False), "parameters change": (True, True)}
