"""The table, the data and the picture of the plans that ``zerocfg plan`` compares."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Outcome
from zerocfg.cli.screens.plan_table import compared
from zerocfg.resolve.explain.plan_summary import COLUMNS, duration
from zerocfg.resolve.plan import Considered
from zerocfg.resolve.search.choice import MICRO, OPTIMIZER_DEVICE, PARAM_DEVICE, STAGE, STEPS, describe_plan

Cli = Callable[..., Outcome]
SMALL = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "vocab_size": 32000,
}


def job(folder: Path, **run: Any) -> None:
    entry = {
        "consumer": "transformers",
        "script": "train.py",
        "model": "config.json",
        "recipe": "recipe.yaml",
        "deepspeed": "ds.json",
        "hardware": "8xA100-40GB",
        "sequence_length": 1024,
        **run,
    }
    (folder / "train.py").write_text("")
    (folder / "config.json").write_text(json.dumps(SMALL))
    (folder / "recipe.yaml").write_text(
        "output_dir: out\nmax_steps: 3\nbf16: true\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n"
    )
    config = {"bf16": {"enabled": "auto"}, MICRO: "auto", STEPS: "auto", "zero_optimization": {"stage": 2}}
    (folder / "ds.json").write_text(json.dumps(config))
    (folder / "zerocfg.yaml").write_text(json.dumps({"version": 1, "runs": {"sft": entry}}))


def table(text: str) -> list[str]:
    """The lines of the table, its head first."""
    (found,) = re.findall(r"plans for the same global batch.*?formula\n(.*?)\n(?=\n|\Z)", text, re.S)
    return found.splitlines()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({STAGE: 1, MICRO: 2, STEPS: 8}, "ZeRO-1, 2 x 8"),
        ({STAGE: 3, MICRO: 2}, "ZeRO-3, micro batch 2"),
        ({STAGE: 3, OPTIMIZER_DEVICE: "cpu", PARAM_DEVICE: "none"}, "ZeRO-3, optimizer on cpu"),
        ({STAGE: 3, OPTIMIZER_DEVICE: "nvme", PARAM_DEVICE: "nvme"}, "ZeRO-3, all on nvme"),
        ({STAGE: 3, OPTIMIZER_DEVICE: "nvme", PARAM_DEVICE: "cpu"}, "ZeRO-3, optimizer on nvme, parameters on cpu"),
        ({MICRO: 4, STEPS: 1, "gradient_checkpointing": True}, "4 x 1, recomputed"),
        ({}, "as it is"),
    ],
)
def test_a_plan_in_words(settings: dict[str, Any], text: str) -> None:
    assert describe_plan(settings) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0123, "12 ms"), (0.9994, "999 ms"), (1.0, "1.0 s"), (93.45, "93.5 s")]
)
def test_a_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_table_has_a_row_for_each_way_and_marks_the_runs_own(zerocfg: Cli, tmp_path: Path) -> None:
    job(tmp_path)
    found = zerocfg("plan", ".", "--no-trace")
    head, *rows = table(found.out)
    assert head.split()[-5:] == ["other", "device", "sent", "step", "tokens/s"] or "tokens/s" in head
    assert all(name in head for name in COLUMNS)
    own = [row for row in rows if row.lstrip().startswith(">")]
    assert len(own) == 1 and "ZeRO-2, 2 x 4" in own[0]
    assert rows[0].rstrip().endswith("best")
    assert sum("best" in row for row in rows) == 1
    for stage in range(4):
        assert any(f"ZeRO-{stage}" in row for row in rows)
    assert len({len(row.split("ZeRO")[0]) for row in rows}) == 1  # one column of marks


def test_all_shows_every_plan_and_each_keeps_the_batch(zerocfg: Cli, tmp_path: Path) -> None:
    job(tmp_path)
    short = table(zerocfg("plan", ".", "--no-trace").out)
    found = zerocfg("plan", ".", "--no-trace", "--all")
    rows = table(found.out)[1:]
    ((count,),) = [re.findall(r"(\d+) plans for the same global batch", found.out)]
    assert len(rows) == int(count) > len(short)
    batches = {tuple(map(int, pair)) for row in rows for pair in re.findall(r"(\d+) x (\d+)", row)}
    assert {micro * steps for micro, steps in batches} == {8} and len(batches) > 2


def test_data_and_table_agree(zerocfg: Cli, tmp_path: Path) -> None:
    job(tmp_path)
    (run,) = json.loads(zerocfg("plan", ".", "--no-trace", "--output-format", "json").out)["runs"]
    plans = run["plans"]
    rows = table(zerocfg("plan", ".", "--no-trace", "--all").out)[1:]
    assert len(plans) == len(rows)
    for plan, shown in zip(plans, rows, strict=True):
        assert describe_plan(plan["settings"]) in shown
        assert f"{plan['device']['high'] / 2**30:.1f}" in shown
        assert plan["device"]["low"] <= plan["device"]["expected"] <= plan["device"]["high"]
        assert f"{plan['tokens_per_second']:,.0f}" in shown
        assert sum(term["size"] for term in plan["terms"]) <= plan["device"]["expected"]
        assert (plan["excluded"] == "") == shown.endswith("best")
    (own,) = [plan for plan in plans if plan["own"]]
    assert own["verdict"] == run["verdict"]
    assert abs(own["device"]["expected"] - run["device"]["expected"]) < 1 << 20
    assert abs(own["step_seconds"] - run["time"]["seconds"]["expected"]) < 1e-9


def test_columns_add_up_to_the_expected_figure(zerocfg: Cli, tmp_path: Path) -> None:
    job(tmp_path)
    (run,) = json.loads(zerocfg("plan", ".", "--no-trace", "--output-format", "json").out)["runs"]
    rows = table(zerocfg("plan", ".", "--no-trace", "--all").out)[1:]
    for plan, shown in zip(run["plans"], rows, strict=True):
        behind = shown.split(describe_plan(plan["settings"]))[1]
        numbers = [float(one) for one in behind.split()[: len(COLUMNS)]]
        assert abs(sum(numbers) - plan["device"]["expected"] / 2**30) < 0.05 * len(COLUMNS) + 0.01


def test_without_hardware_of_known_memory_there_is_no_table(zerocfg: Cli, tmp_path: Path) -> None:
    job(tmp_path, model={"hidden_size": 64})
    found = zerocfg("plan", ".", "--no-trace")
    assert "plans for the same" not in found.out and "Traceback" not in found.out + found.err


def test_other_engines_have_plans_too(zerocfg: Cli, tmp_path: Path) -> None:
    job(tmp_path, engine="fsdp", hardware="8xA100-80GB")
    entry = json.loads((tmp_path / "zerocfg.yaml").read_text())
    del entry["runs"]["sft"]["deepspeed"]
    (tmp_path / "zerocfg.yaml").write_text(json.dumps(entry))
    rows = table(zerocfg("plan", ".", "--no-trace").out)[1:]
    assert any("recomputed" in row for row in rows) and not any("ZeRO" in row for row in rows)
    assert sum(row.lstrip().startswith(">") for row in rows) == 1


# -- what a build compared ---------------------------------------------------------------------------------------------


def plan_of(ranks: int, micro: int, why: str) -> Considered:
    return Considered({"num_processes": ranks, STAGE: 1, MICRO: micro, STEPS: 1}, "fits", 1.0, 1.0, why)


def test_nothing_was_compared() -> None:
    assert compared([]) == "" == compared([plan_of(8, 1, "")])


def test_plans_that_differ_in_their_ranks_say_them() -> None:
    text = compared([plan_of(8, 1, ""), plan_of(4, 1, "5% more expensive"), plan_of(1, 1, "9% more expensive")])
    assert "4 ranks, ZeRO-1, 1 x 1" in text and "1 rank, ZeRO-1, 1 x 1 " in text
    assert "rank" not in compared([plan_of(8, 1, ""), plan_of(8, 2, "slower")])


def test_only_the_next_best_are_shown() -> None:
    text = compared([plan_of(8, 1, "")] + [plan_of(8, size, f"reason {size}") for size in range(2, 20)])
    assert "compared 19 plans" in text and text.count("reason") == 6


# -- the picture -------------------------------------------------------------------------------------------------------


def test_a_picture_holds_every_way_and_the_limit(zerocfg: Cli, tmp_path: Path) -> None:
    job(tmp_path)
    found = zerocfg("plan", ".", "--no-trace", "--picture", "plans.svg")
    assert found.code == 0, found.err
    drawn = (tmp_path / "plans.svg").read_text(encoding="utf-8")
    for text in ("sft on 8xA100-40GB", "ZeRO-3, all on cpu", "▸ ZeRO-2, 2 x 4", "the device has 39 GiB"):
        assert f"<!-- {text}" in drawn, text
    zerocfg("plan", ".", "--no-trace", "--picture", "again.svg")
    assert (tmp_path / "again.svg").read_text(encoding="utf-8") == drawn


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_other_formats(zerocfg: Cli, tmp_path: Path, suffix: str) -> None:
    job(tmp_path)
    assert zerocfg("plan", ".", "--no-trace", "--picture", f"plans.{suffix}").code == 0
    assert (tmp_path / f"plans.{suffix}").read_bytes()[:4] in (b"\x89PNG", b"%PDF")


@pytest.mark.parametrize(
    ("path", "run", "text"),
    [
        ("plans.gif", {}, "a picture ends in .svg, .png, .pdf"),
        ("nowhere/plans.svg", {}, "cannot be written"),
        ("plans.svg", {"model": {"hidden_size": 64}}, "nothing can be drawn"),
    ],
)
def test_no_picture_is_told_in_a_line(zerocfg: Cli, tmp_path: Path, path: str, run: dict[str, Any], text: str) -> None:
    job(tmp_path, **run)
    found = zerocfg("plan", ".", "--no-trace", "--picture", path)
    assert found.code != 0 and text in found.err and "Traceback" not in found.err


def test_without_matplotlib_the_extra_is_named(zerocfg: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    job(tmp_path)
    found = zerocfg("plan", ".", "--no-trace", "--picture", "plans.svg")
    assert found.code != 0 and "pip install 'zerocfg[pictures]'" in found.err
