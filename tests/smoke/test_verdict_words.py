"""A verdict on the screen line by line, each reduction in words and as data, and what a run leaves open."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.memory.overhead import Band
from zerocfg.smoke import text
from zerocfg.smoke.certify import evidence
from zerocfg.smoke.certify.evidence import Evidence
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.model.certificate import Check, Command, Diagnosis
from zerocfg.smoke.model.reduction import Cut, Kind, Reduced, Reduction
from zerocfg.smoke.model.size import GIB
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import read

if TYPE_CHECKING:
    from zerocfg.smoke.prepare.folder import RunFolder

    from .conftest import MakeRun

CPU, CARD = Device("cpu", "cpu"), Device("cuda", "NVIDIA H100 80GB HBM3", 2, 80 << 30)


def reduced(**facts: Any) -> Reduced:
    empty: dict[str, Any] = {"model": {}, "accelerate": None, "deepspeed": None, "arguments": {}, "plan": {}}
    return Reduced(**({"ranks": 2} | empty | {"sequence": 8} | facts))


class TestReductions:
    @pytest.mark.parametrize(
        ("one", "words"),
        [
            (Reduction(Kind.WORLD_SIZE, 4, 2), "world size: 4 to 2"),
            (Reduction(Kind.WORLD_SIZE, None, 2), "world size: not in the files; 2"),
            (Reduction(Kind.WORLD_SIZE, 0, 2), "world size: 0 to 2"),
            (Reduction(Kind.SEQUENCE, 4096, 32), "sequence length: 4096 to 32 tokens"),
            (Reduction(Kind.SEQUENCE, None, 32), "sequence length: not stated; 32 tokens"),
            (Reduction(Kind.TRAIN_BATCH, 16, 8), "train_batch_size: 16 to 8, with the world size"),
            (Reduction(Kind.OPTIM, "a", "b"), "optim: a to b, because it needs a card"),
            (Reduction(Kind.PRECISION, "fp16", "bf16", why="because"), "precision: fp16 to bf16, because"),
            (Reduction(Kind.MODEL, run="a Llama", why="gone"), "model: gone; a Llama runs instead"),
            (
                Reduction(Kind.MODEL, 70_553_706_496, cuts=(Cut("a.b", 9, 3), Cut("c", 5, 1)), why="take too long"),
                "model: 70,553,706,496 parameters take too long; a.b 9 to 3, c 5 to 1",
            ),
            (
                Reduction(Kind.MODEL, None, why="may be too many"),
                "model: an unknown number of parameters may be too many; nothing to cut",
            ),
            (
                Reduction(Kind.LAYERS, 32, 2, why="90 s"),
                "layers: 32 to 2, all widths as planned; 3 would take 90 s",
            ),
            (Reduction(Kind.LAYERS, 32, None, why="x"), "layers: 32 to None, all widths as planned; more would take x"),
            (Reduction(Kind.REDUCE_BUCKET, 5e8, 10), "reduce_bucket_size: 500000000 to 10 elements, allocated in full"),
            (Reduction(Kind.ALLGATHER_BUCKET, "7", 3), "allgather_bucket_size: 7 to 3 elements, allocated in full"),
            (
                Reduction(Kind.PARAM_DRIVE, "/nvme", "/tmp/x"),
                "offload_param.nvme_path: /nvme does not exist; a temporary folder instead",
            ),
            (
                Reduction(Kind.SHARED_CARD, run={"ranks": 2, "card": "X", "collectives": "gloo"}),
                "shared card: 2 ranks on one X, collectives by gloo, through the host's memory; "
                "times are not meaningful",
            ),
            (
                Reduction(Kind.SHARED_CARD, run={"ranks": 2, "card": "X", "collectives": "nccl"}),
                "shared card: 2 ranks on one X, collectives by nccl; times are not meaningful",
            ),
            (
                Reduction(Kind.NODES, run={"count": 2, "each": 1, "rank": 0, "address": "a", "port": 7}),
                "nodes: 2 with 1 rank each; this is node 0, rendezvous at a:7",
            ),
            (
                Reduction(Kind.NODES, run={"count": 2, "each": 2, "rank": 1, "address": "a", "port": 7}),
                "nodes: 2 with 2 ranks each; this is node 1, rendezvous at a:7",
            ),
            (Reduction(Kind.SAVING, why="left out"), "saving: left out"),
            (Reduction(Kind.LAUNCH, keys=("--lr", "$LR")), "--lr $LR: its value is not in the files; left out"),
            (
                Reduction(Kind.LAUNCH, run="torchrun is taken"),
                "launch: the files do not say how it is started; torchrun is taken",
            ),
        ],
    )
    def test_in_words(self, one: Reduction, words: str) -> None:
        assert str(one) == words
        assert reduced(changes=[one]).descriptions == [words]

    def test_as_data(self) -> None:
        cut = Reduction(Kind.MODEL, 9, {"a": (1,), "b": math.inf, 3: None}, ("x",), (Cut("c", 5, 1),), "why")
        assert cut.data() == {
            "kind": "model",
            "keys": ["x"],
            "planned": 9,
            "run": {"a": "(1,)", "b": "inf", "3": None},
            "cuts": [{"key": "c", "planned": 5, "run": 1}],
        }
        plain = Reduction(Kind.SAVING, True, 0.5).data()
        assert plain == {"kind": "saving", "keys": [], "planned": True, "run": 0.5}
        assert Reduction(Kind.SAVING, Path("a"), math.nan).data()["planned"] == "a"
        assert Reduction(Kind.SAVING, Path("a"), math.nan).data()["run"] == "nan"

    def test_which_there_are(self) -> None:
        one = reduced(changes=[Reduction(Kind.SAVING)])
        assert one.has(Kind.SAVING) and one.has(Kind.MODEL, Kind.SAVING) and not one.has(Kind.MODEL)
        assert not one.has() and not reduced().has(Kind.SAVING)


def shown(monkeypatch: pytest.MonkeyPatch, **more: Any) -> list[str]:
    """The lines of a verdict of one rank on a processor where everything is well, with these changes."""
    proofs = more.pop("proofs", Evidence((), ()))
    monkeypatch.setattr(text, "evidence", lambda verdict: proofs)
    outcome = Outcome(**{"reports": [], "seconds": 7.4} | more.pop("outcome", {}))
    given: dict[str, Any] = {
        "run": SimpleNamespace(name="sft"),
        "device": CPU,
        "reduced": reduced(ranks=1),
        "outcome": outcome,
        "checks": [Check("engine", "ddp", "ddp", True), Check("device", "-", "cpu", None)],
        "command": None,
        "diagnosis": [],
        "kept": None,
        "certificate": None,
        "uncertified": None,
        "state": "passed",
        "unmeasured": [],
    }
    return text.render(SimpleNamespace(**given | more)).splitlines()  # type: ignore[arg-type]


BARE = ["sft: 1 rank on CPU", "", "check   planned  seen", "engine  ddp      ddp   ok", "device  -        cpu"]


class TestRender:
    def test_the_least_there_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lines = [line.rstrip() for line in shown(monkeypatch)]
        assert lines == [*BARE, "passed: 1 checks ok, 0 failed, 7 s"]
        assert shown(monkeypatch, checks=[]) == ["sft: 1 rank on CPU", "", "passed: 0 checks ok, 0 failed, 7 s"]

    def test_what_was_changed_and_noted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lines = shown(
            monkeypatch,
            device=replace(CARD, note="no driver"),
            reduced=reduced(changes=[Reduction(Kind.WORLD_SIZE, 4, 2)]),
            outcome={"cleared": ["a lock was removed"]},
        )
        assert lines[:5] == [
            "sft: 2 ranks on NVIDIA H100 80GB HBM3",
            "  reduced  world size: 4 to 2",
            "  noted    no driver",
            "  noted    a lock was removed",
            "",
        ]

    def test_a_failure_and_why(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rule = Diagnosis("ZC203", "batch", "ds.json", 3, 5, "wrong", "mend it", "error")
        other = replace(rule, code="", name="no-space", file=None)
        lines = shown(
            monkeypatch,
            state="failed",
            outcome={"failure": "it broke", "rank": 0, "detail": ["a", "b"]},
            diagnosis=[other, rule],
            checks=[Check("engine", "ddp", "single", False)],
        )
        assert lines[4:] == [
            "",
            "The run failed (rank 0): it broke",
            "  a",
            "  b",
            "",
            "why:",
            "  no-space: wrong; fix: mend it",
            "  ZC203 batch: ds.json:3:5: wrong; fix: mend it",
            "  (`zerocfg explain ZC203` says more)",
            "FAILED: 0 checks ok, 1 failed, 7 s",
        ]
        unknown = shown(monkeypatch, outcome={"failure": "it broke"}, diagnosis=[other])
        assert "The run failed: it broke" in unknown and not any("explain" in line for line in unknown)

    def test_what_was_proven_and_what_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lines = shown(monkeypatch, proofs=Evidence(("a", "b"), ("c",)))
        assert lines[5:-1] == ["", "proven:", "  a", "  b", "", "not proven:", "  c"]
        assert shown(monkeypatch, proofs=Evidence(("a",), ()))[5:-1] == ["", "proven:", "  a"]

    @pytest.mark.parametrize(
        ("more", "place"),
        [
            ({}, "removed; --keep DIR keeps them"),
            ({"kept": Path("k")}, "k/weights"),
            ({"kept": Path("k"), "command": Command("go", "torch", ["saved"])}, "k/written"),
        ],
    )
    def test_where_the_weights_are(self, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], place: str) -> None:
        reports = [{"weights": {"file": "model.safetensors", "saved": 82240}}]
        lines = shown(monkeypatch, outcome={"reports": reports}, **more)
        at = lines.index(f"weights: 82,240 parameters in model.safetensors ({place})")
        assert lines[at - 1] == "" and (lines[at + 1] == "kept: k") is ("kept" in more)
        assert ("command: go" in lines) is ("command" in more)
        if "command" in more:
            assert lines[lines.index("command: go") + 1] == "  saved"
        nothing: list[Any] = [[{"weights": {"file": None, "saved": 0}}], [{}], []]
        for without in nothing:
            assert not any(line.startswith("weights") for line in shown(monkeypatch, outcome={"reports": without}))

    def test_how_it_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cut = shown(monkeypatch, outcome={"cut": "the time limit"}, certificate=Path("c"), uncertified="not signed")
        assert cut[-5:] == [
            "certificate: c",
            "certificate: not signed",
            "",
            "After the weights were read back the run ended: the time limit",
            "passed: 1 checks ok, 0 failed, 7 s",
        ]
        open_end = shown(monkeypatch, state="incomplete", unmeasured=["engine", "ZeRO stage"])
        assert open_end[-1] == "INCOMPLETE: not measured: engine, ZeRO stage; 1 checks ok, 0 failed, 7 s"

    def test_further_settings_follow_those_of_the_engine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Those that are as planned are counted, the others have rows; the rows of the training come after them."""
        checks = [
            Check("engine", "ddp", "ddp", True),
            Check("device", "-", "cpu", None),
            Check("a", "1", "1", True, "acting"),
            Check("b", "1", "2", False, "acting"),
            Check("c", "1", "1", True, "parsed"),
            Check("d", "1", "-", None, "unseen"),
            Check("e", "1", "-", None, "unseen"),
            Check("loss falls", "falls", "4 to 3", True),
        ]

        def rows(*some: Check) -> list[list[str]]:
            return [line.split() for line in text.table(SimpleNamespace(checks=list(some)))[1:]]  # type: ignore[arg-type]

        assert rows(*checks) == [
            ["engine", "ddp", "ddp", "ok"],
            ["device", "-", "cpu"],
            ["b", "1", "2", "FAIL"],
            ["1", "further", "setting", "as", "planned", "read", "where", "they", "act", "ok"],
            ["1", "further", "setting", "as", "planned", "as", "parsed", "ok"],
            ["2", "further", "settings", "as", "planned", "not", "observable"],
            ["loss", "falls", "falls", "4", "to", "3", "ok"],
        ]
        heads = [row[0] for row in rows(checks[0], checks[2], checks[-1])]
        assert heads == ["engine", "loss", "1"], "where no row says where the settings end"
        assert [row[0] for row in rows(*checks[1:3], checks[-1])] == ["device", "1", "loss"]


@pytest.fixture
def run(make_run: MakeRun) -> RunFolder:
    return read(make_run(3))


def verdict(run: RunFolder, device: Device = CPU, **facts: Any) -> Any:
    return SimpleNamespace(
        run=run, device=device, reduced=reduced(**facts), checks=[], command=None, outcome=Outcome([{}])
    )


@dataclass
class Fit:
    """A stand-in for what predicts the planned run."""

    asked: list[Any]
    found: Any
    spec: Any = None
    recipe: Any = None

    def prediction(self, config: Any) -> Any:
        self.asked.append((config, self.spec, self.recipe))
        return self.found


class TestLeftOpen:
    @pytest.fixture(autouse=True)
    def no_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.memory = evidence._memory
        monkeypatch.setattr(evidence, "_memory", lambda verdict: ["memory"])

    def said(self, run: RunFolder, **facts: Any) -> list[str]:
        return evidence._not_proven(verdict(run, **{"ranks": 4, "sequence": 64} | facts))

    LAST = "your script and its data: zerocfg trained random weights on one batch in the Trainer's own loop"
    LENGTH = "the length of your samples, which is not stated: 64 tokens ran"

    def test_of_the_model(self, run: RunFolder) -> None:
        gloo: list[str] = []
        assert self.said(run) == [*gloo, "memory", self.LENGTH, self.LAST]
        assert self.said(run, narrow=True)[0] == (
            "that the model runs at full size: a small one of the same architecture did"
        )
        assert self.said(run, narrow=True, layers=(32, 2))[0].endswith(" did, with 2 of 32 layers")
        assert self.said(run, layers=(32, 2))[0] == "that 32 layers run: 2 did"
        copied = self.said(run, copy={}, layers=(32, 2))
        assert copied[1].startswith("that the model itself resumes and trains as under ZeRO-0: a narrow copy of it did")
        run.lock = replace(run.lock, model_config=None)
        assert self.said(run, narrow=True)[0] == ("anything about the model: its config is unknown, a small Llama ran")

    def test_of_samples_and_the_script(self, run: RunFolder) -> None:
        run.lock.recipe["max_length"] = 64
        assert self.said(run) == ["memory", self.LAST]
        assert self.said(run, sequence=32)[1] == "samples of 64 tokens: 32 ran"
        run.lock = replace(run.lock, script="train.py", consumer="deepspeed")
        assert self.said(run)[-1] == (
            "train.py and its data: zerocfg trained random weights on one batch in its own loop"
        )
        trl = self.said(run, trainer="DPOTrainer")
        assert trl[-1] == "train.py and its data: DPOTrainer trained random weights on words that mean nothing"

    def test_weights_that_were_not_saved(self, run: RunFolder) -> None:
        changes = [Reduction(Kind.WORLD_SIZE, 4, 2), Reduction(Kind.SAVING, why="left out")]
        assert self.said(run, changes=changes)[0] == "the saved weights: left out"

    def test_of_a_command(self, run: RunFolder) -> None:
        one = verdict(run, ranks=4)
        one.command = object()
        assert evidence._not_proven(one) == []
        run.plan.clear()
        last = "what the script does after these steps: evaluation, saving, the end of an epoch"
        kernels, nccl = (
            "kernels, memory and speed of a card: a processor ran",
            "NCCL: the ranks communicated over gloo",
        )
        assert evidence._not_proven(one) == [kernels, nccl, last]
        one.reduced.ranks = 1
        assert evidence._not_proven(one) == [kernels, last]
        one.device = CARD
        assert evidence._not_proven(one) == [last]

    def test_of_ranks_on_several_nodes(self, run: RunFolder) -> None:
        run.plan["num_processes"] = 8
        said = evidence._ranks(verdict(run, CARD, nodes=2))
        assert said == ["communication between 8 ranks: 2 on 2 nodes communicated, over NCCL"]
        run.plan.update(num_processes=2, num_machines=2)
        assert evidence._ranks(verdict(run, CARD, nodes=2)) == []

    def memory_of(
        self, run: RunFolder, monkeypatch: pytest.MonkeyPatch, device: Device = CPU, found: Any = None, **facts: Any
    ) -> tuple[list[str], list[Any]]:
        asked: list[Any] = []

        def fit_of(own: Any, plan: Any, ranks: int, device: Device, length: int) -> Fit:
            asked.append((own is run, plan is run.plan, ranks, device, length))
            return Fit(asked, found)

        copied = SimpleNamespace(model_copy=lambda update: ("spec", update))
        monkeypatch.setattr(evidence, "fit_of", fit_of)
        monkeypatch.setattr(evidence, "spec_of", lambda own: copied)
        return self.memory(verdict(run, device, **facts)), asked

    def test_that_it_fits(self, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        hardware = {"accelerator": "H200-SXM-141GB", "memory_gib": 139.8}
        run.lock = replace(run.lock, hardware=hardware)
        band = SimpleNamespace(device=Band(3 * GIB // 2, 2 * GIB, 5 * GIB // 2))
        said, asked = self.memory_of(run, monkeypatch, found=(None, None, band))
        assert said == [
            "that 82,240 parameters fit into the 140 GiB of H200-SXM-141GB: 2.0 GiB per rank are predicted (1.5 to 2.5)"
        ]
        assert asked == [
            (True, True, 4, Device("cuda", "H200-SXM-141GB"), 1024),
            (run.lock.model_config, ("spec", {"sequence_length": 1024}), run.lock.recipe),
        ]
        run.lock.model_facts.pop("parameters")
        run.lock.recipe["max_length"] = 77
        said, asked = self.memory_of(run, monkeypatch)
        assert said == ["that the model fits into the 140 GiB of H200-SXM-141GB: there is no prediction either"]
        assert asked[0][-1] == 77 and asked[1][1] == ("spec", {"sequence_length": 77})

    @pytest.mark.parametrize(
        ("hardware", "planned"),
        [
            ({}, 4),
            ({"accelerator": "cpu", "memory_gib": 9}, 4),
            ({"accelerator": "H200-SXM-141GB"}, 4),
            ({"accelerator": "H200-SXM-141GB", "memory_gib": "139"}, 4),
            ({"accelerator": 3, "memory_gib": 9}, 4),
            ({"accelerator": "H200-SXM-141GB", "memory_gib": 139.8}, None),
        ],
    )
    def test_nothing_where_nothing_is_planned(
        self, run: RunFolder, monkeypatch: pytest.MonkeyPatch, hardware: dict[str, Any], planned: Any
    ) -> None:
        run.lock = replace(run.lock, hardware=hardware)
        run.plan["num_processes"] = planned
        assert self.memory_of(run, monkeypatch) == ([], [])

    def test_nor_where_it_ran_as_planned(self, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        run.lock = replace(run.lock, hardware={"accelerator": "H200-SXM-141GB", "memory_gib": 139.8})
        here = Device("cuda", "NVIDIA H200", 4)
        assert self.memory_of(run, monkeypatch, here, ranks=4) == ([], [])
        for less in ({"ranks": 2}, {"ranks": 4, "narrow": True}, {"ranks": 4, "layers": (2, 1)}):
            assert self.memory_of(run, monkeypatch, here, **less)[0], less
        for other in (CARD, replace(here, shared=True), Device("cuda", "Card X", 4), CPU):
            assert self.memory_of(run, monkeypatch, other, ranks=4)[0], other
        run.lock = replace(run.lock, model_config=None)
        assert self.memory_of(run, monkeypatch) == ([], [])
