"""What is said of a search for the largest micro batch and of a comparison, word by word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.smoke import compare, max_batch, max_batch_text
from zerocfg.smoke.max_batch import Bracket, Found, Try, no_memory, tried
from zerocfg.smoke.model.reduction import Reduced
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.smoke import Options

from .conftest import MODEL
from .launched import CPU, H100, MIB, report, verdict
from .launched import no_memory as out_of_memory

if TYPE_CHECKING:
    from zerocfg.smoke.prepare.folder import RunFolder

    from .conftest import MakeRun


@pytest.fixture
def run(make_run: MakeRun) -> RunFolder:
    return read(make_run(3))


TRIES = {
    1: Try(1, True, 500 * MIB, 1000.0, 3.2),
    2: Try(2, True, 600 * MIB, 1900.0, 3.4),
    4: Try(4, True, 2000 * MIB, 1900.0, 3.6, ""),
    8: Try(8, False, None, None, 2.0, "rank 0 ran out of the card's memory"),
}


def found(run: RunFolder, *batches: int, low: int = 4, high: int | None = 5, **more: Any) -> Found:
    tries = [TRIES[batch] for batch in batches]
    return Found(run, 4, more.pop("upper", 64), 4, tries, Bracket(64, low, high), **more)


class TestConclusion:
    def test_an_end_that_is_certain(self, run: RunFolder) -> None:
        assert max_batch_text.conclusion(found(run, 4, 8)) == ["The largest micro batch that fits is 4."]

    def test_a_smaller_one_that_is_as_fast(self, run: RunFolder) -> None:
        lines = max_batch_text.conclusion(found(run, 1, 2, 4, 8))
        assert lines == [
            "The largest micro batch that fits is 4.",
            "As many tokens a second, or more, come from 2.",
        ]

    @pytest.mark.parametrize(
        ("high", "words"),
        [
            (8, "Micro batch 4 fits; 8 does not; what lies between was not tried (--max-launches)."),
            (None, "Micro batch 4 fits; what lies between was not tried (--max-launches)."),
        ],
    )
    def test_an_end_that_is_not(self, run: RunFolder, high: int | None, words: str) -> None:
        assert max_batch_text.conclusion(found(run, 4, high=high)) == [words]

    def test_the_end_of_the_search(self, run: RunFolder) -> None:
        words = "Micro batch 4 fits; the search ends there (--batch-limit)."
        assert max_batch_text.conclusion(found(run, 4, upper=4)) == [words]
        assert max_batch_text.conclusion(found(run, 4, upper=5)) != [words]
        assert max_batch_text.conclusion(replace(found(run, 4, upper=4), bracket=None)) == [
            "Micro batch 4 fits; what lies between was not tried (--max-launches)."
        ]

    def test_nothing_fits_and_something_else_failed(self, run: RunFolder) -> None:
        assert max_batch_text.conclusion(found(run, 8, low=0, high=1)) == ["Not even a micro batch of 1 fits."]
        broken = found(run, 4, problem="no such key")
        assert max_batch_text.conclusion(broken) == ["The search ended early: no such key"]


class TestAdvice:
    def advised(self, run: RunFolder, tmp_path: Path, batch: int, **plan: Any) -> list[str]:
        run.plan.update({"num_processes": 2, **plan})
        item = verdict(run, tmp_path, [report(rank, {"init": 1}) for rank in (0, 1)])
        return max_batch_text.advice(found(run, 4, verdict=item), batch)

    @pytest.mark.parametrize(
        ("batch", "plan", "words"),
        [
            (
                4,
                {},
                "With 2 accumulation steps the global batch becomes 16 instead of 8; "
                "gradient_accumulation_steps: 1 would keep it.",
            ),
            (3, {}, "With 2 accumulation steps the global batch becomes 12 instead of 8."),
            (2, {}, "With 2 accumulation steps the global batch becomes 8."),
            (1, {}, "With 2 accumulation steps the global batch becomes 4 instead of 8; "
                "gradient_accumulation_steps: 4 would keep it."),
            (4, {"gradient_accumulation_steps": None},
                "With 1 accumulation steps the global batch becomes 8 instead of 4."),
            (4, {"train_micro_batch_size_per_gpu": None}, "With 2 accumulation steps the global batch becomes 16."),
        ],
    )  # fmt: skip
    def test_what_to_write(self, run: RunFolder, tmp_path: Path, batch: int, plan: dict[str, Any], words: str) -> None:
        assert self.advised(run, tmp_path, batch, **plan) == [f"Write per_device_train_batch_size: {batch}. {words}"]

    def test_of_a_reduced_run_nothing_is_advised(self, run: RunFolder, tmp_path: Path) -> None:
        item = verdict(run, tmp_path, [report(rank, {"init": 1}) for rank in (0, 1)])
        lines = max_batch_text.advice(found(run, 4, verdict=item), 4)
        assert lines[0] == "That is the micro batch of the run as it was reduced here, not of the planned job:"
        assert lines[1:] == [f"  {words}" for words in item.reduced.descriptions] and len(lines) > 1
        assert max_batch_text.advice(found(run, 4), 4) == []


class TestHeading:
    def test_where_and_how_much(self, run: RunFolder, tmp_path: Path) -> None:
        bare = found(run, 4, 8)
        assert max_batch_text.heading(bare) == "tiny: ; predicted 4, 2 launches"
        two = verdict(run, tmp_path, [report(rank, {"init": 1}) for rank in (0, 1)])
        limited = replace(bare, verdict=two, limit=3 << 30, predicted=None)
        assert max_batch_text.heading(limited) == (
            "tiny: 2 ranks on CPU, 3.00 GiB for each rank; nothing predicted, 2 launches"
        )
        item = verdict(run, tmp_path, [report(0, {"init": 1}, True)], H100)
        assert max_batch_text.heading(replace(bare, verdict=item)).startswith("tiny: 1 rank on NVIDIA H100 80GB HBM3; ")

    def test_a_row_for_each_launch_by_size(self, run: RunFolder) -> None:
        rows = [line.split() for line in max_batch_text.render(found(run, 8, 4, 1)).splitlines()]
        rows = [row for row in rows if row and row[0].isdigit()]
        assert [row[:2] for row in rows] == [["1", "yes"], ["4", "yes"], ["8", "no"]]
        assert rows[1][2:6] == ["1.95", "GiB", "1,900", "4"] and rows[2][2:5] == ["-", "-", "2"]


class TestFound:
    def test_the_fastest_is_the_smallest_within_three_percent(self, run: RunFolder) -> None:
        def fastest(*rates: float | None) -> int | None:
            tries = [Try(2**at, True, 1, rate, 1.0) for at, rate in enumerate(rates)]
            item = replace(found(run, 1), tries=tries).fastest
            return None if item is None else item.batch

        assert fastest(969.0, 1000.0) == 2 and fastest(970.0, 1000.0) == 1
        assert fastest(None, 10.0) == 2 and fastest(None, None) is None
        failed = replace(found(run, 1), tries=[replace(TRIES[8], tokens_per_second=9e9), TRIES[1]])
        assert failed.fastest == TRIES[1] and failed.largest == 1

    def test_what_is_certain(self, run: RunFolder) -> None:
        assert found(run, 4).certain
        assert not found(run, 4, high=6).certain and found(run, 4, low=64, high=None).certain
        assert not found(run, 4, problem="x").certain
        assert not replace(found(run, 4), bracket=None).certain

    def test_as_data(self, run: RunFolder) -> None:
        data = found(run, 1, 8, limit=7).data()
        assert data["tries"] == [
            {
                "micro_batch": 1,
                "fits": True,
                "peak_memory_bytes": 500 * MIB,
                "tokens_per_second": 1000.0,
                "launch_seconds": 3.2,
                "why": "",
            },
            {
                "micro_batch": 8,
                "fits": False,
                "peak_memory_bytes": None,
                "tokens_per_second": None,
                "launch_seconds": 2.0,
                "why": "rank 0 ran out of the card's memory",
            },
        ]
        rest = {key: value for key, value in data.items() if key != "tries"}
        assert rest == {
            "run": "tiny",
            "largest": 1,
            "certain": True,
            "fastest": 1,
            "planned": 2,
            "predicted": 4,
            "upper": 64,
            "memory_limit_bytes": 7,
            "launches": 2,
            "holds_for_the_plan": False,
            "reductions": [],
            "problem": None,
        }

    def test_one_launch(self, run: RunFolder, tmp_path: Path) -> None:
        good = verdict(run, tmp_path, [report(rank, {"init": 300, "step": 200 + rank}) for rank in (0, 1)])
        item = tried(3, good)
        assert (item.batch, item.fits, item.why, item.seconds) == (3, True, "", 7.0)
        assert item.peak == 201 * MIB and item.tokens_per_second is not None
        never = verdict(run, tmp_path, [report(0, {"init": 1}, step_seconds=[])])
        assert (tried(3, never).fits, tried(3, never).why) == (False, "no step was made")
        other = verdict(run, tmp_path, [report(0, {"init": 1})], failure="ValueError: x")
        assert (tried(3, other).fits, tried(3, other).why) == (False, "ValueError: x")
        out = verdict(run, tmp_path, [report(0, {}), out_of_memory(1, "card")], failure="RuntimeError: x")
        assert tried(3, out).why == "rank 1 ran out of the card's memory"

    @pytest.mark.parametrize(
        ("ended", "why"),
        [
            ({"failure": "the kernel ended it", "kind": "memory"}, "the kernel ended it"),
            ({"failure": "exit code 1", "kind": "launcher", "detail": ["CUDA out of memory."]},
             "a library found no memory of the card"),
            ({"failure": "exit code 1", "kind": "error", "detail": ["CUDA out of memory."]}, ""),
            ({"failure": "exit code 1", "kind": "killed", "detail": ["something else"]}, ""),
        ],
    )  # fmt: skip
    def test_memory_that_no_rank_speaks_of(
        self, run: RunFolder, tmp_path: Path, ended: dict[str, Any], why: str
    ) -> None:
        item = verdict(run, tmp_path, [report(0, {"init": 1})], **ended)
        assert no_memory(item.outcome) == why


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [
        (999, "999"),
        (1000, "1k"),
        (82_240, "82.2k"),
        (999_999, "1e+03k"),
        (10**6, "1M"),
        (6_738_415_616, "6.74B"),
        (10**9, "1B"),
        (999_000_000, "999M"),
    ],
)
def test_a_count_of_parameters(parameters: int, shown: str) -> None:
    assert compare._count(parameters) == shown


PEAKS = {"init": 110, "forward": 160, "backward": 170, "step": 165, "save": 120}


class TestComparison:
    def row(self, run: RunFolder, tmp_path: Path, strategy: str, device: Any = CPU, **more: Any) -> compare.Row:
        ended = more.pop("ended", {})
        tmp_path.mkdir(exist_ok=True)  # a card reads how full its disk is
        reports = [report(rank, PEAKS, device is H100, **more) for rank in (0, 1)]
        return compare.Row(strategy, verdict=verdict(run, tmp_path, reports, device, **ended))

    def test_losses_agree_within_two_percent_of_the_larger(self, run: RunFolder, tmp_path: Path) -> None:
        def agree(*losses: float | None) -> bool | None:
            rows = [
                self.row(run, tmp_path / str(at), "2", losses=[] if loss is None else [loss])
                for at, loss in enumerate(losses)
            ]
            return compare.Comparison(run, rows).losses_agree

        assert agree(100.0, 98.0) is True and agree(100.0, 97.9) is False and agree(-100.0, -98.0) is True
        assert agree(100.0) is None and agree(100.0, None) is None
        assert agree(100.0, 99.0, 97.0) is False

    def test_setups_whose_losses_differ_for_a_reason(self, run: RunFolder, tmp_path: Path) -> None:
        def why(strategy: str, dtype: str) -> str:
            return compare.unlike(self.row(run, tmp_path / (strategy + dtype), strategy, seen={"dtype": dtype}))

        assert why("3", "fp32").startswith("ZeRO-3 makes the model in shards")
        assert why("0", "bf16").startswith("ZeRO-0 in 16 bit") and why("0", "fp32") == ""
        assert why("1", "bf16") == why("2", "bf16") == why("ddp", "bf16") == ""
        assert compare.unlike(compare.Row("0")) == ""

    def test_cells_of_a_processor_and_of_a_card(self, run: RunFolder, tmp_path: Path) -> None:
        """170 MiB at the most, 70 more than at the start; two ranks of 2 x 2 x 32 tokens in half a second."""
        cells = compare._cells(self.row(run, tmp_path / "a", "2"), False)
        assert cells == ["ZeRO-2", "0.17 GiB", "70.0 MiB", "512", "500", "4.0000"]
        card = compare._cells(self.row(run, tmp_path / "b", "2", H100), True)
        assert card[1] == "0.17 GiB" and card[2] not in ("-", "70.0 MiB")
        assert compare._cells(compare.Row("ddp"), False) == ["DDP", "-", "-", "-", "-", "-"]
        bare = compare._cells(self.row(run, tmp_path / "c", "2", losses=None, step_seconds=[1.0]), False)
        assert bare[3:] == ["-", "-", "-"]

    def test_the_largest_batch_of_a_row(self, run: RunFolder) -> None:
        def cell(*batches: int, **more: Any) -> str:
            return compare._batch(compare.Row("2", batches=found(run, *batches, **more)))

        assert cell(4) == "4" and cell(4, upper=4) == "4 or more" and cell(4, high=9) == "4 or more"
        assert cell(8, low=0, high=1) == "-" and compare._batch(compare.Row("2")) == "-"

    def test_what_ended_and_what_is_good(self, run: RunFolder, tmp_path: Path) -> None:
        good, bad = (
            self.row(run, tmp_path / "a", "1"),
            self.row(run, tmp_path / "b", "2", ended={"failure": "x"}),
        )
        assert good.ended and not bad.ended and not compare.Row("2").ended
        assert compare.Comparison(run, [good]).good and not compare.Comparison(run, [good, bad]).good
        assert compare.Comparison(run, [compare.Row("2"), bad]).first is bad.verdict
        apart = [good, self.row(run, tmp_path / "c", "2", losses=[9.0])]
        assert not compare.Comparison(run, apart).good
        text = compare._about_losses(compare.Comparison(run, apart))
        assert text == ["The losses of ZeRO-1 and ZeRO-2 do NOT agree within 2%: one of these trains something else."]

    def test_the_columns_of_a_processor_and_of_a_card(self, run: RunFolder, tmp_path: Path) -> None:
        """A processor counts no tensors, and says so; a card has what was predicted beside them."""
        last = "A processor counts no tensors: RSS is all of the process, the second column what it grew by."
        plain = compare.render(compare.Comparison(run, [self.row(run, tmp_path / "a", "2")])).splitlines()
        (head,) = [line for line in plain if "tokens/s" in line]
        assert head.split() == ["peak", "RSS", "for", "training", "tokens/s", "ms/step", "loss"] and plain[-1] == last
        card = compare.render(compare.Comparison(run, [self.row(run, tmp_path / "b", "2", H100)])).splitlines()
        (head,) = [line for line in card if "tokens/s" in line]
        assert head.split() == ["peak", "allocated", "predicted", "tokens/s", "ms/step", "loss"] and last not in card
        never = compare.render(compare.Comparison(run, [compare.Row("2", problem="no room")])).splitlines()
        assert never[0] == "tiny" and "ZeRO-2 failed: no room" in never
        searched = compare.Row("2", ["x is dropped"], batches=found(run, 4))
        lines = compare.render(compare.Comparison(run, [searched])).splitlines()
        assert any(line.split()[-2:] == ["largest", "batch"] for line in lines) and "ZeRO-2: x is dropped" in lines

    def test_the_smallest_reduction_fits_every_strategy(self, run: RunFolder) -> None:
        small, short, large = (
            Reduced(2, {**MODEL, "num_hidden_layers": layers}, None, None, {}, {}, sequence=length)
            for layers, length in ((1, 64), (1, 32), (2, 8))
        )
        assert compare.smallest([large, small, short]) is short


class TestVerdictOfASearch:
    """Whose launch the text is about: the largest that fits, else the last one, or the one that ended the search."""

    def searched(self, run: RunFolder, tmp_path: Path, most: int, **more: Any) -> Found:
        launched: list[int] = []

        def launch(changed: RunFolder, options: Any) -> Any:
            batch = changed.plan["train_micro_batch_size_per_gpu"]
            launched.append(batch)
            if batch == more.get("broken"):
                return verdict(changed, tmp_path, [report(0, {})], failure="ValueError: x")
            if batch > most:
                return verdict(changed, tmp_path, [out_of_memory(0, "host")], failure="RuntimeError: no memory")
            return verdict(changed, tmp_path, [report(0, {"init": 1, "step": batch})])

        result = max_batch.find(run, Options(), launch, upper=8)
        assert [item.batch for item in result.tries] == launched
        return result

    def batch_of(self, found: Found) -> int:
        assert found.verdict is not None
        return int(found.verdict.run.plan["train_micro_batch_size_per_gpu"])  # type: ignore[call-overload]

    def test_the_largest_that_fits(self, run: RunFolder, tmp_path: Path) -> None:
        found = self.searched(run, tmp_path, 5)
        assert found.largest == 5 == self.batch_of(found) and found.certain
        assert found.tries[0].batch == 2 and found.first is not None

    def test_the_last_where_none_does(self, run: RunFolder, tmp_path: Path) -> None:
        found = self.searched(run, tmp_path, 0)
        assert found.largest is None and self.batch_of(found) == found.tries[-1].batch == 1

    def test_the_one_that_ended_it(self, run: RunFolder, tmp_path: Path) -> None:
        found = self.searched(run, tmp_path, 8, broken=4)
        assert found.problem == "ValueError: x" and self.batch_of(found) == 4 and not found.certain

    def test_it_begins_with_the_planned_one_within_the_bounds(self, run: RunFolder, tmp_path: Path) -> None:
        run.plan["train_micro_batch_size_per_gpu"] = 30
        assert self.searched(run, tmp_path, 8).tries[0].batch == 8
        run.plan["train_micro_batch_size_per_gpu"] = 0
        assert self.searched(run, tmp_path, 8).tries[0].batch == 1
