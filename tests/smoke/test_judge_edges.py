"""Edges of the judge: just below and just above, the one rank that differs, what is there twice or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.smoke import compare, many, max_batch, max_batch_text, smoke
from zerocfg.smoke import text as screen
from zerocfg.smoke.certify import code, evidence
from zerocfg.smoke.certify.result import smoke_result
from zerocfg.smoke.judge import command, diagnosis, measured, prediction, requested_settings, settings, training
from zerocfg.smoke.judge.expected_settings import ZERO, expected, optimizer_class
from zerocfg.smoke.judge.figures import Figures
from zerocfg.smoke.judge.prediction import Expected, Sent
from zerocfg.smoke.judge.verdict import Verdict
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.max_batch import Bracket, Found, Try
from zerocfg.smoke.model.certificate import Check, Diagnosis, Failure, RecordedReduction
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.model.reduction import Kind, Reduced, Reduction
from zerocfg.smoke.model.size import Room, Size, Work
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.prepare.reduce import reduce
from zerocfg.smoke.smoke import Options

from . import test_settings as by_settings
from . import test_training as by_training
from .launched import MIB, report, verdict

if TYPE_CHECKING:
    from .conftest import MakeRun

CPU, CARD = Device("cpu", "cpu"), Device("cuda", "NVIDIA H100 80GB HBM3", 2, 80 << 30)


def reduced(**facts: Any) -> Reduced:
    empty: dict[str, Any] = {"model": {}, "accelerate": None, "deepspeed": None, "arguments": {}, "plan": {}}
    return Reduced(**({"ranks": 2} | empty | {"sequence": 8} | facts))


class TestMeasured:
    def rows(self, figures: Figures, known: Any = "not known", compiled: float = 0.0) -> dict[str, tuple[str, str]]:
        found = measured.check(figures, known, Outcome([], compiled=compiled))
        return {item.name: (item.planned, item.seen) for item in found}

    def test_what_was_sent_in_the_order_of_a_step(self) -> None:
        """Only kinds that were predicted or seen have a row; flags are zerocfg's own."""
        each: Any = {"calls": 1, "payload": 8, "sent": 1000, "seconds": 0.5}
        seen = {"broadcast": each, "flags": each | {"seconds": 0.25}, "reduce": each | {"calls": 2}, "all_gather": each}
        known: Any = SimpleNamespace(
            collectives=lambda: {"reduce": Sent(1, 1000), "all_gather": Sent(1, 800), "all_reduce": Sent(1, 5)},
            time=None,
        )
        assert self.rows(Figures(2, collectives=[seen, {}], last=2.0), known) == {
            "bytes sent by all_gather": ("predicted 800", "1,000 (+200, +25.0%) in 1 call, 0.5 s"),
            "bytes sent by all_reduce": ("predicted 5", "nothing"),
            "bytes sent by reduce": ("predicted 1,000", "1,000 in 2 calls, 0.5 s"),
            "bytes sent by broadcast": ("predicted 0", "1,000 in 1 call, 0.5 s"),
            "seconds in collectives": ("-", "1.75 of 2, in the step that was counted"),
        }
        alone = self.rows(Figures(2, collectives=[{"reduce": each}]))
        assert alone == {
            "bytes sent by reduce": ("-", "1,000 in 1 call, 0.5 s"),
            "seconds in collectives": ("-", "0.5"),
        }

    @pytest.mark.parametrize(("seconds", "shown"), [(0.99, None), (1.0, "1"), (12.6, "13")])
    def test_seconds_of_compiling(self, seconds: float, shown: str | None) -> None:
        row = self.rows(Figures(1), compiled=seconds).get("seconds of compiling operators")
        assert row == (None if shown is None else ("-", f"{shown}, outside the time limit"))

    def test_who_ran_out_first(self) -> None:
        """By the time that ranks tell, whatever their number."""
        error = {"type": "OutOfMemoryError", "text": "CUDA out of memory. Tried to allocate 2.00 GiB."}
        reports: list[Any] = [{"error": error | {"time": 3.0}}, {}, {"error": error | {"time": 2.0}}]
        assert measured.ran_out(Outcome(reports)) == (2, "card")
        other: list[Any] = [{"error": {"type": "ValueError", "text": "x"}}, *reports[1:]]
        assert measured.ran_out(Outcome(other)) == (2, "card")


class TestTraining:
    NAME = "resumes from a checkpoint"

    def resumed(self, **changes: Any) -> Check:
        item: Any = by_training.report(parts=by_training.part("resume", **changes))
        return {row.name: row for row in training.check([item], 3)}[self.NAME]

    def test_steps_before_the_checkpoint_count_only_where_something_is_apart(self) -> None:
        """A limit of 0.5 %: 4 and 3.981 are within it."""
        assert self.resumed(before=[5.0, 5.0]).ok is True
        other = [3.8, 3.8, 3.7, 9.0]
        assert self.resumed(losses=other, before=[4.0, 3.981]).ok is False
        assert self.resumed(losses=other, before=[4.0, 3.97]).ok is None
        item: Any = by_training.report(
            losses=[200.0] * 6, parts=by_training.part("resume", losses=[9.0] * 4, before=[199.0])
        )
        assert {row.name: row for row in training.check([item], 3)}[self.NAME].ok is False, "exactly at the limit"

    def test_the_number_of_parameters_that_rounding_changed(self) -> None:
        item, two = (by_training.report(parts=by_training.part("resume", differing=at)) for at in (1, 2))
        found = {row.name: row for row in training.check([item, two], 3)}
        assert found[self.NAME].seen == "from step 1: loss 3.7, 2 of 2 parameters by rounding apart", (
            "the most of a rank"
        )

    @pytest.mark.parametrize(("part", "begin"), [("reference", "not compared: "), ("resume", "")])
    def test_what_cut_it_short(self, part: str, begin: str) -> None:
        other = {"reference": "resume", "resume": "reference"}[part]
        parts = {part: {"state": "running"}, other: by_training.report()["parts"][other]}
        item: Any = by_training.report(parts=parts)
        name = {"reference": "loss as under ZeRO-0", "resume": self.NAME}[part]
        found = {row.name: row for row in training.check([item], 3, "the time limit")}
        assert found[name] == Check(name, "-", f"{begin}it did not come to its end: the time limit", None)


class TestSettings:
    def test_one_group_where_none_are_counted(self) -> None:
        planned: dict[str, object] = {f"{ZERO}stage": 3, f"{ZERO}offload_optimizer.ratio": 0.5}
        assert settings._states_on("cpu", planned, {}) == "cpu"  # type: ignore[typeddict-item]

    def test_each_setting_has_one_row(self) -> None:
        lock = {f"{ZERO}stage": 3, "bf16.enabled": True, "optimizer.type": "AdamW", "b": 1, "a": 2}
        run, less = by_settings.make(lock, {"zero_optimization": {"stage": 3}})
        names = [item.name for item in settings.check(run, less, [by_settings.report()] * 2)]
        assert len(set(names)) == len(names) and not {"bf16.enabled", "optimizer.type", f"{ZERO}stage"} & set(names)
        assert names[names.index("device") + 1 :] == ["a", "b", "lr_scheduler_type", "train_batch_size"]

    def test_an_optimizer_without_a_type_is_the_trainers(self) -> None:
        run, less = by_settings.make({}, {"optimizer": {"params": {"lr": 1}}})
        assert optimizer_class(expected(run, less), run, less) == "AdamW"
        run, less = by_settings.make({}, {"optimizer": {"type": "AdamW", "params": None}})
        assert optimizer_class(expected(run, less), run, less) == "FusedAdam"

    def test_a_word_that_is_no_batch(self) -> None:
        run, less = by_settings.make({"train_batch_size": 9}, {})
        less.plan["train_micro_batch_size_per_gpu"] = "auto"
        assert expected(run, less)["train_batch_size"] == 9


class TestDiagnosis:
    @pytest.mark.parametrize(("keys", "named"), [(("a", "beta"), True), (("a", "lr"), False), (("a", "eps"), False)])
    def test_short_keys_are_words_of_every_error(self, keys: tuple[str, ...], named: bool) -> None:
        place: Any = SimpleNamespace(keys=keys)
        assert diagnosis._in(place, f"ValueError: {keys[-1]} is wrong") is named

    def test_rules_of_one_name_are_two(self, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
        both = [Diagnosis(name, "same", None, None, None, "", "", "error") for name in ("ZC1", "ZC2")]
        monkeypatch.setattr(diagnosis, "linked_run", lambda folder: None)
        monkeypatch.setattr(diagnosis, "lint_findings", lambda linked: [])
        monkeypatch.setattr(diagnosis, "_of_error", lambda outcome, findings: both)
        run = read(make_run(3))
        assert diagnosis.diagnose(run, [], Outcome([], "x")) == both
        asked: list[Any] = []
        monkeypatch.setattr("zerocfg.smoke.judge.verdict.diagnose", lambda *words: asked.append(words) or both)
        item = Verdict(run, CPU, reduced(), Outcome([], "x"))
        assert item.diagnosis == both and asked == [(run, item.checks, item.outcome)]


class TestCommand:
    def test_the_first_rank_speaks_for_the_training(self, tmp_path: Path) -> None:
        (tmp_path / "reports").mkdir()
        first = {"step_seconds": [1.0, 1.0], "command": {"loop": "torch"}, "weights": {}}
        second = {"step_seconds": [1.0], "command": {"loop": "Trainer", "stopped": True, "saved": "no"}}
        both: list[Any] = [first, second]
        assert command._notes(both, 3, tmp_path / "written", CPU) == [
            "training: a loop of torch alone, ended by itself after 2 optimizer steps",
            "saving: the script's own, checked",
        ]
        assert command._notes(both[::-1], 3, tmp_path / "written", CPU) == [
            "training: the Trainer, stopped by zerocfg after 1 optimizer step",
            "use_cpu: true was added to its TrainingArguments; else each rank would train alone",
        ]
        assert command._unsaved(both) is None and command._unsaved(both[::-1]) == "no"
        assert command._loop([{}, {"command": {"loop": None}}, first]) == "torch"  # type: ignore[list-item, typeddict-item]
        assert command._loop([{}]) is None  # type: ignore[list-item]

    def test_weights_that_were_checked_are_no_reduction(
        self, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told = {"loop": "torch", "world_size": 4}
        reports: list[Any] = [{"step_seconds": [1.0], "command": told, "weights": {}}]
        (tmp_path / "reports").mkdir()
        launched = SimpleNamespace(outcome=Outcome(reports), unwatched=None, configs=[])
        monkeypatch.setattr(command, "launch", lambda *_: launched)
        found = command.run_command("go", read(make_run(3)), CPU, 3, None, 70.0, tmp_path)
        assert found.reduced.changes == [] and found.checks == [] and found.command.loop == "torch"


class TestEvidence:
    @pytest.mark.parametrize(
        ("change", "over"),
        [
            (Reduction(Kind.SHARED_CARD, run={"collectives": "nccl"}), "NCCL"),
            (Reduction(Kind.SHARED_CARD, run={"collectives": "gloo"}), "gloo"),
            (Reduction(Kind.NODES, run={"collectives": "gloo"}), "NCCL"),
            (Reduction(Kind.WORLD_SIZE, 4, 2), "NCCL"),
        ],
    )
    def test_how_ranks_of_one_card_communicate(self, make_run: MakeRun, change: Reduction, over: str) -> None:
        item: Any = SimpleNamespace(
            run=read(make_run(3)), device=replace(CARD, shared=True), reduced=reduced(changes=[change])
        )
        assert evidence._ranks(item) == [f"communication between 4 ranks: 2 on one machine communicated, over {over}"]
        item.device = CARD
        assert evidence._ranks(item)[0].endswith("over NCCL")


class TestCode:
    def write(self, top: Path, **files: str) -> None:
        for name, text in files.items():
            place = top / name.replace("__", "/").replace("_py", ".py")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)

    def hashed(self, top: Path, script: str = "train.py", folder: str = "../pkg") -> list[str]:
        lock: Any = SimpleNamespace(script=script, spec_folder=folder)
        return list(code.code_hashes(top / "built", lock))

    def test_modules_of_the_repository_around_the_spec(self, tmp_path: Path) -> None:
        self.write(tmp_path, pkg__train_py="import helper\nfrom . import own\n", helper_py="", pkg__own_py="")
        assert self.hashed(tmp_path) == ["own.py", "train.py"], "there is no repository: the folder alone"
        (tmp_path / ".git").mkdir()
        assert self.hashed(tmp_path) == ["../helper.py", "own.py", "train.py"]

    def test_scripts_that_cannot_be_read(self, tmp_path: Path) -> None:
        self.write(tmp_path, pkg__train_py="import own\nprint(\n", pkg__own_py="")
        assert self.hashed(tmp_path) == ["train.py"], "what it imports is not known"
        assert self.hashed(tmp_path, "gone.py") == [] == self.hashed(tmp_path, "")
        assert self.hashed(tmp_path, folder="../pkg\0") == []

    def test_as_many_modules_as_are_allowed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.write(tmp_path, pkg__train_py="import a\n", pkg__a_py="import b\n", pkg__b_py="import c\n", pkg__c_py="")
        assert self.hashed(tmp_path) == ["a.py", "b.py", "c.py", "train.py"]
        monkeypatch.setattr(code, "BOUND_MODULES", 3)
        assert self.hashed(tmp_path) == ["a.py", "b.py", "train.py"]


class TestResult:
    def test_of_a_verdict(self, make_run: MakeRun) -> None:
        changes = [Reduction(Kind.LAYERS, 32, 2, why="x"), Reduction(Kind.SAVING, why="left out")]
        first = {"seen": {"device_name": "the driver's name"}, "step_seconds": [1.0], "losses": [4.0, 3.0]}
        reports: list[Any] = [first, {"instruments": {"a": "", "b": "broke"}}]
        outcome = Outcome(reports, "it broke", 1, ["x", "y"], seconds=7.46)
        verdict = Verdict(read(make_run(3)), CARD, reduced(changes=changes), outcome, [Check("a", "1", "1", True)])
        verdict.__dict__.update(expected="not known", diagnosis=[])
        found = smoke_result(verdict)
        assert (found.run, found.state, found.device_kind, found.ranks) == ("tiny", "failed", "cuda", 2)
        assert found.device_name == "the driver's name" and found.checks == (Check("a", "1", "1", True),)
        assert found.reductions == tuple(RecordedReduction(item.kind.value, str(item), item.data()) for item in changes)
        assert found.failure == Failure("it broke", 1, ("x", "y"), "launch")
        assert (found.instruments, found.not_measured) == (("a",), {"b": "broke (rank 1)"})
        assert (found.measured.seconds, found.measured.step_seconds, found.measured.losses) == (7.5, (1.0,), (4.0, 3.0))
        assert found.measured.predicted == {"unknown": "not known"} and found.command is None
        assert found.unmeasured == tuple(verdict.unmeasured) and "engine" in found.unmeasured
        data = SimpleNamespace(data=lambda: {"allocated": [1, 2, 3]})
        bare = Verdict(verdict.run, CARD, reduced(), Outcome([]), [])
        bare.__dict__.update(expected=data, diagnosis=[Diagnosis("Z", "z", None, None, None, "", "", "error")])
        bare.__dict__["figures"] = Figures(2, seconds=0.5)
        found = smoke_result(bare)
        assert (found.device_name, found.failure, found.measured.losses) == (CARD.name, None, ())
        assert found.measured.predicted == {"allocated": [1, 2, 3]} and found.measured.median == 0.5
        assert found.diagnosis == tuple(bare.diagnosis)


class TestSearchWords:
    def test_the_table_of_launches(self, make_run: MakeRun) -> None:
        """Figures stand right; of long reasons 120 letters are shown."""
        tries = [Try(16, False, None, None, 2.0, "x" * 121), Try(2, True, 600 * MIB, 1900.0, 13.6)]
        found = Found(read(make_run(3)), 2, 64, None, tries, Bracket(64, 2, 16))
        assert max_batch_text.render(found).splitlines()[:6] == [
            "tiny: ; nothing predicted, 2 launches",
            "",
            "micro batch  fits      peak  tokens/s  launch",
            "          2   yes  0.59 GiB     1,900    14 s",
            f"         16    no         -         -     2 s  {'x' * 120}",
            "",
        ]

    @pytest.mark.parametrize(
        ("consumer", "key"),
        [
            ("transformers", "per_device_train_batch_size"),
            ("trl", "per_device_train_batch_size"),
            ("accelerate", "train_micro_batch_size_per_gpu"),
            ("deepspeed", "train_micro_batch_size_per_gpu"),
        ],
    )
    def test_the_key_that_the_reader_reads(self, make_run: MakeRun, consumer: str, key: str) -> None:
        run = read(make_run(3, consumer=consumer))
        verdict: Any = SimpleNamespace(
            run=run, reduced=reduced(ranks=4, model=run.lock.model_config), outcome=Outcome([]), device=CPU
        )
        found = Found(run, 2, 64, None, [Try(3, True, 1, 9.0, 1.0)], Bracket(64, 3, 4), verdict)
        words = f"Write {key}: 3. With 2 accumulation steps the global batch becomes 24 instead of 16."
        assert max_batch_text.advice(found, 3) == [words]
        kept = "; gradient_accumulation_steps: 1 would keep it."
        assert max_batch_text.advice(found, 4)[0].endswith(f"becomes 32 instead of 16{kept}")


class TestKept:
    def test_a_folder_that_is_there_already(self, tmp_path: Path) -> None:
        made, keep = tmp_path / "made", tmp_path / "keep"
        for place, text in ((made / "weights" / "a", "new"), (keep / "weights" / "a", "old"), (keep / "mine", "mine")):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        (made / "empty").mkdir()
        assert smoke._keep(made, smoke._kept_in(keep)) == keep
        assert (keep / "weights" / "a").read_text() == "new" and (keep / "mine").read_text() == "mine"
        assert (keep / "empty").is_dir()

    def test_configs_by_hand_need_the_engine_that_they_name(
        self, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = replace(read(make_run(3)), deepspeed=None)
        monkeypatch.setattr("zerocfg.smoke.smoke.importlib.util.find_spec", lambda name: name != "deepspeed" or None)
        smoke._require(run)
        by_hand: Any = SimpleNamespace(run=SimpleNamespace(deepspeed=None))
        smoke._require(replace(run, handwritten=by_hand))
        by_hand.run.deepspeed = object()
        with pytest.raises(SmokeError, match=r"^deepspeed is not installed; .*: pip install 'zerocfg\[smoke\]'$"):
            smoke._require(replace(run, handwritten=by_hand))


class TestRequested:
    @pytest.mark.parametrize(
        ("ranks", "seen", "fits"), [(1, "single", True), (1, "ddp", False), (2, "ddp", True), (2, "single", False)]
    )
    def test_ddp_on_one_rank_is_one_process(self, ranks: int, seen: str, fits: bool) -> None:
        assert requested_settings.fits("engine", "ddp", seen, reduced(ranks=ranks)) is fits

    def test_rows_of_a_plan_that_files_do_not_ask_for_stay(self) -> None:
        planned = [Check("a", "1", "1", True), Check("ZeRO stage", "3", "2", False)]
        reports: Any = [{"seen": {"stage": 2}}]
        assert requested_settings.replace_planned(planned, {}, reduced(), reports) == [
            Check("ZeRO stage", "-", "2", None),
            Check("a", "1", "1", True),
        ]


class TestSearches:
    def test_the_bounds_of_a_search_that_ended_at_once(self, make_run: MakeRun, tmp_path: Path) -> None:
        run = read(make_run(3))

        def launch(changed: Any, options: Any) -> Any:
            return verdict(changed, tmp_path, [report(0, {})], failure="ValueError: x")

        for upper, first in ((8, 2), (1, 1), (None, 2)):
            found = max_batch.find(run, Options(), launch, upper=upper)
            assert (found.upper, found.guess, found.bracket) == (upper or 4096, first, None)

    def test_one_sample_is_the_end(self, make_run: MakeRun, tmp_path: Path) -> None:
        run = read(make_run(3))
        found = max_batch.find(
            run, Options(), lambda item, _: verdict(item, tmp_path, [report(0, {"step": 1})]), upper=1
        )
        assert (found.upper, found.largest, len(found.tries), found.certain) == (1, 1, 1, True)

    def test_just_below_what_does_not_fit(self) -> None:
        asked: list[int] = []

        def fits(batch: int) -> bool:
            asked.append(batch)
            return True

        bracket = max_batch.search(fits, 20, 64, known=Bracket(64, 0, 2))
        assert asked == [1] and (bracket.low, bracket.high) == (1, 2)

    def test_last_words_of_a_launcher(self) -> None:
        """The failure itself may hold them."""
        words = "terminate called: std::bad_alloc"
        said = "a library found no memory of the host"
        assert max_batch.no_memory(Outcome([], words, kind="launcher")) == said
        assert max_batch.no_memory(Outcome([], None, kind="killed", detail=[words])) == said
        assert max_batch.no_memory(Outcome([], kind="memory")) == "memory ran out"
        assert max_batch.no_memory(Outcome([], words)) == ""

    def test_the_dtype_of_the_first_rank(self, make_run: MakeRun, tmp_path: Path) -> None:
        seen: list[dict[str, Any]] = [{"dtype": "fp32", "micro_batch": 3}, {"dtype": "bf16", "micro_batch": 5}]
        run = read(make_run(3))

        def row(*some: dict[str, Any]) -> compare.Row:
            reports = [report(at, {"step": 1}, seen=item) for at, item in enumerate(some)]
            return compare.Row("0", verdict=verdict(run, tmp_path, reports))

        assert compare.unlike(row(*seen)) == "" and compare.unlike(row(*seen[::-1])).startswith("ZeRO-0 in 16 bit")
        assert ", micro batch 3 x 32 tokens, " in compare.title(compare.Comparison(run, [row(*seen)]))

    def test_a_table_of_strategies(self, make_run: MakeRun, tmp_path: Path) -> None:
        """Figures stand right."""
        run = read(make_run(3))
        rows = [compare.Row("ddp", problem="no room")]
        reports = [report(at, {"init": 110, "step": 170}) for at in (0, 1)]
        rows.append(compare.Row("2", verdict=verdict(run, tmp_path, reports)))
        lines = compare.render(compare.Comparison(run, rows)).splitlines()
        at = next(at for at, line in enumerate(lines) if "tokens/s" in line)
        assert lines[at : at + 3] == [
            "        peak RSS  for training  tokens/s  ms/step    loss",
            "DDP            -             -         -        -       -",
            "ZeRO-2  0.17 GiB      70.0 MiB       512      500  4.0000",
        ]


class TestPrediction:
    def test_where_hardware_comes_from(self) -> None:
        found = prediction.profile_of(CARD, 2)
        assert found is not None and found.origin == prediction._here(reduced()).origin == "catalogue"
        assert prediction._here(reduced()).name == prediction._here(reduced()).accelerator.name == "cpu"

    def test_compiled_kernels_take_another_time(self, make_run: MakeRun, tmp_path: Path) -> None:
        run = read(make_run(3))
        expected = prediction.expect(reduce(run, CARD, 2, tmp_path), CARD, "transformers")
        profile = prediction.profile_of(CARD, 2)
        assert isinstance(expected, Expected)
        compiled = replace(expected.setup, kernels="compiled")
        found = prediction._time(expected.facts, compiled, profile)
        assert found is not None and expected.time is not None and found.seconds != expected.time.seconds

    def test_a_batch_that_was_seen_and_is_not_predicted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Then all that was seen is taken to stay."""

        def expect(less: Any, device: Any, consumer: str, size: int) -> Any:
            if size == 4:
                return "not known"
            held = SimpleNamespace(expected=100 + 10 * size)
            return SimpleNamespace(prediction=SimpleNamespace(complete=True), allocated=held)

        monkeypatch.setattr(prediction, "expect", expect)
        assert prediction.largest_expected(reduced(), CPU, "x", 1119, (4, 1000)) == 1
        assert prediction.largest_expected(reduced(), CPU, "x", 1120, (4, 1000)) == 4


class TestMany:
    def test_long_words_are_cut(self) -> None:
        def first(state: str, **more: Any) -> str:
            given = {"outcome": Outcome([]), "unmeasured": [], "checks": []} | more
            return many._first(many.Result(Path("x"), SimpleNamespace(state=state, **given)))  # type: ignore[arg-type]

        assert first("incomplete", unmeasured=["u" * 200]) == f"not measured: {'u' * 146}"
        checks = [Check("c", "p" * 200, "s", False)]
        assert first("failed", checks=checks) == f"c: planned {'p' * 149}"

    def test_figures_stand_right(self) -> None:
        results = [many.Result(Path("a/b"), problem="no lock"), many.Result(Path("a"), problem="no")]
        assert many.summary(results).splitlines() == [
            "run  verdict    seconds",
            "a/b  not tried        -  no lock",
            "a    not tried        -  no",
        ]


class TestNarrowTerminals:
    """A name that hangs has a line of its own; texts are wrapped, down to a least width."""

    def test_the_table_of_checks(self) -> None:
        """Names up to 32 letters, planned values down to 12, seen ones down to 16."""
        first = Check("n" * 32, f"{'a' * 6} {'b' * 6}", f"{'c' * 8} {'d' * 8}", True)
        checks = [first, Check("m" * 33, "p", "s", False)]
        assert screen.table(SimpleNamespace(checks=checks), 30) == [  # type: ignore[arg-type]
            f"check{' ' * 27}  planned       seen",
            f"{'n' * 32}  aaaaaa        cccccccc          ok",
            f"{' ' * 32}  bbbbbb        dddddddd",
            "m" * 33,
            f"{' ' * 32}  p             s                 FAIL",
        ]

    def test_the_table_of_runs(self) -> None:
        """Names up to 24 letters, reasons down to 24."""
        reason = f"{'a' * 12} {'b' * 12}"
        results = [many.Result(Path("n" * 24), problem=reason), many.Result(Path("m" * 25), problem="x")]
        assert many.summary(results, 30).splitlines() == [
            f"run{' ' * 21}  verdict    seconds",
            f"{'n' * 24}  not tried        -  aaaaaaaaaaaa",
            f"{' ' * 46}bbbbbbbbbbbb",
            "m" * 25,
            f"{' ' * 24}  not tried        -  x",
        ]

    def test_the_table_of_launches(self, make_run: MakeRun) -> None:
        """Reasons down to 24 letters."""
        tries = [Try(2, False, None, None, 2.0, f"{'a' * 12} {'b' * 12}")]
        found = Found(read(make_run(3)), 2, 64, None, tries, Bracket(64, 0, 2))
        lines = max_batch_text.render(found, 60).splitlines()
        assert lines[3:5] == [
            f"          2    no     -         -     2 s  {'a' * 12}",
            f"{' ' * 43}{'b' * 12}",
        ]


class TestSize:
    def test_a_disk_and_a_time_that_are_just_enough(self) -> None:
        """Ten parameters take 220 bytes of files; no parameters take the 30 s of a start, 60 % of 50."""
        room = Room(device=None, host=None, disk=220, seconds=1e6)
        assert Size(10, 0, 0).against(room) is None
        assert Size(10, 0, 0).against(replace(room, disk=219)) == "0.0 of 0.0 GiB of disk space"
        assert Size(0, 0, 0).against(replace(room, seconds=50.0)) is None
        late = Size(0, 0, 0).against(replace(room, seconds=49.0))
        assert late is not None and late.startswith("about 30 s, ")

    @pytest.mark.parametrize(("parameters", "needed"), [(157_900_000, False), (158_000_000, True)])
    def test_resuming_alone_may_need_a_copy(self, parameters: int, needed: bool) -> None:
        """63.3 ns a parameter, of 10 s."""
        assert Work(compares=False).needs_copy(parameters) is needed
