"""Launches in a row: where a search begins and ends, what is pinned from launch to launch, what a comparison says as
data and in words. No library runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.resolve.plan import Decision
from zerocfg.smoke import compare, max_batch
from zerocfg.smoke.max_batch import Found, Try
from zerocfg.smoke.model.certificate import Check
from zerocfg.smoke.model.error import SmokeError
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


class TestAim:
    """Of the first launch, of two samples: which bytes bound the search, and which of them a rank was seen to hold."""

    HELD = {"rss": 10, "reserved": 20, "device": 30}  # noqa: RUF012 - a constant

    def aimed(self, run: RunFolder, monkeypatch: pytest.MonkeyPatch, **more: Any) -> tuple[Found, list[Any]]:
        asked: list[Any] = []

        def expected(*words: Any) -> int | None:
            asked.append(words[3:])
            found: int | None = more.get("expected")
            return found

        monkeypatch.setattr(max_batch, "largest_expected", expected)
        held = self.HELD | more.get("held", {})
        device = more.get("device", H100)
        figures = SimpleNamespace(peak=held.__getitem__, device_memory=more.get("reported"))
        seen: Any = SimpleNamespace(device=device, figures=figures, reduced="reduced", run=run)
        tries = [Try(2, more.get("fits", True), 1, None, 1.0)]
        found = Found(run, 2, 9, None, tries, verdict=seen, limit=more.get("limit"))
        max_batch._aim(found, 2, more.get("upper"))
        return found, asked

    @pytest.mark.parametrize(
        ("more", "room", "seen"),
        [
            ({}, 80 << 30, (2, 30)),
            ({"limit": 7}, 7, (2, 20)),
            ({"device": CPU, "limit": 7}, 7, (2, 10)),
            ({"device": replace(H100, memory=0), "reported": 64}, 64, (2, 30)),
            ({"reported": 64}, 80 << 30, (2, 30)),
            ({"fits": False}, 80 << 30, None),
            ({"held": {"device": None}}, 80 << 30, None),
        ],
    )
    def test_what_is_asked_of_the_prediction(
        self, run: RunFolder, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], room: int, seen: Any
    ) -> None:
        found, asked = self.aimed(run, monkeypatch, expected=5, **more)
        assert asked == [(room, seen)] and (found.predicted, found.guess) == (5, 5)

    @pytest.mark.parametrize(
        "more", [{"device": CPU}, {"device": replace(H100, memory=0)}, {"device": CPU, "reported": 9}]
    )
    def test_without_a_limit_nothing_is_predicted(
        self, run: RunFolder, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
    ) -> None:
        """Twice the first batch is tried next."""
        found, asked = self.aimed(run, monkeypatch, expected=5, **more)
        assert asked == [] and (found.predicted, found.guess) == (None, 4)

    @pytest.mark.parametrize(
        ("device", "upper", "expected", "ends"),
        [
            (CPU, None, None, (64, 4)),
            (H100, None, None, (4096, 4)),
            (H100, None, 9999, (4096, 4096)),
            (H100, 3, None, (3, 3)),
            (H100, 7, 5, (7, 5)),
            (CPU, 100, None, (100, 4)),
        ],
    )
    def test_where_it_ends(
        self, run: RunFolder, monkeypatch: pytest.MonkeyPatch, device: Any, upper: Any, expected: Any, ends: Any
    ) -> None:
        found, _ = self.aimed(run, monkeypatch, device=device, upper=upper, expected=expected)
        assert (found.upper, found.guess) == ends


class TestFind:
    def test_what_is_pinned_and_told_from_launch_to_launch(self, run: RunFolder, tmp_path: Path) -> None:
        """The model of the last launch that fits; the first one takes what the caller pinned."""
        first: Any = object()
        pinned: list[Any] = []
        made: list[Any] = []
        told: list[Try] = []
        options = Options(memory_limit=5 << 30)

        def launch(changed: RunFolder, given: Options) -> Any:
            assert given is options
            pinned.append(changed.pinned)
            batch: Any = changed.plan["train_micro_batch_size_per_gpu"]
            changed.pinned = None
            if batch > 3:
                item = verdict(changed, tmp_path, [out_of_memory(0, "host")], failure="RuntimeError: no memory")
            else:
                item = verdict(changed, tmp_path, [report(0, {"init": 1, "step": batch})])
            made.append(item.reduced)
            return item

        found = max_batch.find(replace(run, pinned=first), options, launch, upper=4, on_try=told.append)
        assert [item.batch for item in found.tries] == [2, 4, 3] and told == found.tries
        assert pinned == [first, made[0], made[0]]
        assert (found.largest, found.certain, found.limit, found.upper) == (3, True, 5 << 30, 4)
        assert found.verdict is not None and found.verdict.reduced is made[2]
        assert found.first is not None and found.first.reduced is made[0]

    def test_a_search_that_is_interrupted(self, run: RunFolder, tmp_path: Path) -> None:
        def launch(changed: RunFolder, options: Options) -> Any:
            ended: dict[str, Any] = {} if len(tries) == 0 else {"interrupted": True}
            return verdict(changed, tmp_path, [report(0, {"init": 1, "step": 2})], **ended)

        tries: list[Try] = []
        found = max_batch.find(run, Options(), launch, upper=8, on_try=tries.append)
        assert len(tries) == 2 and found.problem == "it was interrupted" and found.interrupted and not found.certain
        assert not Found(run, 1, 1, None).interrupted and not Found(run, 1, 1, None).faithful

    def test_only_builds_are_searched(self, run: RunFolder) -> None:
        run.handwritten = SimpleNamespace()  # type: ignore[assignment]
        with pytest.raises(SmokeError, match="only in runs that `zerocfg build` wrote"):
            max_batch.find(run, Options(), lambda *_: pytest.fail("nothing is launched"))

    @pytest.mark.parametrize(("launches", "made"), [(None, [2, 4, 5, 7, 8]), (1, [2]), (2, [2, 4])])
    def test_as_many_launches_as_are_allowed(
        self, run: RunFolder, tmp_path: Path, launches: int | None, made: list[int]
    ) -> None:
        def launch(changed: RunFolder, options: Options) -> Any:
            return verdict(changed, tmp_path, [report(0, {"init": 1, "step": 2})])

        found = max_batch.find(run, Options(), launch, upper=8, launches=launches)
        assert [item.batch for item in found.tries] == made

    def test_the_plan_as_it_is(self, run: RunFolder) -> None:
        def faithful(model: Any, ranks: int) -> bool:
            less = Reduced(ranks, model, None, None, {}, {})
            return max_batch.faithful(SimpleNamespace(run=run, reduced=less))  # type: ignore[arg-type]

        assert faithful(MODEL, 4)
        assert not faithful(MODEL, 2) and not faithful(MODEL | {"num_hidden_layers": 1}, 4)

    def test_a_batch_in_the_reasons_of_the_lock(self, run: RunFolder) -> None:
        """Only what is there is changed, and a batch that is no number stays."""
        settings = run.lock.settings
        settings["train_micro_batch_size_per_gpu"] = Decision(2, "said so", "file")
        settings["train_batch_size"] = Decision(16)
        settings["per_device_train_batch_size"] = Decision(2)
        settings["gradient_clipping"] = Decision(0.5)
        changed = max_batch.with_batch(run, 3).lock.settings
        assert changed["train_micro_batch_size_per_gpu"] == Decision(3, "said so", "file")
        assert changed["train_batch_size"].value == 24 and changed["gradient_clipping"].value == 0.5
        assert changed["per_device_train_batch_size"].value == 2, "the plan does not have it"
        run.plan["train_batch_size"] = "auto"
        assert max_batch.with_batch(run, 3).plan["train_batch_size"] == "auto"
        for before in (0, None, "auto"):
            run.plan.update(train_batch_size=16, train_micro_batch_size_per_gpu=before)
            assert max_batch.with_batch(run, 3).plan["train_batch_size"] == 16
        run.plan.update(train_batch_size=7, train_micro_batch_size_per_gpu=1)
        assert max_batch.with_batch(run, 3).plan["train_batch_size"] == 21


PEAKS = {"init": 110, "forward": 160, "backward": 170, "step": 165, "save": 120}


class TestCompare:
    def compared(
        self,
        run: RunFolder,
        tmp_path: Path,
        strategies: list[str],
        ended: Callable[[Any, Any], dict[str, Any]] = lambda stage, batch: {},
        **more: Any,
    ) -> tuple[compare.Comparison, list[Any]]:
        """Pins of two sizes are offered; launches of a micro batch above 4 find no memory."""
        launched: list[Any] = []
        large = Reduced(2, {**MODEL, "num_hidden_layers": 2}, None, None, {}, {}, sequence=8)
        small = Reduced(2, {**MODEL, "num_hidden_layers": 1}, None, None, {}, {}, sequence=8)

        def launch(changed: RunFolder, options: Options) -> Any:
            stage = changed.plan.get("zero_optimization.stage")
            batch: Any = changed.plan["train_micro_batch_size_per_gpu"]
            launched.append((stage, batch, changed.pinned))
            changed.pinned = None
            if batch > 4:
                return verdict(changed, tmp_path, [out_of_memory(0, "host")], failure="RuntimeError: no memory")
            return verdict(changed, tmp_path, [report(at, PEAKS) for at in (0, 1)], **ended(stage, batch))

        def pin(changed: RunFolder, options: Options) -> Reduced:
            return small if changed.plan.get("zero_optimization.stage") == 2 else large

        found = compare.compare(run, strategies, Options(), launch, pin, **more)
        if "search" not in more:
            assert all(item[2] is small for item in launched), "one model for all: the smallest"
        return found, launched

    def test_each_in_its_turn(self, run: RunFolder, tmp_path: Path) -> None:
        told: list[Any] = []
        found, launched = self.compared(run, tmp_path, ["1", "2"], on_try=lambda *words: told.append(words))
        assert [item[:2] for item in launched] == [(1, 2), (2, 2)] and told == [("1", None), ("2", None)]
        assert [(row.strategy, row.ended, row.problem, row.batches) for row in found.rows] == [
            ("1", True, "", None),
            ("2", True, "", None),
        ]

    def test_a_search_of_each(self, run: RunFolder, tmp_path: Path) -> None:
        """The launch with the planned batch is not made twice, unless the search begins elsewhere."""
        told: list[Any] = []
        search: dict[str, int | None] = {"upper": 3, "launches": None}
        found, launched = self.compared(run, tmp_path, ["1"], search=search, on_try=lambda *item: told.append(item))
        assert [item[:2] for item in launched] == [(1, 2), (1, 3)]
        assert [(name, item and item.batch) for name, item in told] == [("1", None), ("1", 2), ("1", 3)]
        (row,) = found.rows
        assert row.batches is not None and row.batches.largest == 3 and row.verdict is row.batches.first
        run.plan["train_micro_batch_size_per_gpu"] = 4
        found, launched = self.compared(run, tmp_path, ["1"], search=search)
        assert [item[1] for item in launched] == [3, 4], "the search ends below the planned one"
        assert found.rows[0].verdict is not None and found.rows[0].verdict.run.plan["train_batch_size"] == 16

    def test_a_failure_is_a_row_and_an_interruption_the_last(self, run: RunFolder, tmp_path: Path) -> None:
        def failed(stage: Any, batch: Any) -> dict[str, Any]:
            return {"failure": "ValueError: x"} if stage == 1 else {"failure": "Ctrl-C", "interrupted": True}

        found, launched = self.compared(run, tmp_path, ["1", "2", "3"], failed)
        assert [row.problem for row in found.rows] == ["ValueError: x", "Ctrl-C"] and len(launched) == 2
        assert found.interrupted and not found.good and found.losses_agree is None

    def test_what_cannot_be_compared(self, run: RunFolder, tmp_path: Path) -> None:
        assert run.accelerate is not None
        with pytest.raises(SmokeError, match=r"^stages are compared only in runs that `zerocfg build` wrote$"):
            self.compared(replace(run, handwritten=SimpleNamespace()), tmp_path, ["1"])  # type: ignore[arg-type]
        fsdp = replace(run, accelerate=run.accelerate | {"distributed_type": "FSDP"})
        with pytest.raises(SmokeError, match=r"^--compare changes ZeRO stages; this run is one of FSDP$"):
            self.compared(fsdp, tmp_path, ["1"])
        assert self.compared(replace(run, accelerate=None), tmp_path, ["2"])[0].good

    def test_what_would_be_trained_here(self, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Found out in a folder of its own, that is gone afterwards."""
        asked: list[Any] = []

        def reduced(*words: Any, **named: Any) -> Any:
            assert words[3].is_dir() and words[3].name.startswith("zerocfg-smoke-")
            asked.append((*words, named))
            return "reduced"

        monkeypatch.setattr(compare, "reduce", reduced)
        found: Any = compare.pin_with(run, Options(ranks=3, device="cpu", limit=70, parts=("train",)))
        ((own, device, ranks, scratch, limit, named),) = asked
        assert found == "reduced" and own is run and (device.kind, ranks, limit) == ("cpu", 3, 70)
        assert named == {"parts": ("train",)} and not scratch.exists()


class TestWords:
    def row(self, run: RunFolder, tmp_path: Path, strategy: str, device: Any = CPU, ranks: int = 2, **more: Any) -> Any:
        ended = more.pop("ended", {})
        reports = [report(at, PEAKS, device is H100, **more) for at in range(ranks)]
        return compare.Row(strategy, verdict=verdict(run, tmp_path, reports, device, **ended))

    def test_a_row_as_data(self, run: RunFolder, tmp_path: Path) -> None:
        bare = compare.Row("2", ["x is dropped"], problem="no room")
        assert bare.data() == {
            "way": "2", "dropped": ["x is dropped"], "ended": False, "problem": "no room", "max_batch": None,
        }  # fmt: skip
        item = self.row(run, tmp_path, "2")
        item.verdict.checks += [Check("a", "1", "2", False), Check("b", "1", "1", True), Check("c", "", "", None)]
        item.batches = Found(run, 1, 1, None)
        data = item.data()
        assert data["peak_memory_bytes"] == [170 * MIB] * 2
        assert data["training_memory_bytes"] == [70 * MIB] * 2, "what it grew by"
        assert (data["loss"], data["failed_checks"], data["ended"]) == (4.0, ["a"], True)
        assert data["tokens_per_step"] == 2 * 2 * 32 * 2 and data["max_batch"]["run"] == "tiny"
        assert data["predicted"] == item.verdict.expected.data()
        card = self.row(run, tmp_path, "2", H100)
        card.verdict.expected = "not known"
        data = card.data()
        assert data["peak_memory_bytes"] == data["training_memory_bytes"] == [170 * MIB] * 2
        assert data["predicted"] == {"unknown": "not known"}

    def test_a_comparison_as_data(self, run: RunFolder, tmp_path: Path) -> None:
        rows = [self.row(run, tmp_path, "1"), compare.Row("2")]
        data = compare.Comparison(run, rows).data()
        first = rows[0].verdict
        assert {name: item for name, item in data.items() if name != "rows"} == {
            "version": 1,
            "run": "tiny",
            "device": {"kind": "cpu", "name": "cpu"},
            "ranks": 2,
            "reductions": first.reduced.descriptions,
            "losses_agree": None,
        }
        assert data["rows"] == [row.data() for row in rows] and first.reduced.descriptions
        none = compare.Comparison(run, rows[1:]).data()
        assert (none["device"], none["ranks"], none["reductions"]) == (None, None, [])

    def test_titles(self, run: RunFolder, tmp_path: Path) -> None:
        def title(**more: Any) -> str:
            return compare.title(compare.Comparison(run, [self.row(run, tmp_path, "2", **more)]))

        model = "tiny: llama of 82.2k parameters"
        assert title() == f"{model}, micro batch 2 x 32 tokens, 2 ranks on CPU"
        assert title(ranks=1) == f"{model}, micro batch 2 x 32 tokens, 1 rank on CPU"
        assert title(seen={}) == f"{model}, 2 ranks on CPU"
        assert title(device=H100).endswith(" tokens, 2 ranks on NVIDIA H100 80GB HBM3")
        unknown = self.row(run, tmp_path, "2")
        unknown.verdict.reduced.model = {}
        unknown.verdict.outcome.reports.clear()
        assert compare.title(compare.Comparison(run, [unknown])) == "tiny: model, 2 ranks on CPU"

    def test_cells_of_a_card(self, run: RunFolder, tmp_path: Path) -> None:
        from zerocfg.smoke.judge.measured import size

        row = self.row(run, tmp_path, "2", H100)
        predicted = size(row.verdict.expected.allocated.expected)
        assert row.verdict.expected.prediction.complete and compare._cells(row, True)[1:3] == ["0.17 GiB", predicted]
        low = SimpleNamespace(prediction=SimpleNamespace(complete=False), allocated=SimpleNamespace(expected=3 << 30))
        row.verdict.__dict__["expected"] = low
        row.verdict.__dict__["figures"] = replace(row.verdict.figures, seconds=0.0625, loss=0.0)
        assert compare._cells(row, True) == ["ZeRO-2", "0.17 GiB", "at least 3.00 GiB", "8,192", "62", "0.0000"]
        row.verdict.__dict__["expected"] = "not known"
        assert compare._cells(row, True)[2] == "-"

    def test_the_largest_growth_of_a_rank(self, run: RunFolder, tmp_path: Path) -> None:
        reports = [report(0, PEAKS), report(1, PEAKS, memory_start={"rss": 50 * MIB})]
        row = compare.Row("2", verdict=verdict(run, tmp_path, reports))
        assert compare._cells(row, False)[2] == "0.12 GiB", "170 less 50"

    def test_what_is_said_of_losses(self, run: RunFolder, tmp_path: Path) -> None:
        alike = [self.row(run, tmp_path, name, losses=[loss]) for name, loss in (("1", 4.0), ("2", 3.95), ("3", 9.0))]
        assert compare._about_losses(compare.Comparison(run, alike)) == [
            "Another loss is expected: ZeRO-3 makes the model in shards, and so its random weights in another order.",
            "The losses of ZeRO-1 and ZeRO-2 after the last step agree within 2%.",
        ]
        failed = [self.row(run, tmp_path, "3", ended={"failure": "x"}), alike[0]]
        assert compare._about_losses(compare.Comparison(run, failed)) == []

    def test_lines_around_the_table(self, run: RunFolder, tmp_path: Path) -> None:
        good, bad = self.row(run, tmp_path, "1"), self.row(run, tmp_path, "2", ended={"failure": "x"})
        good.dropped, bad.problem = ["a is dropped", "b is dropped"], "it broke"
        lines = compare.render(compare.Comparison(run, [good, bad])).splitlines()
        words = good.verdict.reduced.descriptions
        assert lines[1 : 1 + len(words)] == [f"  reduced  {item}" for item in words]
        at = lines.index("ZeRO-1: a is dropped")
        assert lines[at + 1 : at + 3] == ["ZeRO-1: b is dropped", "ZeRO-2 failed: it broke"] and lines[at - 1] == ""
        assert not any("largest batch" in line for line in lines) and not any("ZeRO-1 failed" in line for line in lines)
