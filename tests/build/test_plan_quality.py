"""The benchmark of plan quality without a card: rule, predictions, the program on a processor, statistics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.plan import compare, gpu, predict  # noqa: E402
from tests import warm  # noqa: E402
from zerocfg.resolve.search.choice import MICRO, OPTIMIZER_DEVICE, PARAM_DEVICE, STAGE, STEPS  # noqa: E402

GPU = ROOT / "benchmarks" / "plan" / "gpu.py"
PREDICTIONS: dict[str, Any] = json.loads(predict.FILE.read_text())
TRIED = ("qwen2.5-0.5b-z0-m2", "llama-3.2-3b-z3-m2-ckpt", "tinyllama-1.1b-z3-cpu2-m8")


# -- predictions -------------------------------------------------------------------------------------------------------


def test_the_chosen_plan_is_measured_first_and_every_way_is_covered() -> None:
    for model, one in PREDICTIONS["models"].items():
        plans = {plan["name"]: plan for plan in one["plans"]}
        measured = [plans[name] for name in one["measured"]]
        assert len(measured) == len(set(one["measured"])) <= 24, model
        assert one["measured"][0] == one["chosen"] and plans[one["chosen"]]["own"]
        # "tight" was the word for what is likely or unlikely, when these were made.
        assert {plan["verdict"] for plan in measured} <= {"fits", "likely", "tight"}
        settings = [plan["settings"] for plan in measured]
        assert {one[STAGE] for one in settings} == {0, 1, 2, 3}
        assert {one[MICRO] for one in settings} == {1, 2, 4, 8}
        assert {one[predict.RECOMPUTE] for one in settings} == {True, False}
        assert sum(predict.offloads(one) for one in settings) == 3


def test_every_measured_plan_has_the_config_that_a_build_emits() -> None:
    for one in PREDICTIONS["models"].values():
        for plan in one["plans"]:
            if plan["name"] not in one["measured"]:
                assert "deepspeed" not in plan
                continue
            config, settings = plan["deepspeed"], plan["settings"]
            zero = config["zero_optimization"]
            assert zero["stage"] == settings[STAGE]
            assert (config[MICRO], config[STEPS]) == (settings[MICRO], settings[STEPS])
            assert config[MICRO] * config[STEPS] == PREDICTIONS["global_batch"]
            assert config["bf16"] == {"enabled": True} and "auto" not in json.dumps(config)
            for part in ("offload_optimizer", "offload_param"):
                place = settings[f"zero_optimization.{part}.device"]
                assert zero.get(part, {}).get("device", "none") == place


def row(stage: int, micro: int, seconds: float, *, own: bool = False, verdict: str = "fits", cpu: bool = False) -> Any:
    settings = {
        STAGE: stage,
        OPTIMIZER_DEVICE: "cpu" if cpu else "none",
        PARAM_DEVICE: "none",
        MICRO: micro,
        predict.RECOMPUTE: False,
    }
    return {"settings": settings, "own": own, "verdict": verdict, "compared_seconds": seconds}


def test_the_rule_takes_ways_then_micro_batches_then_a_likely_one_then_rivals() -> None:
    rows = [
        row(0, 1, 1.00, own=True),
        row(0, 2, 1.01),
        row(0, 4, 1.02),
        row(1, 1, 1.03),
        row(2, 1, 9.0, cpu=True),
        row(0, 8, 1.00, verdict="likely"),
        row(3, 8, 1.00, verdict="does not fit"),
        row(1, 2, 1.04),
        row(2, 2, 9.1, cpu=True),
    ]
    assert predict.to_measure(rows, 1) == [0]
    assert set(predict.to_measure(rows, 3)) == {0, 3, 4}  # each way once
    # Micro batches: 1 is there, 2 and 4 from stage 0, and 8 has none that fits.
    assert set(predict.to_measure(rows, 6)) == {0, 1, 2, 3, 4, 5}
    assert set(predict.to_measure(rows, 7)) == {0, 1, 2, 3, 4, 5, 7}
    assert set(predict.to_measure(rows, 24)) == {0, 1, 2, 3, 4, 5, 7}  # offloaded rivals are not tried
    assert predict.to_measure(rows, 24)[0] == 0 and predict.to_measure(rows, 24)[-1] == 5


def test_a_build_still_chooses_what_it_is_asked_for(tmp_path: Path) -> None:
    """The sources that predict.py writes build, open and named, and the named plan is the one that comes out."""
    found = predict.built(predict.write_sources(tmp_path, "qwen2.5-0.5b"))
    assert found.plan is not None and len(found.plan.considered) > 40
    named = {
        STAGE: 3,
        OPTIMIZER_DEVICE: "cpu",
        PARAM_DEVICE: "none",
        MICRO: 4,
        STEPS: 2,
        predict.RECOMPUTE: True,
    }
    config = predict.emitted(tmp_path, "qwen2.5-0.5b", named)
    assert config["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    assert predict.name_of("m", named) == "m-z3-cpu-m4-ckpt"


# -- the program of the card -------------------------------------------------------------------------------------------


def test_it_imports_nothing_of_zerocfg() -> None:
    code = "import sys; sys.argv = ['gpu.py', '--help']; import runpy\n"
    code += f"try: runpy.run_path({str(GPU)!r}, run_name='__main__')\nexcept SystemExit: pass\n"
    code += "print([name for name in sys.modules if name.split('.')[0] in ('zerocfg', 'pydantic', 'benchmarks')])"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_chosen_plans_come_first_and_offload_last() -> None:
    cases = gpu.cases_of(PREDICTIONS, small=False)
    assert {case["case"] for case in cases} == {
        name for one in PREDICTIONS["models"].values() for name in one["measured"]
    }
    assert [case["case"] for case in cases[:3]] == [one["chosen"] for one in PREDICTIONS["models"].values()]
    assert [case["offload"] for case in cases] == [False] * (len(cases) - 9) + [True] * 9


def test_the_sweep_is_expected_to_end_within_two_calls() -> None:
    """By the predicted times: a plan's start, its warm-up and its timed steps. A call ends after nine minutes, the next
    one goes on; a third of it is offload to a host of which nobody knows how fast it is."""
    total = 0.0
    for one in PREDICTIONS["models"].values():
        plans = {plan["name"]: plan for plan in one["plans"]}
        for name in one["measured"]:
            step, offload = plans[name]["step_seconds"], predict.offloads(plans[name]["settings"])
            timed = gpu.LEAST_OFFLOAD if offload else min(gpu.MOST, max(gpu.LEAST, gpu.ENOUGH_S / step + 1))
            start = 3.5 + (one["parameters"] * 4e-9 if offload else 0.0)  # 12 bytes each, page-locked at 3 GB/s
            total += start + step * (timed + (gpu.WARM_UP_OFFLOAD if offload else gpu.WARM_UP))
    assert total < 2 * 450


@pytest.mark.libs
def test_three_plans_through_the_code_path_of_the_card(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    out = tmp_path / "out.jsonl"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [warm.python(), str(GPU), "--out", str(out), "--device", "cpu", "--tiny", "--case-s", "150"]
    done = subprocess.run([*command, "--only", *TRIED], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["case"] for line in lines] == ["machine", *TRIED, "end"]
    for line in lines[1:-1]:
        assert line["status"] == "ok", line.get("error") or line.get("log")
        assert gpu.LEAST_OFFLOAD <= len(line["step_seconds"]) <= gpu.MOST and min(line["step_seconds"]) > 0
        assert line["losses"][-1] < line["losses"][0]  # it trains
        assert line["tokens"] == PREDICTIONS["global_batch"] * gpu.TINY_SEQUENCE
    seen = [line["engine"] for line in lines[1:-1]]
    assert seen == [
        {"stage": 0, "micro_batch": 2, "steps": 4, "checkpointing": False},
        {"stage": 3, "micro_batch": 2, "steps": 4, "checkpointing": True},
        {"stage": 3, "micro_batch": 8, "steps": 1, "checkpointing": False},
    ]
    found = compare.compared(PREDICTIONS, compare.load(out))
    assert found["tiny"] and found["kept"] is None and "trial of the program" in compare.claim(found)


def test_a_plan_that_takes_too_long_or_dies_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(case: Any, device: str, path: Path) -> None:
        path.with_name("half").write_text(json.dumps({"status": "failed", "step_seconds": [1.0]}))
        path.with_name("half").replace(path)
        time.sleep(60)
        path.write_text(json.dumps({"status": "failed", "step_seconds": [1.0, 2.0]}))

    def broken(*_: object) -> None:
        raise RuntimeError("nothing works")

    monkeypatch.setattr(gpu, "child", slow)
    with monkeypatch.context() as patched:
        # By a clock that stands still until there is something to keep.
        clock = SimpleNamespace(monotonic=lambda: 1.0 * (tmp_path / "report.json").exists(), sleep=time.sleep)
        patched.setattr(gpu, "time", clock)
        found = gpu.supervise({"case": "x"}, "cpu", tmp_path, 1.0)
    assert (found["case"], found["status"], found["step_seconds"]) == ("x", "timeout", [1.0])
    monkeypatch.setattr(gpu, "child", broken)
    found = gpu.supervise({"case": "x"}, "cpu", tmp_path, 20)
    assert found["status"] == "failed" and "nothing works" in found["log"]


# -- statistics --------------------------------------------------------------------------------------------------------


def test_rank_correlation_with_ties() -> None:
    assert compare.ranks([3.0, 1.0, 2.0, 2.0]) == [4.0, 1.0, 2.5, 2.5]
    assert compare.spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1.0)
    assert compare.spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert compare.spearman([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx(0.8)  # 1 - 6 x 4 / (5 x 24)
    assert compare.spearman([1, 1, 1], [1, 2, 3]) is None and compare.spearman([1, 2], [1, 2]) is None


def predictions() -> dict[str, Any]:
    def plan(name: str, seconds: float, own: bool = False) -> dict[str, Any]:
        return {"name": name, "own": own, "verdict": "fits", "step_seconds": seconds, "compared_seconds": seconds}

    plans = [plan("a", 1.0, True), plan("b", 1.1), plan("c", 1.2), plan("d", 1.3)]
    model = {"chosen": "a", "seconds_to_choose": 1.5, "measured": ["a", "b", "c", "d"], "plans": [*plans, plan("e", 9)]}
    return {
        "formulas": "0" * 16,
        "hardware": "1xH200",
        "sequence": 100,
        "global_batch": 10,
        "cores": 2,
        "models": {"m": model},
    }


def measured(**seconds: float) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [{"case": "machine", "status": "ok", "card": "a card", "formulas": "0" * 16}]
    lines += [
        {"case": name, "status": "ok", "step_seconds": [one, one, 5 * one], "wall_s": 10.0}
        for name, one in seconds.items()
    ]
    return lines


def outcome(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return compare.compared(predictions(), {line["case"]: line for line in lines})


def test_regret_of_the_chosen_plan() -> None:
    found = outcome(measured(a=1.0, b=0.8, c=1.5, d=2.0))
    model = found["models"][0]
    assert model["regret"] == pytest.approx(0.2) and model["best"] == "b"  # 1000 tokens/s of 1250
    assert model["spearman"] == pytest.approx(0.8) and model["sweep_seconds"] == 40
    assert [row["rank"] for row in model["rows"]] == [2, 1, 3, 4]
    assert found["kept"] is False and "does not hold" in compare.claim(found) and "20.0%" in compare.claim(found)
    found = outcome(measured(a=1.0, b=0.96, c=1.5, d=2.0))
    assert found["kept"] is True and "**The claim holds:**" in compare.claim(found)


def test_what_was_not_measured_leaves_the_claim_open() -> None:
    lines = measured(a=1.0, b=0.99, c=1.5)
    assert outcome(lines)["kept"] is None
    assert outcome([*lines, {"case": "d", "status": "not reached"}])["kept"] is None
    oom = outcome([*lines, {"case": "d", "status": "oom", "wall_s": 3.0}])  # a result: it cannot be the best
    assert oom["kept"] is True and oom["models"][0]["rows"][3]["status"] == "oom" and oom["models"][0]["ran"] == 3
    assert outcome(measured(b=1.0, c=1.5, d=2.0))["models"][0]["regret"] is None  # the chosen plan did not run
    assert outcome([{**line, "formulas": "1" * 16} for line in lines])["same_formulas"] is False


def run_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *results: str) -> Path:
    given = tmp_path / "predictions.json"
    given.write_text(json.dumps(predictions()))
    command = ["compare.py", *results, "--predictions", str(given), "--write", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", command)
    assert compare.main() == 0
    return tmp_path / "out"


def test_the_report_says_not_run_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = run_compare(tmp_path, monkeypatch)
    assert {path.name for path in out.iterdir()} == {"plan.json", "plan.md"}
    text = (out / "plan.md").read_text()
    assert "**Not run yet.**" in text and "holds" not in text and "0 of 4" in text


def test_tables_and_picture_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "run.jsonl"
    lines = [*measured(a=1.0, b=0.8, c=1.5, d=2.0), {"case": "end", "status": "ok", "sweep_seconds": 41.0}]
    results.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = run_compare(tmp_path, monkeypatch, str(results))
    text = (out / "plan.md").read_text()
    assert "| m | a | b | 20.0% | 0.80 | 0.80 | 1.5 | 40 | 4 of 4 |" in text and "The whole sweep took 41 s" in text
    assert "a card" in text and (out / "plan.svg").read_text().startswith("<?xml")


def test_the_committed_report_is_of_the_committed_predictions() -> None:
    kept = json.loads((ROOT / "benchmarks" / "plan" / "results" / "plan.json").read_text())
    assert kept["formulas"] == PREDICTIONS["formulas"] and not kept["tiny"]


def test_without_a_card_the_check_says_so_and_succeeds(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu" / "run.py"), "plan"]
    # No nvidia-smi is found on an empty path: the same on a machine with a card.
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": str(tmp_path)}
    )
    assert (done.returncode, done.stdout) == (0, "plan: not run: no NVIDIA card here\n")
