"""Published steps of many devices: what rows must be, how they are read, and that the committed result is theirs."""

from __future__ import annotations

import csv
import importlib
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest

from zerocfg.memory.options import Options, TorchOptions

ROOT = Path(__file__).resolve().parents[2]
TIME = ROOT / "benchmarks" / "time"
POINTS = ROOT.parent / "shared" / "data" / "memory_points.csv"
CALIBRATED_ON = ("llm-foundry", "chenyaofo", "QwenLM/Qwen", "autotuning")
"""Parts of the addresses of the sources that constants of step times were fitted to (benchmarks/time/README.md)."""
BILLIONS = {
    # what the publishers of the models state
    "llama-2-7b": 6.74,
    "llama-2-13b": 13.02,
    "llama-2-34b": 33.74,
    "llama-2-70b": 68.98,
    "llama-3-8b": 8.03,
    "llama-3-70b": 70.55,
    "internlm-7b": 7.32,
    "kempner-13b": 14.84,
    "tinyllama-1.1b": 1.10,
    "sheared-llama-1.3b": 1.35,
    "gpt2-52b": 52.0,
}


@pytest.fixture(scope="module")
def many_ranks() -> Any:
    sys.path.insert(0, str(TIME))
    try:
        return importlib.import_module("many_ranks")
    finally:
        sys.path.remove(str(TIME))


def lines() -> list[dict[str, str]]:
    with (TIME / "rows" / "many_ranks.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def line(name: str, **more: str) -> dict[str, str]:
    return next(row for row in lines() if row["id"] == name) | more


def committed() -> dict[str, Any]:
    result: dict[str, Any] = json.loads((TIME / "results" / "many_ranks.json").read_text())
    return result


class TestRows:
    def test_there_are_forty_at_least_of_several_publishers(self) -> None:
        assert len(lines()) >= 40
        assert len({row["id"] for row in lines()}) == len(lines())
        assert len({row["source"] for row in lines()}) >= 5

    def test_each_has_an_address_and_the_words_that_state_its_figure(self) -> None:
        for row in lines():
            assert row["address"].startswith("https://"), row["id"]
            figure = row["measured"].removesuffix("000") if row["source"] == "TinyLlama" else row["measured"]  # 24k
            assert figure in row["quote"].replace(",", ""), row["id"]

    def test_none_comes_from_a_source_that_was_calibrated_on(self) -> None:
        for row in lines():
            assert not any(source in row["address"] for source in CALIBRATED_ON), row["id"]

    @pytest.mark.skipif(not POINTS.exists(), reason="no memory_points.csv here")
    def test_every_source_that_was_calibrated_on_would_be_recognised(self) -> None:
        with POINTS.open(newline="") as file:
            sources = {row["source"] for row in csv.DictReader(file) if row["id"][0] in "CGQD"}
        assert sources and all(any(part in source for part in CALIBRATED_ON) for source in sources)

    def test_each_is_of_many_ranks_with_pure_data_parallelism(self) -> None:
        for row in lines():
            nodes, devices = int(row["nodes"]), int(row["devices"])
            assert 8 <= devices <= 1024 and devices % nodes == 0, row["id"]
            assert row["sharding"] in ("fsdp1", "fsdp2", "hsdp", "zero1", "zero2", "zero3", "ddp"), row["id"]
            assert row["precision"] in ("bf16", "fp16"), row["id"]
            assert (nodes == 1) <= (not row["network"]), row["id"]

    def test_the_share_that_is_repeated_agrees_with_the_kind_of_checkpointing(self) -> None:
        for row in lines():
            share = float(row["recomputed"])
            expected = {"none": share == 0, "full": share == 1, "selective": 0 < share <= 1}
            assert expected[row["checkpointing"]], row["id"]


class TestReading:
    def test_models_have_as_many_parameters_as_their_publishers_state(self, many_ranks: Any) -> None:
        result = {row.model: row.facts.parameters / 1e9 for row in many_ranks.read()}
        assert result == {name: pytest.approx(size, rel=0.01) for name, size in BILLIONS.items()}

    @pytest.mark.parametrize(
        ("name", "seconds"),
        [
            ("TT01", 8192 / 2904),  # one sample of 8192 tokens
            ("IE01", 4 * 2 * 2048 / 4062),  # four micro batches of two samples
            ("HP01", 8 * 36 / 17.13),  # samples of all devices
            ("KF01", 14.81),
        ],
    )
    def test_figures_become_seconds_of_an_optimizer_step(self, many_ranks: Any, name: str, seconds: float) -> None:
        assert many_ranks.seconds_of(line(name)) == pytest.approx(seconds)

    def test_a_unit_that_is_not_known_is_refused(self, many_ranks: Any) -> None:
        with pytest.raises(ValueError, match="TT01: tokens/h is no unit"):
            many_ranks.seconds_of(line("TT01", unit="tokens/h"))

    def test_sharding(self, many_ranks: Any) -> None:
        assert many_ranks.options_of(line("FM04a")) == TorchOptions("fsdp1", 128, shard_ranks=8)
        assert many_ranks.options_of(line("FM06a")) == TorchOptions("fsdp1", 128)
        assert many_ranks.options_of(line("KF01")) == TorchOptions("fsdp2", 8, gradient_accumulation_steps=4)
        assert many_ranks.options_of(line("KF01", sharding="ddp")).kind == "ddp"
        assert many_ranks.options_of(line("BS01")) == Options(3, 64, "fp16")
        reduced = Options(1, 16, gradient_accumulation_steps=4, overlap_comm=True)
        assert many_ranks.options_of(line("IE02")) == reduced

    def test_the_network_is_the_stated_one_else_that_of_the_class(self, many_ranks: Any) -> None:
        stated = many_ranks.profile_of(line("IE02")).link_between_nodes
        assert stated.gb_s == pytest.approx(4 * 100 / 8 / 8 * 2) and stated.assumed is None
        assumed = many_ranks.profile_of(line("TT01")).link_between_nodes
        assert assumed.assumed is not None
        assert many_ranks.profile_of(line("IE01")).link_between_nodes is None

    def test_the_memory_of_the_row_wins_over_the_catalogue(self, many_ranks: Any) -> None:
        assert many_ranks.profile_of(line("TT09")).accelerator.memory_gb_s == 2400
        assert many_ranks.profile_of(line("AO01")).accelerator.memory_gb_s == 3350


class TestSelectiveCheckpointing:
    """No step of zerocfg repeats a part of its layers: the time lies between those without and with checkpointing."""

    def predicted(self, many_ranks: Any, share: str) -> Any:
        configs = json.loads((TIME / "rows" / "models.json").read_text())
        return many_ranks.predict(many_ranks.row_of(line("TT05", recomputed=share), configs))

    @pytest.mark.parametrize("share", ["0.25", "0.5"])
    def test_it_lies_at_its_share(self, many_ranks: Any, share: str) -> None:
        without, some, full = (self.predicted(many_ranks, row) for row in ("0", share, "1"))
        assert without.seconds.expected < some.seconds.expected < full.seconds.expected
        for end in ("low", "expected", "high"):
            first, last = getattr(without.seconds, end), getattr(full.seconds, end)
            assert getattr(some.seconds, end) == pytest.approx(first + float(share) * (last - first))
        assert some.operations == pytest.approx(
            without.operations + float(share) * (full.operations - without.operations)
        )

    def test_its_parts_sum_up_to_its_seconds(self, many_ranks: Any) -> None:
        some = self.predicted(many_ranks, "0.5")
        assert sum(some.parts.values()) == pytest.approx(some.seconds.expected)


class TestResult:
    def test_it_has_every_row(self, many_ranks: Any) -> None:
        rows = {row.name: row.measured for row in many_ranks.read()}
        assert {entry["row"]: entry["measured"] for entry in committed()["rows"]} == pytest.approx(rows)

    def test_it_is_what_the_formulas_say(self, many_ranks: Any) -> None:
        """Else ``python benchmarks/time/many_ranks.py`` has to be run again."""
        now = {row.name: many_ranks.judge(row)["expected"] for row in many_ranks.read()}
        assert {entry["row"]: entry["expected"] for entry in committed()["rows"]} == pytest.approx(now, rel=1e-6)

    def test_sums_follow_from_the_rows(self) -> None:
        result = committed()
        groups = {"all": result["rows"]}
        for row in result["rows"]:
            groups.setdefault(row["source"], []).append(row)
        for name, rows in groups.items():
            sums = result["all"] if name == "all" else result["by source"][name]
            errors = [row["expected"] / row["measured"] - 1 for row in rows]
            sizes = [abs(error) for error in errors]
            assert sums["rows"] == len(rows)
            assert sums["median"] == pytest.approx(statistics.median(sizes))
            assert sums["mean"] == pytest.approx(sum(sizes) / len(sizes))
            assert sums["worst"] == pytest.approx(max(sizes))
            assert sums["signed mean"] == pytest.approx(sum(errors) / len(errors))
            assert sums["inside"] == sum(row["low"] <= row["measured"] <= row["high"] for row in rows)
        assert sum(len(rows) for name, rows in groups.items() if name != "all") == len(result["rows"])

    def test_a_target_that_is_missed_is_said_to_be(self) -> None:
        result, text = committed(), (TIME / "results" / "many_ranks.md").read_text()
        for key, most in (("median", 0.10), ("mean", 0.15)):
            reached = result["all"][key] <= most
            assert result["targets"][key] == {"at most": most, "reached": reached}
            verdict = "reached" if reached else "**not reached**"
            assert f"| {key} error | {most:.0%} | {result['all'][key]:.1%} | {verdict} |" in text

    def test_the_readme_shows_the_same_sums(self) -> None:
        section = (TIME / "README.md").read_text().split("## Many ranks")[1].split("\n## ")[0]
        shown = [row for row in section.splitlines() if row.count("%") >= 4]
        text = (TIME / "results" / "many_ranks.md").read_text().splitlines()
        assert len(shown) >= 4 and set(shown) <= set(text)
        alike = committed()["sources alike"]["mean"]
        assert f"the sources have a mean of {alike:.0%}" in section

    def test_each_row_outside_15_percent_has_a_reason(self) -> None:
        text = (TIME / "results" / "many_ranks.md").read_text()
        explained = text.split("## Rows that lie outside 15%")[1].split("## All rows")[0].splitlines()
        cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in explained if row.startswith("| ")]
        reasons = {row: reason for row, _, _, reason, *_ in cells[1:]}
        far = {row["row"] for row in committed()["rows"] if abs(row["error"]) > 0.15}
        assert set(reasons) == far and all(reasons.values())
