"""What a smoke-run says it proved, what a model needs, what files ask for and what nodes say, case by case by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.smoke.certify import evidence
from zerocfg.smoke.judge.prediction import expect
from zerocfg.smoke.launch import command as launched
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.max_batch import with_batch
from zerocfg.smoke.model import size
from zerocfg.smoke.model.certificate import STEPS, Check
from zerocfg.smoke.model.reduction import Kind, Reduced, Reduction
from zerocfg.smoke.model.size import CUT_SHARE, GIB, LEAST_SHARE, WHOLE_SHARE, Room, Size, Work
from zerocfg.smoke.prepare import handwritten, requested_settings
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.prepare.reduce import CPU_PARAMETERS, _model
from zerocfg.smoke.prepare.shrink import LIMITS, shrink
from zerocfg.smoke.remote import gather, submit

if TYPE_CHECKING:
    from zerocfg.smoke.prepare.folder import RunFolder

    from .conftest import MakeRun

CPU, CARD = Device("cpu", "cpu"), Device("cuda", "NVIDIA H100 80GB HBM3", 2, 80 << 30)


@pytest.fixture
def run(make_run: MakeRun) -> RunFolder:
    return read(make_run(3))


def reduced(**facts: Any) -> Reduced:
    empty: dict[str, Any] = {"model": {}, "accelerate": None, "deepspeed": None, "arguments": {}, "plan": {}}
    return Reduced(**({"ranks": 2} | empty | {"sequence": 8} | facts))


def verdict(run: RunFolder, *checks: Check, device: Device = CPU, seen: Any = None, **more: Any) -> Any:
    own = {"engine": "deepspeed", "stage": 2, "dtype": "bf16"} if seen is None else seen
    reports = more.pop("reports", [{"seen": own, "losses": [2.0], "step_seconds": [1.0]}])
    outcome = Outcome(reports, **more.pop("outcome", {}))
    figures = SimpleNamespace(peak=lambda: more.get("peak"))
    return SimpleNamespace(
        run=run,
        checks=list(checks),
        device=device,
        outcome=outcome,
        reduced=more.get("reduced") or reduced(**more.get("facts", {})),
        command=more.get("command"),
        figures=figures,
    )


def ok(name: str, planned: str = "x", seen: str = "y", further: str = "") -> Check:
    return Check(name, planned, seen, True, further)


class TestProven:
    def proven(self, run: RunFolder, *checks: Check, **more: Any) -> list[str]:
        return evidence._proven(verdict(run, *checks, **more))

    def test_training(self, run: RunFolder) -> None:
        assert self.proven(run, ok(STEPS, "3")) == ["ZeRO-2 trains 3 optimizer steps in bf16 on 2 ranks of a processor"]
        falls = self.proven(run, ok(STEPS, "1"), ok("loss falls"), facts={"ranks": 1}, device=CARD)
        assert falls == [f"ZeRO-2 trains 1 optimizer step in bf16 on 1 rank of {CARD.name}, and the loss falls"]
        assert self.proven(run, facts={"nodes": 2})[0].endswith(
            "1 optimizer step in bf16 on 2 ranks of a processor on 2 nodes"
        )
        none = [{"seen": {"engine": "ddp", "dtype": "fp32"}, "losses": [], "step_seconds": [1.0]}]
        assert self.proven(run, ok("engine"), reports=none) == ["DDP is set up in fp32 on 2 ranks of a processor"]
        assert self.proven(run, reports=none) == []
        unknown = [{"seen": {}, "losses": [1.0], "step_seconds": [1.0]}]
        assert self.proven(run, ok(STEPS, "3"), reports=unknown) == []
        trl = self.proven(run, ok(STEPS, "3"), facts={"trainer": "DPOTrainer"})
        assert trl[0].startswith("ZeRO-2 with TRL's DPOTrainer trains")

    def test_steps_that_were_seen(self, run: RunFolder) -> None:
        def steps(*reports: Any) -> int:
            return evidence._steps(verdict(run, reports=list(reports)))

        good = {"losses": [1.0], "step_seconds": [1.0, 1.0]}
        assert steps(good, {**good, "step_seconds": [1.0]}) == 1
        assert steps(good, {**good, "losses": [float("nan")]}) == steps(good, {"step_seconds": [1.0]}) == 0

    def test_what_ranks_hold(self, run: RunFolder) -> None:
        shards = [ok("parameters of a rank", "1/2"), ok("optimizer states of a rank", "1/2"), ok("x of a rank", "all")]
        found = self.proven(run, *shards)[1:]
        assert found == ["each of 2 ranks holds its shard of the parameters and optimizer states"]
        offload = [ok("optimizer states on", "cpu"), ok("parameters on", "cuda")]
        assert self.proven(run, *offload)[1:] == ["the optimizer's states are in host memory"]

    @pytest.mark.parametrize(
        ("engine", "stage", "more", "said"),
        [
            ("ddp", None, False, True),
            ("deepspeed", 0, False, True),
            ("deepspeed", 1, False, False),
            ("deepspeed", 1, True, True),
            ("fsdp", None, False, False),
            ("fsdp", None, True, True),
        ],
    )
    def test_gradients_are_averaged_where_that_was_seen(
        self, run: RunFolder, engine: str, stage: int | None, more: bool, said: bool
    ) -> None:
        checks = [ok("parameters alike on all ranks")] + [ok("gradients as under ZeRO-0")] * more
        found = self.proven(run, *checks, seen={"engine": engine, "stage": stage, "dtype": "bf16"})[1]
        words = "all ranks hold the same parameters after the steps"
        assert found == (f"gradients are synchronised: {words}" if said else words)

    def test_comparisons_settings_and_weights(self, run: RunFolder) -> None:
        checks = [
            ok("loss as under ZeRO-0", seen="0.1 % apart"),
            ok("gradients as under ZeRO-0"),
            ok("a", further="acting"),
            ok("b", further="acting"),
            ok("c", further="parsed"),
            ok("saved parameters", seen="10 in x"),
            ok("saved values"),
            ok("loaded by from_pretrained"),
            ok("resumes from a checkpoint"),
        ]
        assert self.proven(run, *checks)[1:] == [
            "losses and gradients are those of ZeRO-0 (0.1 % apart)",
            "2 more settings are as planned where the engine uses them",
            "saved weights are complete and equal those of the live model (10 in x), and from_pretrained loads them",
            "a checkpoint resumes with the same next loss",
        ]
        few = [checks[0], checks[2], checks[5], checks[8]]
        assert self.proven(run, *few, facts={"copy": {}})[1:] == [
            "losses are those of ZeRO-0 (0.1 % apart)",
            "one more setting is as planned where the engine uses them",
            "saved weights are complete (10 in x)",
            "a checkpoint resumes with the same next loss in a narrow copy",
        ]

    def test_memory_of_a_card(self, run: RunFolder) -> None:
        card: dict[str, Any] = {"device": CARD, "peak": 3 * GIB // 2}
        assert (
            self.proven(run, **card)[-1] == "the whole model in 1.5 GiB of tensors of a rank, with samples of 8 tokens"
        )
        cut = self.proven(run, facts={"layers": (32, 2)}, **card)[-1]
        assert cut.startswith("2 of 32 layers, all widths as planned, in 1.5 GiB")
        for other in ({**card, "device": CPU}, {**card, "peak": None}, {**card, "command": object()}):
            assert not self.proven(run, **other)[-1].endswith("tokens")
        assert not self.proven(run, facts={"narrow": True}, **card)[-1].endswith("tokens")


class TestNotProven:
    def test_where_it_ended(self, run: RunFolder) -> None:
        reports = [{"phase": "step 2", "step_seconds": [1.0], "done": True}, {"phase": "init", "step_seconds": []}]
        failed = verdict(run, reports=reports, outcome={"failure": "x"})
        assert evidence.evidence(failed).not_proven == ("what comes from 'init' on: the run ended there",)
        assert evidence.failed_stage(Outcome(reports, failure="x", rank=0)) == "step 2"  # type: ignore[arg-type]
        assert evidence.failed_stage(Outcome(reports, failure="x", rank=7)) == "init"  # type: ignore[arg-type]
        assert evidence.failed_stage(Outcome([], failure="x")) == ""
        assert evidence.failed_stage(Outcome([{"done": True}], failure="x")) == "launch"
        assert evidence.evidence(verdict(run, reports=[])) == evidence.Evidence((), ())

    @pytest.mark.parametrize(
        ("planned", "nodes", "ranks", "device", "said"),
        [
            (4, 1, 2, CPU, ["communication between 4 ranks: 2 on one machine communicated, over gloo"]),
            (4, 1, 2, CARD, ["communication between 4 ranks: 2 on one machine communicated, over NCCL"]),
            (4, 2, 1, CARD, ["communication between 4 ranks on 2 nodes: only one ran"]),
            (2, 2, 2, CARD, ["communication between 2 ranks on 2 nodes: 2 on one machine communicated, over NCCL"]),
            (2, 1, 2, CARD, []),
            (2, 1, 2, CPU, ["NCCL: the ranks communicated over gloo"]),
            (1, 1, 1, CPU, []),
            (None, 1, 2, CPU, []),
        ],
    )
    def test_ranks(self, run: RunFolder, planned: Any, nodes: int, ranks: int, device: Device, said: list[str]) -> None:
        run.plan.update(num_processes=planned, num_machines=nodes)
        run.lock.hardware["vendor"] = "nvidia"
        assert evidence._ranks(verdict(run, device=device, facts={"ranks": ranks})) == said
        run.lock.hardware["vendor"] = "cpu"
        assert not [
            item for item in evidence._ranks(verdict(run, device=device, facts={"ranks": ranks})) if "NCCL:" in item
        ]

    def test_ranks_that_share_a_card(self, run: RunFolder) -> None:
        shared = replace(CARD, shared=True)
        change = Reduction(Kind.SHARED_CARD, run={"collectives": "gloo"})
        for changes, over in (([change], "gloo"), ([], "NCCL")):
            item = verdict(run, device=shared)
            item.reduced.changes += changes
            assert evidence._ranks(item)[0].endswith(f"over {over}")
        assert evidence._device(verdict(run, device=shared)) == ["times, and ranks with one card each: they shared one"]

    @pytest.mark.parametrize(
        ("planned", "device", "said"),
        [
            ("H100-SXM", CPU, ["memory, kernels and speed of H100-SXM: a processor ran"]),
            ("H200", CARD, [f"memory and speed of H200: {CARD.name} ran"]),
            ("H200", Device("cuda", "Card X"), ["memory and speed of H200: Card X ran"]),
            ("cpu", CPU, []),
            (None, CPU, []),
        ],
    )
    def test_another_accelerator(self, run: RunFolder, planned: str | None, device: Device, said: list[str]) -> None:
        run.lock.hardware["accelerator"] = planned
        assert evidence._device(verdict(run, device=device)) == said

    @pytest.mark.parametrize(
        ("rates", "least", "said"),
        [
            (
                [0.0, 1e-5, None],
                1e-4,
                ["steps with the planned learning rate, 1e-05 at most so early: 0.0001 was used"],
            ),
            ([0.0, 1e-4], 1e-4, []),
            ([None], 1e-4, []),
            ([1e-5], None, []),
        ],
    )
    def test_another_learning_rate(
        self, run: RunFolder, rates: list[Any], least: float | None, said: list[str]
    ) -> None:
        item = verdict(run, reports=[{"rates": rates} | ({} if least is None else {"trial_rate": least})])
        assert evidence._rate(item) == said

    def test_drives(self, run: RunFolder) -> None:
        key = "zero_optimization.offload_optimizer.device"
        assert evidence._drives(verdict(run)) == []
        run.plan[key] = "nvme"
        assert evidence._drives(verdict(run)) == ["offload_optimizer to NVMe: host memory was used instead"]
        there = verdict(run, facts={"plan": {key: "nvme"}})
        assert evidence._drives(there) == []
        there.reduced.changes.append(Reduction(Kind.OPTIMIZER_DRIVE))
        assert evidence._drives(there) == ["offload_optimizer: speed and space of the planned drive"]
        fsdp = verdict(run, facts={"plan": {key: "nvme"}})
        fsdp.reduced.changes.append(Reduction(Kind.FSDP_OFFLOAD, True, False))
        assert evidence._drives(fsdp) == ["FSDP's offload of parameters to the host: it was off"]

    def test_what_a_recipe_asks_for(self, run: RunFolder) -> None:
        assert evidence._recipe(verdict(run)) == []
        run.lock.recipe.update(
            {
                "use_peft": True,
                "attn_implementation": "eager",
                "use_liger_kernel": True,
                "use_vllm": True,
            }
        )
        said = evidence._recipe(verdict(run, facts={"trainer": "GRPOTrainer"}))
        assert [words.partition(":")[0] for words in said] == [
            "LoRA adapters",
            "attention by eager",
            "Liger kernels",
            "the reward functions",
            "generation by vLLM, its memory and its weights",
        ]
        assert len(evidence._recipe(verdict(run, facts={"trainer": "DPOTrainer"}))) == 3
        run.lock.recipe.clear()
        trl = replace(run, lock=replace(run.lock, consumer="trl"))
        assert evidence._recipe(verdict(trl, facts={"trainer": "DPOTrainer"})) == []
        assert evidence._recipe(verdict(trl, facts={"no_trainer": "no trl"}))[0].endswith("transformers ran (no trl)")

    def test_settings_that_are_not_seen(self, run: RunFolder) -> None:
        def said(count: int) -> list[str]:
            return evidence._unseen(verdict(run, *(Check(f"s{n}", "1", "-", None, "unseen") for n in range(count))))

        assert said(0) == [] and said(1) == ["a setting that the engine does not expose: s0"]
        assert said(4) == ["4 settings that the engine does not expose: s0, s1, s2, s3"]
        assert said(6) == ["6 settings that the engine does not expose: s0, s1, s2, s3 and 2 more"]
        assert evidence._and(["a"]) == "a" and evidence._and(["a", "b", "c"]) == "a, b and c"

    def test_fp16(self, run: RunFolder) -> None:
        assert evidence._precision(run, verdict(run)) == []
        run.plan["fp16.enabled"] = True
        assert evidence._precision(run, verdict(run)) == ["fp16 and its loss scale: bf16 ran"]
        assert evidence._precision(run, verdict(run, facts={"plan": {"fp16.enabled": True}})) == []


class TestSize:
    """A billion parameters; nanoseconds a parameter are seconds."""

    PARAMETERS = 10**9

    def test_seconds_of_each_part(self) -> None:
        disk = Work().seconds(self.PARAMETERS)
        assert disk == {
            "weights and engine": pytest.approx(6.0),
            "training": pytest.approx(3 * 1.5),
            "saving": pytest.approx(4 * 1.6),
            "reading back": pytest.approx(6.0),
            "checkpoint and resume": pytest.approx(2 * 6.0 + 3 * 1.5 + 18 * (1.6 + 1.0)),
            "comparison with ZeRO-0": pytest.approx(6.0 + 3.0 + 3 * 1.5),
        }
        memory = Work(on_host=True).seconds(self.PARAMETERS, in_memory=True)
        assert memory["training"] == pytest.approx(3 * 8.0) and memory["saving"] == pytest.approx(4.0)
        assert memory["checkpoint and resume"] == pytest.approx(12.0 + 24.0 + 18 * 2.0)
        assert memory["comparison with ZeRO-0"] == pytest.approx(9.0 + 4.5), "on the card"
        few = Work(steps=1, saves=False, resumes=False, compares=False).seconds(self.PARAMETERS)
        assert few == {"weights and engine": pytest.approx(6.0), "training": pytest.approx(1.5)}

    @pytest.mark.parametrize(
        ("resumes", "compares", "seconds"),
        [(True, True, 8.0), (True, False, 6.0), (False, True, 4.0), (False, False, None)],
    )
    def test_a_narrow_copy(self, resumes: bool, compares: bool, seconds: float | None) -> None:
        found = Work(resumes=resumes, compares=compares, copied=True).seconds(self.PARAMETERS)
        assert found.get("trainings of a narrow copy") == seconds
        assert "checkpoint and resume" not in found and "comparison with ZeRO-0" not in found

    def test_files(self) -> None:
        assert Work().file_bytes == 4 + 18 and Work(copied=True).file_bytes == 4
        assert Work(saves=False).file_bytes == 18 and Work(saves=False, resumes=False).file_bytes == 0
        assert Work.of(("resume",)) == Work(compares=False)
        assert Work.of((), saves=False) == Work(resumes=False, compares=False, saves=False)

    def test_where_a_copy_is_worth_it(self) -> None:
        each = 12.0 + 4.5 + 18 * 2.6 + 13.5
        limit = int(10.0 / each * 10**9)
        assert not Work().needs_copy(limit) and Work().needs_copy(limit + 10)
        assert Work(copied=True).needs_copy(limit + 10)
        assert not Work(resumes=False, compares=False).needs_copy(10**12)

    @pytest.mark.parametrize("work", [Work(), Work(resumes=False), Work(compares=False)])
    def test_what_takes_just_as_long_needs_none(self, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
        """Saving and training are done in any case."""
        taken = work.seconds(500_000_000)
        parts = ("checkpoint and resume", "comparison with ZeRO-0")
        monkeypatch.setattr(size, "COPIED", sum(taken[name] for name in parts if name in taken))
        assert not work.needs_copy(500_000_000) and work.needs_copy(500_000_001)

    ROOM = Room(device=10 * GIB, host=20 * GIB, disk=100 * GIB, seconds=10**6)

    @pytest.mark.parametrize(
        ("size", "room", "lacks"),
        [
            (Size(1000, 10 * GIB, 20 * GIB), ROOM, None),
            (Size(1000, 10 * GIB + 2**29, 0), ROOM, "up to 10.5 of 10.0 GiB of a card"),
            (Size(1000, 0, 20 * GIB + 2**29), ROOM, "20.5 of 20.0 GiB of the host's memory"),
            (Size(1000, 99 * GIB, 99 * GIB), replace(ROOM, device=None, host=None), None),
            (Size(5 * GIB, 0, 0), ROOM, "110.0 of 100.0 GiB of disk space"),
            (Size(5 * GIB, 0, 0), replace(ROOM, memory_files=110 * GIB, host=110 * GIB), None),
            (
                Size(5 * GIB, 0, 1),
                replace(ROOM, memory_files=110 * GIB, host=110 * GIB),
                "110.0 of 100.0 GiB of disk space",
            ),
            (
                Size(5 * GIB, 0, 0),
                replace(ROOM, memory_files=109 * GIB, host=110 * GIB),
                "110.0 of 100.0 GiB of disk space",
            ),
            (
                Size(1000, 8 * GIB, 5 * GIB),
                replace(ROOM, unified_ranks=2),
                "21.0 of 20.0 GiB of the memory that card and host share",
            ),
            (Size(1000, 8 * GIB, 4 * GIB), replace(ROOM, unified_ranks=2), None),
        ],
    )
    def test_what_there_is_too_little_of(self, size: Size, room: Room, lacks: str | None) -> None:
        assert size.against(room) == lacks

    def test_seconds_that_may_be_used(self) -> None:
        size = Size(10**9, 0, 0, Work(steps=2, resumes=False, compares=False))
        seconds = 30.0 + 6.0 + 2 * 1.5 + 6.4 + 6.0  # 51.4
        room = replace(self.ROOM, seconds=100.0)
        assert size.against(room, 0.515) is None
        assert (
            size.against(room, 0.513)
            == "about 51 s, 6 s for saving and 6 s for weights and engine, of 51 s (51% of --time-limit)"
        )
        assert seconds == pytest.approx(51.4) and (WHOLE_SHARE, CUT_SHARE, LEAST_SHARE) == (0.6, 0.15, 0.9)


class TestAskedFor:
    @pytest.mark.parametrize(
        ("value", "number"),
        [("5e8", 500_000_000), ("0.5", 0.5), (2.0, 2), ("two", "two"), (True, True), (None, None), ("7", 7)],
    )
    def test_numbers_in_quotes(self, value: object, number: object) -> None:
        assert requested_settings._number(value) == number

    def test_keys_of_deepspeed_by_what_ranks_report(self) -> None:
        """Wherever they stand: keys of an offload section are also found without the ZeRO section around it."""
        zero = "zero_optimization"
        found = requested_settings.deepspeed_keys()
        assert {path: name for path, name in found.items() if "offload" in ".".join(path)} == {
            (zero, "offload_optimizer", "device"): "offload_optimizer",
            ("offload_optimizer", "device"): "offload_optimizer",
            (zero, "offload_param", "device"): "offload_param",
            ("offload_param", "device"): "offload_param",
        }
        assert found[(zero, "stage")] == "stage" and ("stage",) not in found
        assert found[("bf16", "enabled")] == found[("fp16", "enabled")] == found[("bfloat16", "enabled")] == "dtype"
        assert ("enabled",) not in found

    def test_values_that_ask_for_nothing(self) -> None:
        for value in (None, "auto", "no", {}):
            assert not requested_settings._is_value(value)
        for value in (0, False, "", "cpu", [1]):
            assert requested_settings._is_value(value)

    def test_keys_that_were_most_likely_meant(self) -> None:
        from zerocfg.source.load import load_as
        from zerocfg.source.text import SourceText

        # An unknown key of the ZeRO section is refused; it is not passed over for what was meant.
        text = '{"gradient_clippin": 1, "xqzv": 1, "zero_optimization": {"stagee": 3}, "bf16": {"enabled": true}}'
        file: Any = SimpleNamespace(document=load_as(SourceText("ds.json", text), "json"))
        assert requested_settings.renamed(file) == {("gradient_clippin",): "gradient_clipping"}
        assert requested_settings.renamed(SimpleNamespace(document=None)) == {}  # type: ignore[arg-type]

    @pytest.mark.parametrize("part", ["offload_optimizer", "offload_param"])
    def test_a_section_in_the_wrong_place_is_asked_for(self, part: str) -> None:
        """By its own name, though `offload_optimizer` resembles `optimizer`, which a config has at its top."""
        from zerocfg.run.model import Run, SourceFile
        from zerocfg.source.load import load_as
        from zerocfg.source.text import SourceText

        source = SourceText("ds.json", f'{{"{part}": {{"device": "cpu"}}, "optimiser": {{"type": "Lion"}}}}')
        run = Run("a", "deepspeed", deepspeed=SourceFile("ds.json", "deepspeed", source, load_as(source, "json")))
        found = {name: [str(claim) for claim in made] for name, made in requested_settings.claims(run).items()}
        assert found == {part: [f"{part}.device: cpu (ds.json:1)"], "optimizer": ["optimiser.type: Lion (ds.json:1)"]}


class TestHandwritten:
    def own(self, **run: Any) -> Any:
        base = {"launch": None, "consumer": "accelerate", "deepspeed": SimpleNamespace(name="ds.json")}
        return SimpleNamespace(run=SimpleNamespace(**base | run), texts={}, notes=[], by_accelerate=False)

    def test_a_loop_of_accelerate_with_a_config_alone_is_launched(self) -> None:
        own = self.own()
        assert handwritten.accelerate_of(own) == {
            "distributed_type": "DEEPSPEED",
            "deepspeed_config": {"deepspeed_config_file": "ds.json"},
            "mixed_precision": "no",
        }
        assert own.by_accelerate is True and [note.kind for note in own.notes] == [Kind.LAUNCH]

    @pytest.mark.parametrize(
        "changed", [{"launch": object()}, {"consumer": "transformers"}, {"deepspeed": None}, {"consumer": None}]
    )
    def test_nothing_else_is(self, changed: dict[str, Any]) -> None:
        own = self.own(**changed)
        assert handwritten.accelerate_of(own) is None and own.notes == [] and own.by_accelerate is False

    def test_texts_as_accelerate_reads_them(self) -> None:
        own = self.own()
        for text, found in ((b"a: 1\n", {"a": 1}), (b"- 1\n", None), (b"a: [\n", None)):
            own.texts["accelerate"] = text
            assert handwritten.accelerate_of(own) == found

    @pytest.mark.parametrize(
        ("plan", "config", "ranks"),
        [
            ({"num_processes": 3}, {"train_batch_size": 16}, 3),
            ({}, {"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2}, 8),
            ({}, {"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}, 2),
            ({}, {"train_batch_size": 15, "train_micro_batch_size_per_gpu": 2}, None),
            ({}, {"train_batch_size": 16, "train_micro_batch_size_per_gpu": "auto"}, None),
            ({}, {"train_batch_size": 16, "train_micro_batch_size_per_gpu": 0}, None),
            ({"num_processes": 0}, {}, None),
            ({}, None, None),
        ],
    )
    def test_ranks_as_launched_or_as_the_sizes_imply(self, plan: Any, config: Any, ranks: int | None) -> None:
        run: Any = SimpleNamespace(deepspeed=None if config is None else SimpleNamespace(data=lambda: config))
        assert handwritten._processes(plan, run) == ranks


class TestNodes:
    @pytest.mark.parametrize(
        ("first", "second"),
        [
            (
                {"data": {"failure": {"rank": 1}}, "cause": "killed"},
                {"data": {"failure": {"rank": 1}}, "cause": "error"},
            ),
            ({"data": {"failure": {"rank": 1}}, "cause": "error"}, {"data": {"failure": {"message": "x"}}}),
            ({"data": {"failure": {"message": "x"}}}, {"interrupted": True}),
            ({"failed_at": 3.0}, {"failed_at": 4}),
            ({"failed_at": 3.0}, {}),
        ],
    )
    def test_where_a_failure_began(self, first: Any, second: Any) -> None:
        assert gather._remoteness(first) < gather._remoteness(second)

    @pytest.mark.parametrize(
        ("event", "state"),
        [
            ({"passed": True}, "passed"),
            ({"passed": "yes"}, "failed"),
            ({"data": {"verdict": "incomplete"}}, "incomplete"),
            ({"data": {"verdict": "failed"}}, "failed"),
            ({"data": 7}, "failed"),
        ],
    )
    def test_the_verdict_of_a_node(self, event: Any, state: str) -> None:
        assert gather.state_of(event) == state

    def test_a_job_that_is_followed_to_its_end_or_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The record stays where something is left that explains a failure."""
        results = [SimpleNamespace(problem=None), SimpleNamespace(problem="p")]

        def played(ends: list[int], problems: bool) -> tuple[Any, list[str], list[Any]]:
            done: list[str] = []
            seen: list[Any] = []
            made: Any = SimpleNamespace(
                tasks=({}, {}),
                options={"nodes": 3, "sign": ""},
                identity="7",
                folder=Path(),
                remove=lambda: done.append("removed"),
            )
            asked: list[Any] = []
            monkeypatch.setattr(submit, "follow", lambda *_, ended, **__: [ended(number) for number in ends])
            monkeypatch.setattr(
                submit, "_gathered", lambda m, n, task, nodes, sign: asked.append(nodes) or results[n * problems]
            )
            monkeypatch.setattr(
                submit,
                "replace",
                lambda _, options: SimpleNamespace(write=lambda: done.append(str(options.get("gathered")))),
            )
            found = submit.gather_all(None, made, look=lambda *_: True, ended=seen.append)  # type: ignore[arg-type]
            assert set(asked) == {3}
            return found, done, seen

        assert played([1, 0], False) == ([results[0]] * 2, ["removed"], [results[0]] * 2)
        assert played([0, 1], True) == (results, ["True"], results)
        assert played([1], True) == (None, [], [results[1]])


def test_a_model_of_twenty_million_parameters_is_trained_whole_on_a_processor(run: RunFolder, tmp_path: Path) -> None:
    for parameters, narrow in ((20_000_000, False), (20_000_001, True)):
        run.lock.model_facts["parameters"] = parameters
        found = reduced()
        _model(run, found, CPU, tmp_path, 100.0, ())
        assert found.narrow is narrow, parameters
    assert CPU_PARAMETERS == 20_000_000


def test_numbers_of_a_small_model() -> None:
    """Four heads of 16: a stream of 64, a feed-forward part of four times that, experts of twice."""
    of: dict[int, set[str]] = {}
    for name in LIMITS:
        of.setdefault(shrink({name: 10**9})[0][name], set()).add(name)
    assert set(of) == {1024, 16, 256, 64, 128, 4, 1, 2, 32, 2048}
    assert of[4] == {"num_local_experts", "num_experts", "moe_num_experts", "n_routed_experts"}
    assert of[256] == {
        "intermediate_size",
        "ffn_dim",
        "encoder_ffn_dim",
        "decoder_ffn_dim",
        "ffn_hidden_size",
        "n_inner",
        "d_ff",
    }
    assert of[128] == {"moe_intermediate_size", "shared_expert_intermediate_size"}
    assert of[2] == {"num_experts_per_tok", "num_experts_per_token", "moe_k"}
    assert of[1] == {"n_shared_experts", "n_group", "topk_group"}
    assert of[32] == {"kv_lora_rank", "q_lora_rank", "qk_head_dim"}
    assert of[64] == {"word_embed_proj_dim", "embedding_size", "image_size"}
    assert of[2048] == {"max_position_embeddings", "n_positions"}


def test_a_batch_where_the_config_states_none(run: RunFolder) -> None:
    assert run.deepspeed is not None
    del run.deepspeed["train_micro_batch_size_per_gpu"], run.deepspeed["train_batch_size"]
    changed = with_batch(run, 8)
    assert changed.deepspeed is not None and "train_micro_batch_size_per_gpu" not in changed.deepspeed
    assert changed.plan["train_micro_batch_size_per_gpu"] == 8 and changed.plan["train_batch_size"] == 64
    bare = with_batch(replace(run, deepspeed=None), 8)
    assert bare.deepspeed is None and bare.lock.recipe["per_device_train_batch_size"] == 8


def test_configs_that_a_command_has_to_read(run: RunFolder) -> None:
    assert launched._configs(run) == [run.path / "accelerate.yaml", run.path / "ds_config.json"]
    (run.path / "ds_config.json").unlink()
    assert launched._configs(run) == [run.path / "accelerate.yaml"]
    run.hashes.pop("accelerate.yaml")
    assert launched._configs(run) == []


def test_what_a_trainer_of_trl_takes_is_not_predicted(run: RunFolder) -> None:
    found = expect(reduced(model=run.lock.model_config, trainer="DPOTrainer"), CPU, "trl")
    assert isinstance(found, str) and found.startswith("what DPOTrainer takes beside the training is not predicted")
