"""One run under several ZeRO stages: what is changed, the table, the picture, and one real comparison."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.cli.screens.plan_picture import PictureError
from zerocfg.cli.screens.smoke_picture import draw
from zerocfg.smoke import compare
from zerocfg.smoke.judge.verdict import Verdict
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.model.reduction import Reduced
from zerocfg.smoke.prepare import strategies
from zerocfg.smoke.prepare.folder import RunFolder, read
from zerocfg.smoke.prepare.reduce import reduce
from zerocfg.smoke.smoke import Options

from .launched import CPU, H100, no_memory, report, verdict

if TYPE_CHECKING:
    from .conftest import MakeRun

PEAKS = {"init": 110, "forward": 160, "backward": 170, "step": 165, "save": 120}


def test_ways_are_named_in_order() -> None:
    assert strategies.parse("0, 3,ddp,0") == ["0", "3", "ddp"]
    for text in ("4", "", "0,zero"):
        with pytest.raises(SmokeError, match="it takes 0, 1, 2, 3, ddp"):
            strategies.parse(text)


def offloaded(folder: Path, **devices: str) -> RunFolder:
    run = read(folder)
    assert run.deepspeed is not None
    for name, device in devices.items():
        run.deepspeed["zero_optimization"][name] = {"device": device}
        run.plan[f"zero_optimization.{name}.device"] = device
    return run


def test_a_stage_takes_only_what_it_can(make_run: MakeRun) -> None:
    run = offloaded(make_run(3), offload_param="cpu", offload_optimizer="nvme")
    before = copy.deepcopy((run.lock, run.accelerate, run.deepspeed))
    two, words = strategies.with_strategy(run, "2")
    assert two.deepspeed is not None and two.accelerate is not None
    zero = two.deepspeed["zero_optimization"]
    assert zero["stage"] == two.plan["zero_optimization.stage"] == 2
    assert "offload_param" not in zero and zero["offload_optimizer"] == {"device": "cpu"}
    assert two.accelerate["deepspeed_config"]["zero3_init_flag"] is False
    assert any("offload_param (cpu) is dropped" in one for one in words) and any("nvme to cpu" in one for one in words)
    none, words = strategies.with_strategy(run, "0")
    assert none.deepspeed is not None and "offload_optimizer" not in none.deepspeed["zero_optimization"]
    assert len(words) == 2
    three, words = strategies.with_strategy(run, "3")
    assert words == [] and three.deepspeed == run.deepspeed
    assert (run.lock, run.accelerate, run.deepspeed) == before, "the run itself stays"


def test_without_deepspeed(make_run: MakeRun) -> None:
    plain, words = strategies.with_strategy(read(make_run(3)), "ddp")
    assert plain.deepspeed is None and plain.accelerate is not None
    assert plain.accelerate["distributed_type"] == "MULTI_GPU" and plain.accelerate["mixed_precision"] == "bf16"
    assert "deepspeed_config" not in plain.accelerate and plain.plan["engine"] == "ddp" and words


def test_deepspeed_for_a_run_without_it(make_run: MakeRun) -> None:
    back, words = strategies.with_strategy(read(make_run(None)), "2")
    assert back.deepspeed is not None and back.deepspeed["zero_optimization"] == {"stage": 2}
    assert back.deepspeed["bf16"] == {"enabled": True} and back.deepspeed["train_micro_batch_size_per_gpu"] == 2
    assert "DeepSpeed instead of DDP" in words[0]


def comparison(
    run: RunFolder, tmp_path: Path, ways: list[str], device: Any = CPU, **losses: float
) -> compare.Comparison:
    def launched(changed: RunFolder, options: Options) -> Verdict:
        stage = str(changed.plan.get("zero_optimization.stage", "ddp"))
        last = losses.get(f"of_{stage}", 4.0)
        reports = [report(rank, PEAKS, device is H100, losses=[4.2, last]) for rank in (0, 1)]
        return verdict(changed, tmp_path, reports, device)

    def pin(changed: RunFolder, options: Options) -> Reduced:
        return reduce(changed, device, 2, tmp_path)

    return compare.compare(run, ways, Options(), launched, pin)


def test_all_ways_train_the_same(make_run: MakeRun, tmp_path: Path) -> None:
    found = comparison(read(make_run(3)), tmp_path, ["1", "2", "3"])
    models = [row.verdict.reduced.model for row in found.rows if row.verdict is not None]
    assert len(models) == 3 and all(model == models[0] for model in models)
    text = compare.render(found)
    assert text.splitlines()[0] == "tiny: llama of 82.2k parameters, micro batch 2 x 32 tokens, 2 ranks on CPU"
    assert "The losses of ZeRO-1 and ZeRO-2 after the last step agree" in text
    assert "Another loss is expected: ZeRO-3 makes the model in shards" in text
    content = json.loads(json.dumps(found.data()))
    assert [row["way"] for row in content["rows"]] == ["1", "2", "3"] and content["losses_agree"] is True


def test_the_largest_batch_of_each_stage_costs_no_launch_twice(make_run: MakeRun, tmp_path: Path) -> None:
    launches: list[tuple[int, int]] = []

    def launched(changed: RunFolder, options: Options) -> Verdict:
        stage, batch = changed.plan["zero_optimization.stage"], changed.plan["train_micro_batch_size_per_gpu"]
        launches.append((stage, batch))
        if batch > 4 + stage:
            return verdict(changed, tmp_path, [no_memory(0, "host"), report(1, {})], failure="RuntimeError: no memory")
        return verdict(changed, tmp_path, [report(rank, PEAKS) for rank in (0, 1)])

    run = read(make_run(3))
    bounds = {"upper": 32, "launches": None}
    found = compare.compare(
        run, ["1", "2"], Options(), launched, lambda one, _: reduce(one, CPU, 2, tmp_path), search=bounds
    )
    assert [row.batches.largest for row in found.rows if row.batches is not None] == [5, 6]
    assert len(set(launches)) == len(launches)
    text = compare.render(found).splitlines()
    assert next(line for line in text if line.startswith("ZeRO-2")).endswith(" 6")
    assert "largest batch" in compare.render(found)


def test_losses_that_should_agree_and_do_not(make_run: MakeRun, tmp_path: Path) -> None:
    found = comparison(read(make_run(3)), tmp_path, ["1", "2"], of_2=3.0)
    assert not found.good and "do NOT agree" in compare.render(found)
    other = comparison(read(tmp_path / "out" / "tiny"), tmp_path, ["1", "2", "0"], of_0=3.0)
    assert other.good, "ZeRO-0 in 16 bit begins with an empty step"


def test_a_stage_without_enough_memory_is_a_row(make_run: MakeRun, tmp_path: Path) -> None:
    run = read(make_run(3))

    def launched(changed: RunFolder, options: Options) -> Verdict:
        if changed.plan["zero_optimization.stage"] == 0:
            reports = [no_memory(0, "card"), report(1, {"init": 10}, card=True)]
            return verdict(changed, tmp_path, reports, H100, failure="OutOfMemoryError: CUDA out of memory")
        return verdict(changed, tmp_path, [report(rank, PEAKS, card=True) for rank in (0, 1)], H100)

    found = compare.compare(run, ["0", "2"], Options(), launched, lambda one, _: reduce(one, H100, 2, tmp_path))
    assert [row.ended for row in found.rows] == [False, True] and not found.good
    assert "ZeRO-0 failed: rank 0 ran out of the card's memory" in compare.render(found)
    assert "predicted" in compare.render(found)


@pytest.mark.parametrize(("device", "suffix"), [(CPU, ".png"), (H100, ".svg")])
def test_the_picture(device: Any, suffix: str, make_run: MakeRun, tmp_path: Path) -> None:
    found = comparison(read(make_run(3)), tmp_path, ["0", "2", "3"], device)
    path = tmp_path / f"profile{suffix}"
    draw(found, path)
    first = path.read_bytes()
    draw(found, path)
    assert path.read_bytes() == first, "the same measurements give the same file"
    if suffix == ".svg":
        assert b"<svg" in first
    with pytest.raises(PictureError, match="ends in"):
        draw(found, tmp_path / "profile.txt")


def test_what_is_asked_for_wrongly(make_run: MakeRun) -> None:
    folder = str(make_run(3))
    zerocfg = [sys.executable, "-m", "zerocfg", "smoke", folder]
    for words, message in (
        (["--compare", "7"], "it takes 0, 1, 2, 3, ddp"),
        (["--picture", "x.svg"], "give --compare as well"),
        (["--compare", "0,2", "--picture", "x.txt"], "a picture ends in"),
    ):
        done = subprocess.run([*zerocfg, *words], capture_output=True, text=True)
        assert done.returncode == 2 and message in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.several_ranks
@pytest.mark.libs
@pytest.mark.usefixtures("warm_python")
def test_two_real_stages(make_run: MakeRun, tmp_path: Path) -> None:
    folder, picture = make_run(2), tmp_path / "profile.svg"
    zerocfg = [sys.executable, "-m", "zerocfg", "smoke", str(folder), "--device", "cpu", "--ranks", "2"]
    words = ["--compare", "1,2", "--picture", str(picture), "--output-format", "json"]
    done = subprocess.run([*zerocfg, *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    found = json.loads(done.stdout)
    one, two = found["rows"]
    assert (one["ended"], two["ended"], found["losses_agree"]) == (True, True, True)
    for row in (one, two):
        assert row["memory"][0].keys() == {"init", "forward", "backward", "step"}, "nothing is saved"
        assert row["tokens_per_second"] > 0 and row["failed_checks"] == []
        assert len(row["timeline"]["points"]) <= 200
        assert {phase for _, _, phase in row["timeline"]["points"]} >= {"init", "backward", "step"}
    assert picture.stat().st_size > 5000
    assert not (folder / "smoke.json").exists(), "a comparison certifies nothing"
