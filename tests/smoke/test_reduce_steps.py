"""How a run is made to fit, each step on its own: what the predictions are asked, which layers and layers' kinds stay,
what of files by hand becomes a lock. Sizes made up, arithmetic by hand; no library runs."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.recorded_calls import Log, logged
from zerocfg.frontends.registry import names as known_front_ends
from zerocfg.memory.options import TorchOptions
from zerocfg.models.hardware import Accelerator
from zerocfg.resolve.plan import Decision
from zerocfg.run.model import UNKNOWN
from zerocfg.smoke.model.reduction import Cut, Kind, Reduced, Reduction
from zerocfg.smoke.model.size import ALL, Room, Size, Work
from zerocfg.smoke.prepare import fit, folder, handwritten
from zerocfg.smoke.prepare import reduce as reducing
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.handwritten import Handwritten, NotFoundError
from zerocfg.smoke.prepare.nodes import Nodes
from zerocfg.smoke.prepare.shrink import fewer_layers, shrink

from .conftest import MODEL, PARAMETERS

if TYPE_CHECKING:
    from zerocfg.smoke.prepare.folder import RunFolder

    from .conftest import MakeRun


GIB = 1 << 30
CPU, CARD = Device("cpu", "cpu"), Device("cuda", "card", 1, 80 * GIB)
ROOM = Room(80 * GIB, 100 * GIB, 1000 * GIB, 300)


@pytest.fixture
def run(make_run: MakeRun) -> RunFolder:
    return folder.read(make_run(3))


def reduced(**facts: Any) -> Reduced:
    empty: dict[str, Any] = {"model": {}, "accelerate": None, "deepspeed": None, "arguments": {}, "plan": {}}
    return Reduced(**({"ranks": 2} | empty | {"sequence": 32} | facts))


class TestShrink:
    def test_values_just_above_what_is_kept(self) -> None:
        small, _ = shrink({"num_hidden_layers": 12, "first_k_dense_replace": 2, "attn_layer_period": 3})
        assert small == {"num_hidden_layers": 2, "first_k_dense_replace": 1, "attn_layer_period": 2}
        alone = {"attn_layer_offset": 5, "num_layers": 2, "attention_types": [[["global"], 2]]}
        assert shrink(alone) == (alone, []), "two layers are no more than two"

    def test_two_parts_of_a_rotation(self) -> None:
        small, _ = shrink({"hidden_size": 3072, "rope_scaling": {"mrope_section": [16, 48]}})
        assert small["rope_scaling"] == {"mrope_section": [4, 4]}

    def test_kinds_that_are_listed_for_some_layers_alone(self) -> None:
        config = {"num_layers": 6, "attention_types": [[["global"], 3]]}
        assert fewer_layers(config, 4) == {"num_layers": 4, "attention_types": [[["global"] * 3, 1]]}

    def test_an_encoder_is_a_section(self) -> None:
        small, changes = shrink({"encoder": {"vocab_size": 5000}, "decoder": {"vocab_size": 1024}})
        assert small == {"encoder": {"vocab_size": 1024}, "decoder": {"vocab_size": 1024}}
        assert changes == [Cut("encoder.vocab_size", 5000, 1024)]


class TestRoom:
    @pytest.mark.parametrize(
        ("device", "ranks", "available", "left", "room"),
        [
            (Device("cuda", "x", 1, 80), 1, 1000, None, (80, 900, 0)),
            (Device("cuda", "x", 1, 80), 3, 1000, 500, (26, 450, 0)),
            (Device("cuda", "x", 2, 80), 3, None, 500, (40, 450, 0)),
            (Device("cuda", "x", 2, 80), 2, None, None, (80, None, 0)),
            (Device("cuda", "x", 1, 80, unified=True), 3, 1000, 2000, (26, 900, 3)),
            (Device("cpu", "cpu"), 2, 1000, None, (None, 900, 0)),
        ],
    )
    def test_of_a_rank(
        self, device: Device, ranks: int, available: Any, left: Any, room: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(fit.linux, "memory", lambda root: (5000, available))
        monkeypatch.setattr(fit.linux, "memory_left", lambda root: left)
        monkeypatch.setattr(fit, "memory_room", lambda: 77)
        disks = SimpleNamespace(disk_usage=lambda path: SimpleNamespace(free=2000 if path == Path("/s") else 1))
        monkeypatch.setattr(fit, "shutil", disks)
        each, host, unified = room
        assert fit.room_here(device, ranks, 45.0, Path("/s")) == Room(each, host, 1800, 45.0, 77, unified)


WHOLE = (8, Size(5, 6, 7), "")


@dataclass
class Workload:
    autocast: bool


class TestPrediction:
    """What is asked of the predictions, and what of their answer becomes a size."""

    @pytest.fixture
    def ask(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        def asked(config: dict[str, Any] | None = None, **more: Any) -> tuple[Any, Log]:
            log: Log = []
            facts = SimpleNamespace(parameters=more.get("parameters", 1000), layout=more.get("layout", ["part"]))
            workload = Workload(more["autocast"]) if "autocast" in more else None
            setup = SimpleNamespace(
                workload=workload, options=TorchOptions("ddp", 2), precision="p", rollouts=more.get("rollouts")
            )
            found = SimpleNamespace(device=SimpleNamespace(high=7000))
            monkeypatch.setattr(fit, "from_config", lambda config: facts)
            monkeypatch.setattr(fit, "setup_of", logged(log, "setup", more.get("setup", setup)))
            monkeypatch.setattr(fit, "of_rank", lambda facts, config, setup: facts)
            monkeypatch.setattr(fit, "timeline_of_rank", logged(log, "timeline", "timeline"))
            monkeypatch.setattr(fit, "base_of", lambda config, setup: "base")
            monkeypatch.setattr(fit, "terms_of", logged(log, "terms", "terms"))
            monkeypatch.setattr(fit, "Sampling", lambda *words: ("sampling", *words))
            monkeypatch.setattr(fit, "predict", logged(log, "predict", found))
            plan = {"zero_optimization.offload_optimizer.device": more.get("offload")}
            spec: Any = "spec"
            accelerator: Any = "accelerator"
            item = fit.Fit(spec, {"a": 1}, plan.get, 3, accelerator, more.get("work", ALL))
            return item.size(config or {}), log

        return asked

    def test_a_size(self, ask: Any) -> None:
        size, log = ask(autocast=False)
        assert size == Size(1000, 7000, 4 * 1000 * 3, ALL)
        assert log[0][2:] == ({"a": 1}, "spec", 3, None)
        options = TorchOptions("ddp", 2)
        assert log[1][2:] == (Workload(False), "p", {}, options) and log[2][2:] == (options, "accelerator", "base")
        assert log[3][2:] == (options, "timeline", "accelerator", "terms", None)

    def test_autocast_keeps_copies_of_16_bits(self, ask: Any) -> None:
        size, log = ask(autocast=True)
        assert size.device == 7000 + 2 * 1000 and log[1][2] == Workload(False), "which are not predicted twice"

    def test_an_optimizer_in_the_hosts_memory(self, ask: Any) -> None:
        for place, on_host in (("cpu", True), ("nvme", True), ("none", False), (None, False)):
            size, _ = ask(autocast=False, offload=place, work=Work(steps=7))
            assert size.work == Work(steps=7, on_host=on_host)

    @pytest.mark.parametrize(
        ("config", "dtype"),
        [({"dtype": "bf16", "torch_dtype": "x"}, "bf16"), ({"torch_dtype": "fp16"}, "fp16"), ({"dtype": None}, None)],
    )
    def test_the_dtype_of_the_files(self, config: Any, dtype: Any, ask: Any) -> None:
        assert ask(config, autocast=False)[1][0][-1] == dtype

    def test_generation_takes_memory_too(self, ask: Any) -> None:
        assert ask({"x": 1}, autocast=False, rollouts="r")[1][3][-1] == ("sampling", "r", Workload(False), {"x": 1})

    def test_what_is_not_known(self, ask: Any) -> None:
        for more in ({"parameters": None}, {"layout": []}, {"setup": ValueError("no engine")}):
            assert ask(autocast=False, **more)[0] is None
        assert ask()[0] is None, "no engine that is predicted"

    def test_what_is_kept_off_the_device(self) -> None:
        places = {"zero_optimization.offload_optimizer.device": "nvme", "zero_optimization.offload_param.device": "cpu"}
        assert fit._offloaded(places.get) == ["optimizer", "param"]
        assert fit._offloaded({"zero_optimization.offload_param.device": "none"}.get) == []


class TestFitOf:
    def test_settings_as_they_run(self, run: RunFolder) -> None:
        hpz = "zero_optimization.zero_hpz_partition_size"
        values = {"gradient_clipping": 0.7, "zero_optimization.stage": 2, hpz: 8, "text_hpz": 9}
        run.lock.settings.update({name: Decision(value) for name, value in values.items()})
        plan = dict(run.plan) | {"zero_optimization.stage": 1, "new": 5}
        found = fit.fit_of(run, plan, 4, Device("cuda", "NVIDIA A100-SXM4-80GB", 1), 48, Work(steps=2))
        assert (found.value("gradient_clipping"), found.value("zero_optimization.stage")) == (0.7, 1)
        assert (found.value("new"), found.value("num_processes"), found.value("none")) == (5, 4, None)
        assert (found.value(hpz), found.value("text_hpz")) == (4, 9), "no more ranks than there are"
        run.lock.settings[hpz] = Decision("auto")
        assert found.value(hpz) == "auto"
        assert (found.ranks, found.work, found.recipe) == (4, Work(steps=2), run.lock.recipe)
        assert found.accelerator.name == "A100-SXM-80GB" and found.spec.sequence_length == 48
        assert found.spec.consumer == "transformers" and found.spec.script == ""

    def test_trl_is_trained_by_the_trainers_loop(self, run: RunFolder) -> None:
        recipe = {"bf16": True}
        for consumer, checkpoints in (("trl", True), ("accelerate", None)):
            changed = replace(run, lock=replace(run.lock, consumer=consumer, recipe=recipe, script="t.py"))
            found = fit.fit_of(changed, {}, 1, Device("cuda", "Card X", 1), 8)
            assert found.spec.consumer == ("transformers" if consumer == "trl" else consumer)
            assert found.recipe.get("gradient_checkpointing") is checkpoints and found.recipe["bf16"] is True
            assert found.accelerator == Accelerator(name="Card X", vendor="nvidia") and found.spec.script == "t.py"
        stated = replace(run, lock=replace(run.lock, consumer="trl", recipe={"gradient_checkpointing": False}))
        assert fit.fit_of(stated, {}, 1, CARD, 8).recipe == {"gradient_checkpointing": False}

    def test_the_spec_while_it_is_as_it_was(self, make_run: MakeRun, tmp_path: Path) -> None:
        text = (
            "version: 1\nruns:\n  tiny:\n    consumer: accelerate\n    script: t.py\n    gradient_checkpointing: true\n"
        )
        (tmp_path / "zerocfg.yaml").write_text(text)
        entry = {"path": "zerocfg.yaml", "sha256": hashlib.sha256(text.encode()).hexdigest()}
        run = folder.read(make_run(3, spec_folder="../..", inputs={"spec": entry}, script="s.py"))
        assert (fit.spec_of(run).script, fit.spec_of(run).consumer) == ("t.py", "accelerate")
        other = replace(run, lock=replace(run.lock, run="other"))
        assert fit.spec_of(other).script == "s.py" and fit.spec_of(other).consumer == "transformers"
        for lock in (replace(run.lock, spec_folder=None), replace(run.lock, inputs={})):
            assert fit.spec_of(replace(run, lock=lock)).script == "s.py"
        arguments: dict[str, Any] = {}
        reducing._checkpointing(replace(run, lock=replace(run.lock, consumer="accelerate")), arguments)
        assert arguments == {"gradient_checkpointing": True}
        reducing._checkpointing(run, arguments := {})
        assert arguments == {}, "a Trainer has arguments of its own"
        (tmp_path / "zerocfg.yaml").write_text("runs: [\n")
        assert fit.spec_of(run).script == "s.py"
        (tmp_path / "zerocfg.yaml").unlink()
        assert fit.spec_of(run).script == "s.py"
        reducing._checkpointing(replace(run, lock=replace(run.lock, consumer="deepspeed")), arguments)
        assert arguments == {}


class TestReduce:
    """Which steps are taken, in their order."""

    STEPS = (
        "_checkpointing", "_trainer", "_world", "_offload", "_take", "_sequence", "_model", "_copy", "_buckets",
        "_processor_only", "_arguments",
    )  # fmt: skip

    def steps(self, run: RunFolder, device: Device, monkeypatch: pytest.MonkeyPatch, **more: Any) -> tuple[Any, Log]:
        log: Log = []
        for name in self.STEPS:
            monkeypatch.setattr(reducing, name, logged(log, name))
        if "trainer" in more:
            monkeypatch.setattr(reducing, "_trainer", lambda run, item: setattr(item, "trainer", more["trainer"]))
        monkeypatch.setattr(reducing, "_in_memory", lambda *words: words[1:])
        monkeypatch.setattr(reducing.trl_trainers, "fit", logged(log, "trl"))
        given = {name: more[name] for name in ("parts", "nodes", "limit") if name in more}
        return reducing.reduce(run, device, 2, Path("/s"), **given), log

    def names(self, log: Log) -> list[str]:
        return [words[0] for words in log]

    def test_of_a_build_on_a_processor(self, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        nodes = Nodes(2, 0, "a", 1)
        found, log = self.steps(run, CPU, monkeypatch, nodes=nodes, limit=60.0)
        assert self.names(log) == [name for name in self.STEPS if name != "_take"]
        assert log[2][2] is nodes and log[3][2] == Path("/s") and log[5][3:] == (CPU, Path("/s"), 60.0, reducing.PARTS)
        assert log[7][2:] == (CPU, False) and found.in_memory == (CPU, Path("/s"), 60.0, reducing.PARTS)
        assert found.arguments == {key: item for key, item in run.lock.recipe.items() if key != "output_dir"}
        assert (found.ranks, found.plan, found.changes) == (2, run.plan, []) and found.plan is not run.plan
        assert found.accelerate == run.accelerate and found.accelerate is not run.accelerate
        assert found.deepspeed == run.deepspeed and found.deepspeed is not run.deepspeed

    def test_on_a_card_without_deepspeed(self, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
        found, log = self.steps(folder.read(make_run(None)), CARD, monkeypatch, parts=("train", "unsaved"))
        wanted = ["_checkpointing", "_trainer", "_world", "_sequence", "_model", "_copy", "_arguments"]
        assert self.names(log) == wanted
        (change,) = found.changes
        assert (change.kind, change.why) == (Kind.SAVING, "left out: memory and throughput are measured")

    def test_pinned_by_hand_and_by_a_trainer_of_trl(self, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        fits: Log = []
        own: Any = SimpleNamespace(fit=logged(fits, "fit"))
        pinned = reduced()
        found, log = self.steps(replace(run, pinned=pinned, handwritten=own), CARD, monkeypatch, trainer="GRPOTrainer")
        assert self.names(log) == ["_checkpointing", "_world", "_offload", "_take", "_buckets", "trl"]
        assert log[3][1:] == (found, pinned) and log[5][1:] == (found, 4, run.lock.recipe)
        assert fits == [("fit", found, CARD)]

    def test_what_is_taken_of_another_launch(self) -> None:
        changes = [Reduction(kind) for kind in (Kind.WORLD_SIZE, Kind.MODEL, Kind.LAYERS, Kind.SEQUENCE, Kind.OPTIM)]
        other = reduced(model={"a": {"b": 1}}, sequence=77)
        other.layers, other.narrow, other.size, other.changes = (8, 2), True, Size(1, 2, 3), changes
        found = reduced()
        reducing._take(found, other)
        assert found.model == other.model and found.model["a"] is not other.model["a"]
        assert (found.sequence, found.layers, found.narrow, found.size) == (77, (8, 2), True, Size(1, 2, 3))
        assert found.changes == changes[1:4]

    def test_the_trainer_of_trl(self, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        run.lock.recipe["beta"] = 0.5
        for chosen, arguments in ((("DPOTrainer", ""), {"beta": 0.5}), ((None, "why"), {})):
            monkeypatch.setattr(reducing.trl_trainers, "choose", lambda run, chosen=chosen: chosen)
            found = reduced()
            reducing._trainer(run, found)
            assert (found.trainer, found.no_trainer) == chosen
            assert found.arguments == arguments and found.own == tuple(arguments)

    @pytest.mark.parametrize(
        ("device", "length", "positions", "sequence", "change"),
        [
            (CPU, None, 64, 32, (None, 32)),
            (CPU, None, 16, 16, (None, 16)),
            (CARD, None, 4096, 1024, (None, 1024)),
            (CARD, None, None, 1024, (None, 1024)),
            (CARD, None, 0, 1024, (None, 1024)),
            (CARD, None, 1, 1, (None, 1)),
            (CARD, None, "64", 1024, (None, 1024)),
            (CPU, 33, 16, 32, (33, 32)),
            (CPU, 32, 16, 32, None),
            (CPU, 31, 16, 31, None),
            (CARD, 4096, 16, 4096, None),
        ],
    )
    def test_samples(
        self,
        device: Device,
        length: int | None,
        positions: Any,
        sequence: int,
        change: Any,
        run: RunFolder,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(reducing, "sequence_of", lambda run: (length, "where"))
        changed = replace(run, lock=replace(run.lock, model_config={"max_position_embeddings": positions}))
        found = reduced(sequence=0)
        reducing._sequence(changed, found, device)
        assert found.sequence == sequence
        told = [(item.kind, item.planned, item.run) for item in found.changes]
        assert told == ([(Kind.SEQUENCE, *change)] if change else [])
        assert reducing._positions(replace(run, lock=replace(run.lock, model_config=None))) is None


class TestModel:
    def model(self, run: RunFolder, device: Device, config: Any, parameters: Any = None) -> Reduced:
        lock = replace(run.lock, model_config=config, model_facts={"parameters": parameters})
        found = reduced()
        reducing._model(replace(run, lock=lock), found, device, Path("/s"), 60.0, ("train",))
        return found

    def test_one_that_is_not_known(self, run: RunFolder) -> None:
        small = {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": 64,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 1024,
            "max_position_embeddings": 2048,
            "tie_word_embeddings": False,
        }
        for config in (None, {}, {"hidden_size": 4}):
            found = self.model(run, CARD, config)
            assert found.model == small and found.narrow is True
            (change,) = found.changes
            assert (change.kind, change.planned, change.run) == (Kind.MODEL, None, "a Llama of 2 layers")
            assert change.why == "its config is not known to the build"
        by_hand = replace(run, handwritten=SimpleNamespace())  # type: ignore[arg-type]
        assert self.model(by_hand, CARD, None).changes[0].why == "its config is not known to the files"

    def test_on_a_processor(self, run: RunFolder) -> None:
        config = {"model_type": "x", "num_hidden_layers": 8, "vocab_size": 5000}
        whole = self.model(run, CPU, config, 20_000_000)
        assert whole.model is config and whole.changes == [] and not whole.narrow
        for parameters in (20_000_001, None):
            found = self.model(run, CPU, config, parameters)
            assert found.model == {"model_type": "x", "num_hidden_layers": 2, "vocab_size": 1024}
            assert found.narrow is True and found.layers == (8, 2)
            (change,) = found.changes
            assert (change.kind, change.planned, change.why) == (Kind.MODEL, parameters, "do not fit here")
            assert change.cuts == (Cut("num_hidden_layers", 8, 2), Cut("vocab_size", 5000, 1024))
            assert change.keys == ("num_hidden_layers", "vocab_size")

    @pytest.mark.parametrize(
        ("answer", "why"), [((True, ""), None), ((False, ""), "do not fit here"), ((False, "says"), "says")]
    )
    def test_on_a_card_the_layers_are_tried(
        self, answer: Any, why: str | None, run: RunFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log: Log = []
        monkeypatch.setattr(reducing, "room_here", lambda *words: words)
        monkeypatch.setattr(reducing, "_fewer_layers", logged(log, "layers", answer))
        config = {"model_type": "x", "num_hidden_layers": 8}
        found = self.model(run, CARD, config)
        assert log[0][2:] == (found, config, CARD, (CARD, 2, 60.0, Path("/s")), ("train",))
        assert [item.why for item in found.changes] == ([why] if why else []) and found.narrow is bool(why)

    CONFIG = MODEL | {"num_hidden_layers": 8}

    @pytest.fixture
    def layers(self, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> Any:
        def fewer(most: Any = WHOLE, sized: bool = True, **more: Any) -> tuple[Any, Reduced, Log]:
            log: Log = []
            item = SimpleNamespace(size=lambda config: Size(1, 1, 1) if sized else None)
            monkeypatch.setattr(reducing, "fit_of", logged(log, "fit", item))
            monkeypatch.setattr(reducing, "most_layers", logged(log, "most", most))
            changed = replace(run, lock=replace(run.lock, model_facts={"parameters": more.get("parameters")}))
            found = reduced(plan={"a": 1}, ranks=more.get("ranks", 2))
            found.trainer = more.get("trainer")
            config = more.get("config", self.CONFIG)
            room = replace(ROOM, device=more.get("device", 100))
            return reducing._fewer_layers(changed, found, config, CARD, room, more.get("parts", ("train",))), found, log

        return fewer

    def test_all_layers_fit(self, layers: Any) -> None:
        answer, found, log = layers()
        assert answer == (True, "") and found.model is self.CONFIG and found.size == Size(5, 6, 7)
        assert found.layers is None and found.changes == []
        assert log[0][2:] == ({"a": 1}, 2, CARD, 32, Work(resumes=False, compares=False, copied=True))
        assert log[1][2:] == (self.CONFIG, replace(ROOM, device=100))

    def test_some_fit(self, layers: Any) -> None:
        answer, found, _ = layers((3, Size(5, 6, 7), "memory"))
        assert answer == (True, "") and found.model == self.CONFIG | {"num_hidden_layers": 3}
        (change,) = found.changes
        assert found.layers == (8, 3) and (change.kind, change.planned, change.run) == (Kind.LAYERS, 8, 3)
        assert change.why == "memory"

    def test_none_fit(self, layers: Any) -> None:
        answer, found, _ = layers((0, None, "memory"), config=self.CONFIG | {"layer_types": ["a", "b"] * 4})
        assert answer == (False, "do not fit even with 2 layers (memory)") and found.model == {} and found.size is None

    def test_a_reference_model_takes_half(self, layers: Any) -> None:
        assert layers(trainer="DPOTrainer", device=101)[2][1][3].device == 50
        assert layers(trainer="DPOTrainer", device=None)[2][1][3].device is None

    @pytest.mark.parametrize("unknown", [{"sized": False}, {"config": {"model_type": "x"}}])
    @pytest.mark.parametrize(
        ("parameters", "ranks", "fits"),
        [(5, 2, True), (6, 2, False), (7, 3, True), (8, 3, False), (None, 2, False)],
    )
    def test_where_sizes_are_not_known_twenty_bytes_a_parameter_may_fill_half(
        self, unknown: Any, parameters: Any, ranks: int, fits: bool, layers: Any
    ) -> None:
        answer, found, log = layers(parameters=parameters, ranks=ranks, **unknown)
        config = unknown.get("config", self.CONFIG)
        assert answer == (fits, "") and found.model == (config if fits else {}) and len(log) == 1
        nothing = "may not fit: neither their sizes nor the memory of the card are known"
        assert layers(parameters=parameters, device=None, **unknown)[0] == (False, nothing)

    def test_the_work_of_a_launch(self) -> None:
        assert reducing._work(reduced(), ("train", "resume")) == Work(resumes=True, compares=False)
        unsaved = reduced(changes=[Reduction(Kind.SAVING)])
        both = ("resume", "reference")
        assert reducing._work(unsaved, both) == Work(saves=False, resumes=False, compares=True)

    def test_a_copy_of_a_large_model(self) -> None:
        """Resuming and comparing cost 12 + 4.5 + 46.8 and 9 + 4.5 ns a parameter: 76.8 ns, and 10 s at most."""
        config = MODEL | {"hidden_size": 256}
        for parameters, copied in ((130_208_333, False), (130_208_334, True)):
            found = reduced(model=config)
            found.size = Size(parameters, 1, 1)
            reducing._copy(found, ("resume", "reference"))
            assert (found.copy is not None) is copied and found.size == Size(parameters, 1, 1, Work(copied=copied))
        assert found.copy is not None and found.copy["hidden_size"] == 64
        small = reduced(model=MODEL)
        reducing._copy(small, ("resume", "reference"))
        assert small.copy is None and small.size is None
        unknown = reduced(model={"model_type": "x"})
        reducing._copy(unknown, ("resume", "reference"))
        assert unknown.copy is None

    @pytest.mark.parametrize(
        ("parameters", "more", "chosen"),
        [
            (67_108_864, {}, True),
            (67_108_863, {}, False),  # 256 MiB of weights are worth it
            (67_108_864, {"nodes": 2}, False),
        ],
    )
    def test_files_in_memory(self, parameters: int, more: Any, chosen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reducing, "room_here", lambda *_: Room(0, 10 * GIB, 1, 1.0, memory_files=GIB))
        found = reduced(**more)
        found.size = Size(parameters, 1, 10 * GIB - (1 << 28), Work(on_host=True))
        assert reducing._in_memory(found, CARD, Path("/s"), 60.0, ("train",)) is chosen
        found.size = replace(found.size, host=10 * GIB)
        assert not reducing._in_memory(found, CARD, Path("/s"), 60.0, ("train",)), "no room beside the ranks"

    @pytest.mark.parametrize(("files", "host", "chosen"), [(0, 0, True), (1, 0, False), (0, 1, False)])
    def test_files_in_memory_of_a_processor(
        self, files: int, host: int, chosen: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of a model whose size was not asked for: files of 4 bytes a parameter beside two ranks of 20 each."""
        config = {"model_type": "llama", "hidden_size": 1024, "intermediate_size": 1024, "vocab_size": 1 << 16}
        config |= {"num_hidden_layers": 1, "num_attention_heads": 16, "tie_word_embeddings": True}
        parameters = (1 << 26) + 7 * (1 << 20) + 3 * 1024  # embedding, four and three matrices, three norms
        room = Room(None, 44 * parameters - host, 1, 1.0, memory_files=4 * parameters - files)
        monkeypatch.setattr(reducing, "room_here", lambda *_: room)
        assert reducing._in_memory(reduced(model=config), CPU, Path("/s"), 60.0, ("train",)) is chosen

    def test_files_of_a_copy_are_those_of_its_model_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rooms: Log = []
        room = Room(0, GIB, 1, 1.0, memory_files=1 << 28)
        monkeypatch.setattr(reducing, "room_here", logged(rooms, "room", room))
        found = reduced()
        found.size = Size(67_108_864, 1, 0)
        parts = ("train", "resume")
        assert not reducing._in_memory(found, CARD, Path("/s"), 60.0, parts), "22 bytes a parameter"
        found.copy = {"a": 1}
        assert reducing._in_memory(found, CARD, Path("/s"), 60.0, parts)
        assert rooms[0] == ("room", CARD, 2, 60.0, Path("/s"))
        assert not reducing._in_memory(reduced(model={"model_type": "x"}), CPU, Path("/s"), 60.0, parts)
        assert reducing._layers({"n_layer": 4}, {}) is None is reducing._layers({}, {"n_layer": 4})
        assert reducing._layers({"n_layer": 4}, {"n_layer": 2}) == (4, 2)


class TestWorld:
    @pytest.mark.parametrize(("split", "left"), [(4, 2), (3, 2), (2, 2), (1, 1), ("auto", "auto")])
    def test_partitions_of_no_more_than_there_are(self, split: Any, left: Any) -> None:
        config: dict[str, Any] = {"zero_optimization": {"zero_hpz_partition_size": split}}
        found = reduced(deepspeed=config, plan={"num_processes": 2})
        reducing._world(found, None)
        assert config["zero_optimization"]["zero_hpz_partition_size"] == left
        told = [(item.kind, item.planned, item.run, item.keys) for item in found.changes]
        keys = ("zero_optimization.zero_hpz_partition_size",)
        assert told == ([(Kind.HPZ_PARTITION, split, 2, keys)] if left != split else [])

    def test_places_in_words(self) -> None:
        found = reduced(ranks=4, plan={"num_processes": 8}, deepspeed={"train_batch_size": "auto"})
        reducing._world(found, Nodes(2, 1, "a", 7, 2))
        world, nodes = found.changes
        assert (world.kind, world.planned, world.run, world.keys) == (Kind.WORLD_SIZE, 8, 4, ("num_processes",))
        assert nodes.run == {"count": 2, "rank": 1, "address": "a", "port": 7, "each": 2}
        assert found.deepspeed == {"train_batch_size": "auto"} and found.plan == {"num_processes": 4}

    @pytest.mark.parametrize(
        ("sizes", "before", "planned", "ranks", "after"),
        [
            ({"train_micro_batch_size_per_gpu": 3}, 7, 3, 1, 2),
            ({"train_micro_batch_size_per_gpu": 2}, 7, 3, 1, 3),
            ({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 2}, 5, 2, 1, 3),
            ({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 3}, 5, 2, 1, 2),
            ({"train_micro_batch_size_per_gpu": 1}, 1, 3, 1, 2),
            ({"train_micro_batch_size_per_gpu": 2}, 1, 3, 1, 1),
            ({"train_micro_batch_size_per_gpu": 2}, 4, 1, 2, 8),
        ],
    )
    def test_samples_of_a_step(self, sizes: Any, before: int, planned: int, ranks: int, after: int) -> None:
        assert reducing._scaled(sizes, before, planned, reduced(ranks=ranks)) == after

    def test_each_drive_has_its_place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ctypes.util.find_library", lambda name: "libaio.so")
        names = ("offload_optimizer", "offload_param")
        sections = {name: {"device": "nvme", "nvme_path": f"/no/such/{name}"} for name in names}
        found = reduced(deepspeed={"zero_optimization": sections})
        reducing._offload(found, tmp_path)
        place = str(tmp_path / "nvme")
        assert [(item.kind, item.planned, item.run, item.keys) for item in found.changes] == [
            (
                Kind.OPTIMIZER_DRIVE,
                "/no/such/offload_optimizer",
                place,
                ("zero_optimization.offload_optimizer.nvme_path",),
            ),
            (Kind.PARAM_DRIVE, "/no/such/offload_param", place, ("zero_optimization.offload_param.nvme_path",)),
        ]
        other = reduced(deepspeed={"zero_optimization": {"offload_optimizer": {"device": "cpu"}, "offload_param": 3}})
        reducing._offload(other, tmp_path)
        assert other.changes == []

    @pytest.mark.parametrize(
        ("stage", "path", "library", "section"),
        [
            (3, None, "libaio.so", {"device": "nvme", "nvme_path": None}),
            (3, None, None, {"device": "nvme", "nvme_path": None}),  # DeepSpeed stops for want of a path, here too
            (2, None, "libaio.so", {"device": "nvme", "nvme_path": None}),  # and looks at none there
            (2, None, None, {"device": "cpu"}),
            (3, "", "libaio.so", {"device": "nvme", "nvme_path": "HERE/nvme"}),
            (3, ".", "libaio.so", {"device": "nvme", "nvme_path": "HERE/nvme"}),  # of another working folder
            (3, 7, "libaio.so", {"device": "nvme", "nvme_path": "HERE/nvme"}),
            (3, "HERE", "libaio.so", {"device": "nvme", "nvme_path": "HERE"}),
            (3, "HERE", None, {"device": "cpu"}),
        ],
    )
    def test_a_drive_that_is_here_or_is_none(
        self,
        stage: int,
        path: Any,
        library: str | None,
        section: dict[str, Any],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("ctypes.util.find_library", lambda name: library)
        monkeypatch.chdir(tmp_path)
        here = tmp_path.as_posix()
        given = path.replace("HERE", here) if isinstance(path, str) else path
        wanted = {key: value.replace("HERE", here) if value else value for key, value in section.items()}
        for written in [{"nvme_path": given}] + [{}] * (path is None):
            zero: dict[str, Any] = {"stage": stage, "offload_param": {"device": "nvme", **written}}
            found = reduced(deepspeed={"zero_optimization": zero})
            reducing._offload(found, tmp_path)
            assert {"nvme_path": None, **zero["offload_param"]} == {"nvme_path": None, **wanted}
            changed = {"device": "nvme", "nvme_path": given} != {"nvme_path": None, **wanted}
            assert [(item.planned, item.run) for item in found.changes] == (
                [("nvme", "cpu") if wanted["device"] == "cpu" else (given, wanted["nvme_path"])] if changed else []
            )

    def test_words_of_what_a_processor_cannot(self) -> None:
        found = reduced(
            accelerate={"distributed_type": "FSDP", "fsdp_config": {"fsdp_offload_params": True, "fsdp_version": 1}},
            arguments={"optim": "npu_adamw"},
        )
        reducing._processor_only(found)
        assert [(item.kind, item.planned, item.run, item.keys) for item in found.changes] == [
            (Kind.FSDP_OFFLOAD, True, False, ("fsdp_config.fsdp_offload_params",)),
            (
                Kind.FSDP_LOADING,
                True,
                False,
                ("fsdp_config.fsdp_sync_module_states", "fsdp_config.fsdp_cpu_ram_efficient_loading"),
            ),
            (Kind.SAVING, None, None, ()),
            (Kind.OPTIM, "npu_adamw", "the default", ("optim",)),
        ]
        plain = reduced(accelerate={"distributed_type": "FSDP"}, arguments={"optim": 3})
        reducing._processor_only(plain)
        assert plain.changes == [] and plain.arguments == {"optim": 3}
        half = reduced(deepspeed={}, plan={"fp16.enabled": True}, accelerate={"mixed_precision": "no"})
        reducing._processor_only(half)
        assert half.accelerate == {"mixed_precision": "no"} and half.deepspeed == {"bf16": {"enabled": True}}
        assert half.changes[0].keys == ("fp16.enabled", "bf16.enabled")

    @pytest.mark.parametrize(
        ("zero", "kinds"),
        [
            ({"stage": 2, "reduce_bucket_size": 10_000_001, "allgather_bucket_size": 1.0}, [Kind.REDUCE_BUCKET]),
            ({"stage": 2, "reduce_bucket_size": 10_000_000, "allgather_bucket_size": 5e8}, [Kind.ALLGATHER_BUCKET]),
            ({"stage": 3, "reduce_bucket_size": "auto", "stage3_param_persistence_threshold": 65}, [Kind.PERSISTENCE]),
            ({"stage": 3, "reduce_bucket_size": 1, "stage3_param_persistence_threshold": "auto"}, []),
        ],
    )
    def test_sizes_just_above(self, zero: dict[str, Any], kinds: list[Kind]) -> None:
        found = reduced(deepspeed={"zero_optimization": zero})
        reducing._buckets(found, CPU, True)
        assert [item.kind for item in found.changes] == kinds
        for item in found.changes:
            assert item.keys == (f"zero_optimization.{item.kind.value}",)
            assert zero[item.kind.value] == item.run == (64 if item.kind is Kind.PERSISTENCE else 10_000_000)

    def test_precisions_that_both_sides_say(self) -> None:
        found = reduced(plan={"bf16.enabled": True, "fp16.enabled": False, "train_micro_batch_size_per_gpu": 1})
        reducing._arguments(found)
        assert found.arguments == {"bf16": True, "fp16": False, "per_device_train_batch_size": 1}
        for scheduler in ("none", {}, {"params": None}, {"params": {"total_num_steps": "auto"}}):
            other = reduced(deepspeed={"scheduler": scheduler})
            reducing._arguments(other)
            assert other.arguments == {}


def found_run(name: str = "a", **more: Any) -> Any:
    empty: dict[str, Any] = {"spec": None, "files": [1], "missing": [], "accelerate": None, "deepspeed": 1}
    empty |= {"recipe": None, "flags": {}, "launch": None, "consumer": "trl"}
    return SimpleNamespace(name=name, **empty | more)


class TestFind:
    """Which of the runs that the linter links is meant."""

    @pytest.fixture
    def find(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        def found(*runs: Any, path: Path = tmp_path, **words: Any) -> Any:
            def linked(paths: Any, files: Any, root: Path) -> Any:
                assert paths == [path] and root == tmp_path
                return list(runs), None

            monkeypatch.setattr(handwritten, "find_runs", linked)
            monkeypatch.setattr(handwritten, "with_consumer", lambda run, consumer: (run.name, consumer))
            return handwritten.find(path, **words)

        return found

    def test_launched_ones_come_first(self, find: Any) -> None:
        alone, launched = found_run("a"), found_run("b", launch=1)
        assert find(alone) is alone and find(alone, launched) is launched
        assert find(alone, launched, name="a") is alone
        assert find(found_run("x/b"), found_run("b2"), name="b").name == "x/b"

    @pytest.mark.parametrize(
        "more",
        [
            {"accelerate": 1, "deepspeed": None},
            {"recipe": SimpleNamespace(document=None), "deepspeed": None},
            {"flags": {"x": 1}, "deepspeed": None},
            {"recipe": SimpleNamespace(document=SimpleNamespace(root={}))},
        ],
    )
    def test_what_makes_a_run(self, more: Any, find: Any) -> None:
        item = found_run(**more)
        assert find(item, found_run(files=[]), found_run(deepspeed=None)) is item

    def test_who_reads_it(self, find: Any) -> None:
        assert find(found_run(consumer=None), consumer="accelerate") == ("a", "accelerate")
        item = found_run()
        assert find(item, consumer="accelerate") is item, "the files come first"

    def said(self, find: Any, *runs: Any, **words: Any) -> str:
        with pytest.raises(NotFoundError) as raised:
            find(*runs, **words)
        return str(raised.value)

    def test_what_cannot_be_run(self, find: Any, tmp_path: Path) -> None:
        known = "an accelerate YAML, a DeepSpeed JSON, a recipe, a script that launches one of them"
        assert self.said(find) == f"'{tmp_path}' holds no config that zerocfg knows: {known}"
        path = tmp_path / "notes.txt"
        assert self.said(find, path=path) == f"'{path}' is no config that zerocfg knows: {known}"
        assert self.said(find, found_run(), found_run(spec=1)).startswith(f"'{tmp_path}' is a spec: ")
        names = [found_run(name) for name in "abcdefghij"]
        shown = ", ".join(f"--run {name}" for name in "abcdefgh")
        assert self.said(find, *names) == f"'{tmp_path}' holds several runs; name one: {shown}"
        assert self.said(find, *names[:2]).endswith("' holds several runs; name one: --run a, --run b")
        assert self.said(find, *names[:2], name="z") == f"'{tmp_path}' holds no run 'z'; there --run a, --run b"
        assert self.said(find, name="z") == f"'{tmp_path}' holds no run 'z'; there is none"
        framework = known_front_ends()[0]
        words = f"a is started by {framework}, which trains in a way of its own: try that"
        assert self.said(find, found_run(consumer=framework)) == words
        unread = self.said(find, found_run(consumer=None))
        assert unread.startswith("nothing tells what reads the configs of a: ")
        assert unread.endswith("say it with --consumer transformers|trl|accelerate|deepspeed")

    def test_what_is_missing_or_broken(self, find: Any) -> None:
        place = SimpleNamespace(file=SimpleNamespace(name="t.sh"), note="gone.yaml")
        missing = found_run(files=[], deepspeed=None, missing=[place, None])
        assert self.said(find, missing) == "t.sh: 'gone.yaml' is nowhere to be found"
        place.file = None
        assert self.said(find, missing) == "'gone.yaml' is nowhere to be found"
        problems = [SimpleNamespace(message="not valid"), None]
        recipe = SimpleNamespace(name="r.yaml", document=SimpleNamespace(root=None, problems=problems))
        assert self.said(find, found_run(recipe=recipe)) == "r.yaml cannot be read: not valid"
        recipe.document.problems = []
        assert self.said(find, found_run(recipe=recipe)) == "r.yaml cannot be read: no mapping"


def setting(value: Any, kind: str = "file", known: bool = True) -> Any:
    return SimpleNamespace(value=value, known=known, origin=SimpleNamespace(kind=kind))


class TestHandwritten:
    def own(self, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Handwritten:
        monkeypatch.setattr(handwritten, "claims", lambda run: {"stage": []})
        return handwritten.handwritten(found_run(**{"deepspeed": None} | more))

    def test_the_words_of_a_launch_line(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        def option(name: str, value: Any = None, text: str = "") -> Any:
            given = None if value is None and not text else SimpleNamespace(value=value, text=text)
            return SimpleNamespace(name=f"--{name}", plain=name.replace("-", "_"), value=given)

        options = [
            option("num-processes", "8"),
            option("use_deepspeed"),
            option("zero_stage", "3"),
            option("x", text="$Y"),
        ]
        variables = {"ACCELERATE_A": "1", "FSDP_B": None, "PARALLELISM_CONFIG_C": "3", "CUDA_X": "4", "OTHER": None}
        line = SimpleNamespace(launcher="accelerate", options=options, environment=variables)
        own = self.own(monkeypatch, launch=line)
        assert own.by_accelerate and own.options == ["--use_deepspeed", "--zero_stage", "3"]
        assert own.variables == {"ACCELERATE_A": "1", "PARALLELISM_CONFIG_C": "3"} and own.requested == {"stage": []}
        assert [(item.kind, item.keys) for item in own.notes] == [
            (Kind.LAUNCH, ("--x", "$Y")),
            (Kind.LAUNCH, ("FSDP_B",)),
        ]
        line.launcher = "torchrun"
        other = self.own(monkeypatch, launch=line, accelerate=SimpleNamespace(path=None))
        assert not other.by_accelerate and other.options == [] and other.variables == own.variables

    def test_files_byte_for_byte(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").write_bytes(b"a: \xff\r\n")
        files = {"accelerate": SimpleNamespace(path=tmp_path / "a.yaml"), "deepspeed": SimpleNamespace(path=None)}
        own = self.own(monkeypatch, **files)
        assert own.texts == {"accelerate": b"a: \xff\r\n"} and own.by_accelerate and own.options == []
        assert not self.own(monkeypatch).by_accelerate

    def lock(self, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], **more: Any) -> Any:
        monkeypatch.setattr(handwritten, "_recipe", lambda run: {"max_steps": 3})
        monkeypatch.setattr(handwritten, "_model", lambda own: more.get("config"))
        launch = SimpleNamespace(launcher="torchrun") if more.get("launched") else None
        run = found_run("r", launch=launch, deepspeed=None, effective=SimpleNamespace(settings=settings))
        halves = [SimpleNamespace(value=value) for value in more.get("halves", ())]
        return handwritten.lock_of(Handwritten(run, {"dtype": halves} if halves else {}))  # type: ignore[dict-item]

    def test_a_lock_of_what_is_known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = {
            "engine": setting("deepspeed", "default"),
            "num_processes": setting(4, "flag"),
            "gradient_clipping": setting(0.5),
            "zero_optimization.stage": setting(UNKNOWN, known=False),
            "bf16.enabled": setting("auto", known=False),
            "optimizer.params": setting({"a": 1}),
            "wall_clock_breakdown": setting(True),
        }
        lock = self.lock(monkeypatch, settings, launched=True, config=MODEL, halves=("fp16", "fp16"))
        assert (lock.run, lock.consumer, lock.launcher, lock.recipe) == ("r", "trl", "torchrun", {"max_steps": 3})
        planned = {"engine": "deepspeed", "num_processes": 4, "gradient_clipping": 0.5, "fp16.enabled": True}
        assert lock.plan == planned and lock.model_config == MODEL and lock.model_facts == {"parameters": PARAMETERS}
        explicit = {"num_processes": 4, "gradient_clipping": 0.5, "wall_clock_breakdown": True}
        assert {name: item.value for name, item in lock.settings.items()} == explicit

    @pytest.mark.parametrize(("halves", "enabled"), [((), False), (("bf16",), False), (("fp16", "bf16"), False)])
    def test_where_files_disagree_libraries_judge(
        self, halves: Any, enabled: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lock = self.lock(monkeypatch, {}, halves=halves)
        assert lock.plan == {"fp16.enabled": enabled, "num_processes": None}
        assert (lock.launcher, lock.model_config, lock.model_facts) == (None, None, {})

    def recipe(self, monkeypatch: pytest.MonkeyPatch, consumer: str, content: Any, **arguments: Any) -> Any:
        read = {"max_steps": setting(7), "lr": setting(UNKNOWN, known=False)}
        monkeypatch.setattr(handwritten, "arguments_of", lambda run: SimpleNamespace(values=read))
        recipe = None if content is None else SimpleNamespace(data=lambda: content)
        return handwritten._recipe(found_run(recipe=recipe, consumer=consumer, arguments=arguments))

    def test_arguments_as_they_are_handed_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        content = {"max_steps": "7", "lr": "1e-4", "other": 1, "deepspeed": "ds.json"}
        for consumer, steps in (("transformers", 7), ("trl", 7), ("accelerate", "7")):
            found = self.recipe(
                monkeypatch, consumer, content, other=setting(2), gone=setting(UNKNOWN), no=setting(3, known=False)
            )
            assert found == {"max_steps": steps, "lr": "1e-4", "other": 2}
        assert self.recipe(monkeypatch, "trl", None, a=setting(1)) == {"a": 1}
        assert self.recipe(monkeypatch, "trl", [1]) == {}

    def test_the_models_config(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "good.json").write_text('{"a": 1}')
        for name, text in (("list", "[1]"), ("broken", "{")):
            (tmp_path / f"{name}.json").write_text(text)
        asked: list[tuple[str, Path]] = []

        def config(name: str, place: Path) -> Path | None:
            asked.append((name, place))
            return tmp_path / f"{name}.json" if place == tmp_path else None

        monkeypatch.setattr(handwritten, "find_config", config)

        def model(recipe: Any = None, files: Any = (), **arguments: Any) -> Any:
            data = None if recipe is None else SimpleNamespace(data=lambda: recipe)
            settings = {name: setting(value) for name, value in arguments.items()}
            return handwritten._model(SimpleNamespace(run=found_run(recipe=data, files=files, arguments=settings)))  # type: ignore[arg-type]

        assert model(model="good") == {"a": 1} == model({"model_name": "good"}) == model(model_id="good")
        assert model({"model": "broken"}, model="good") == {"a": 1}, "the line comes before the recipe"
        assert model({"model_name_or_path": "list", "model": "good"}) == {"a": 1} == model(model=3, model_id="good")
        assert model(model="broken") is None is model(model="gone") and model([1]) is None is model()
        asked.clear()
        (tmp_path / "sub").mkdir()
        files = [SimpleNamespace(path=tmp_path / "sub" / name) for name in ("a", "b")] + [SimpleNamespace(path=None)]
        assert model(files=files, model="good") == {"a": 1}
        assert asked == [("good", tmp_path / "sub"), ("good", tmp_path)]

    @pytest.mark.parametrize(
        ("text", "recipe", "found"),
        [
            (None, None, None),
            (None, {"deepspeed": {"a": 1}}, {"a": 1}),
            (None, {"deepspeed": "ds.json"}, None),
            (None, [1], None),
            (b'{"a": 1}', {"deepspeed": {"b": 1}}, {"a": 1}),
            (b'{"a": {"b": 1, "b": 1}}', None, None),
            (b"{", None, None),
            (b"[1]", None, None),
            (b"\xff", None, None),
        ],
    )
    def test_the_config_of_deepspeed(self, text: bytes | None, recipe: Any, found: Any) -> None:
        data = None if recipe is None else SimpleNamespace(data=lambda: recipe)
        texts = {} if text is None else {"deepspeed": text}
        own: Any = SimpleNamespace(run=found_run(recipe=data), texts=texts)
        assert handwritten.deepspeed_of(own) == found

    def test_hashes_of_files_that_lie_somewhere(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"x")
        files = [SimpleNamespace(name="a", path=tmp_path / "a"), SimpleNamespace(name="b", path=None)]
        assert handwritten.hashes(found_run(files=files)) == {"a": hashlib.sha256(b"x").hexdigest()}

    def test_notes_are_among_the_changes(self) -> None:
        own = Handwritten(found_run(consumer="accelerate"), {}, notes=[Reduction(Kind.LAUNCH, keys=("x",))])
        found = reduced(deepspeed=json.loads('{"train_micro_batch_size_per_gpu": 1}'))
        own.fit(found, CARD)
        assert found.changes == own.notes and found.arguments == {"per_device_train_batch_size": 1}
