"""What a smoke-run makes of a plan before it starts: other strategies, layers that fit, places of nodes, certificates
that are still good. Values by hand, each limit from both sides."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.smoke.certify import current
from zerocfg.smoke.certify.certificate_file import values_hash
from zerocfg.smoke.certify.code import code_hashes
from zerocfg.smoke.judge.prediction import wire_options
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.prepare import fit
from zerocfg.smoke.prepare.folder import RunFolder, read
from zerocfg.smoke.prepare.nodes import Nodes, here
from zerocfg.smoke.prepare.strategies import label, parse, with_strategy
from zerocfg.smoke.prepare.visible_cards import explain_none, visible_cards

if TYPE_CHECKING:
    from .conftest import MakeRun


class TestStrategies:
    def test_names(self) -> None:
        assert parse(" 3 ,DDP,,0,3") == ["3", "ddp", "0"]
        assert [label(item) for item in ("0", "3", "ddp")] == ["ZeRO-0", "ZeRO-3", "DDP"]
        with pytest.raises(SmokeError, match="no stage is named"):
            parse(" , ")
        with pytest.raises(SmokeError, match="'4' is not a strategy"):
            parse("3,4,5")

    def offloaded(self, make_run: MakeRun, **devices: str) -> RunFolder:
        run = read(make_run(3))
        assert run.deepspeed is not None and run.accelerate is not None
        run.accelerate["mixed_precision"] = "bf16"
        run.accelerate["deepspeed_config"]["zero_stage"] = 3  # type: ignore[index]
        for name, device in devices.items():
            run.deepspeed["zero_optimization"][name] = {"device": device, "nvme_path": "/x"}  # type: ignore[index]
            run.plan[f"zero_optimization.{name}.device"] = device
        return run

    @pytest.mark.parametrize(
        ("stage", "optimizer", "parameters"),
        [("3", "nvme", "nvme"), ("2", "cpu", None), ("1", "cpu", None), ("0", None, None)],
    )
    def test_what_a_stage_can_offload(
        self, make_run: MakeRun, stage: str, optimizer: str | None, parameters: str | None
    ) -> None:
        changed, words = with_strategy(self.offloaded(make_run, offload_optimizer="nvme", offload_param="nvme"), stage)
        assert changed.deepspeed is not None and changed.accelerate is not None
        zero: Any = changed.deepspeed["zero_optimization"]
        plan = changed.plan
        for name, device in (("offload_optimizer", optimizer), ("offload_param", parameters)):
            assert zero.get(name, {}).get("device") == device
            assert ("nvme_path" in zero.get(name, {})) is (device == "nvme")
            assert plan[f"zero_optimization.{name}.device"] == (device or "none")
        assert zero["stage"] == plan["zero_optimization.stage"] == int(stage)
        said = [word.split(":")[0].split(" ")[0] for word in words]
        assert said == {"3": [], "0": ["offload_param", "offload_optimizer"]}.get(
            stage, ["offload_param", "offload_optimizer"]
        )
        section: Any = changed.accelerate["deepspeed_config"]
        assert section["zero3_init_flag"] is (stage == "3") and "zero_stage" not in section
        assert section["deepspeed_config_file"] == "ds_config.json"
        assert "mixed_precision" not in changed.accelerate
        assert changed.accelerate["distributed_type"] == "DEEPSPEED"

    def test_words_of_an_offload(self, make_run: MakeRun) -> None:
        run = self.offloaded(make_run, offload_optimizer="nvme", offload_param="cpu")
        assert with_strategy(run, "1")[1] == [
            "offload_param (cpu) is dropped: it needs stage 3 at least",
            "offload_optimizer: nvme to cpu, because drives need stage 3",
        ]
        assert with_strategy(run, "0")[1][1] == "offload_optimizer (nvme) is dropped: it needs stage 1 at least"
        changed, words = with_strategy(run, "ddp")
        assert words == [
            "offload_optimizer (nvme) is dropped: DDP keeps everything on the device",
            "offload_param (cpu) is dropped: DDP keeps everything on the device",
            "parameters stay in fp32 and are computed with in 16 bit",
        ]
        assert changed.deepspeed is None and changed.plan == {
            "engine": "ddp",
            "num_processes": 4,
            "train_micro_batch_size_per_gpu": 2,
            "gradient_accumulation_steps": 2,
            "gradient_clipping": 0.5,
            "bf16.enabled": True,
            "train_batch_size": 16,
        }
        assert changed.accelerate is not None and "deepspeed_config" not in changed.accelerate
        assert changed.accelerate["mixed_precision"] == "bf16"

    def test_without_deepspeed_sections_of_its_own_are_dropped(self, make_run: MakeRun) -> None:
        run = read(make_run(2))
        assert run.deepspeed is not None
        run.deepspeed |= {"optimizer": {}, "scheduler": {}, "bf16": {"enabled": False}}
        changed, words = with_strategy(run, "ddp")
        assert words == [
            "optimizer of the DeepSpeed config is dropped: the trainer makes its own",
            "scheduler of the DeepSpeed config is dropped: the trainer makes its own",
            "DeepSpeed is dropped",
        ]
        assert changed.accelerate is not None and changed.accelerate["mixed_precision"] == "no"
        with pytest.raises(SmokeError, match="a loop of DeepSpeed's own engine"):
            with_strategy(replace(run, accelerate=None), "ddp")
        plain = replace(run, deepspeed=None)
        assert with_strategy(plain, "ddp")[1] == []

    @pytest.mark.parametrize("source", ["plan", "recipe", "accelerate", "nothing"])
    def test_deepspeed_for_a_run_without_it(self, make_run: MakeRun, source: str) -> None:
        run = read(make_run(None))
        assert run.accelerate is not None
        run.plan.pop("bf16.enabled")
        run.lock.recipe.pop("bf16")
        run.plan["gradient_clipping"] = None
        if source == "plan":
            run.plan["fp16.enabled"] = True
        if source == "recipe":
            run.lock.recipe["fp16"] = True
        if source == "accelerate":
            run.accelerate["mixed_precision"] = "fp16"
        changed, words = with_strategy(run, "3")
        half = {} if source == "nothing" else {"fp16": {"enabled": True}}
        assert changed.deepspeed == {
            "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True},
            "train_micro_batch_size_per_gpu": 2,
            "gradient_accumulation_steps": 2,
            **half,
        }
        assert words == ["DeepSpeed instead of DDP, with its own defaults"]
        assert changed.plan["engine"] == "deepspeed" and changed.plan.get("fp16.enabled") is (True if half else None)


class TestLayers:
    """A model of 10 layers that each take 10 bytes beside 5 for the rest."""

    def most(self, room: float, known: bool = True, **more: Any) -> tuple[int, int | None, str]:
        config = {"num_hidden_layers": 10, **more}

        class Counted:
            def size(self, config: dict[str, Any]) -> Any:
                takes = 5 + 10 * config["num_hidden_layers"]
                asked.append(config["num_hidden_layers"])

                def against(_: Any, share: float) -> str | None:
                    shares[config["num_hidden_layers"]] = share
                    return None if takes <= room else f"{takes} bytes"

                return SimpleNamespace(takes=takes, against=against) if known else None

        asked: list[int] = []
        shares: dict[int, float] = {}
        layers, size, lacking = fit.most_layers(Counted(), config, None)  # type: ignore[arg-type]
        self.asked, self.shares = asked, shares
        return layers, None if size is None else size.takes, lacking  # type: ignore[attr-defined]

    def test_all_fit(self) -> None:
        assert self.most(105) == (10, 105, "") and self.asked == [10]

    @pytest.mark.parametrize(("room", "layers"), [(104, 9), (95, 9), (94, 8), (25, 2), (24, 1), (15, 1)])
    def test_as_many_as_fit(self, room: int, layers: int) -> None:
        assert self.most(room) == (layers, 5 + 10 * layers, f"{15 + 10 * layers} bytes")
        assert len(self.asked) <= 1 + 4, "halved, not one by one"

    def test_not_even_the_fewest(self) -> None:
        assert self.most(14) == (0, None, "15 bytes")
        assert self.most(34, first_k_dense_replace=2) == (0, None, "35 bytes"), "two dense ones and one with experts"
        assert self.most(35, first_k_dense_replace=2)[:2] == (3, 35)

    def test_what_may_be_taken_depends_on_what_is_left(self) -> None:
        self.most(44)
        assert self.shares[10] == fit.WHOLE_SHARE and self.shares[3] == fit.CUT_SHARE
        self.most(15)
        assert self.shares[1] == fit.LEAST_SHARE
        assert len({fit.WHOLE_SHARE, fit.CUT_SHARE, fit.LEAST_SHARE}) == 3

    def test_what_is_not_known(self) -> None:
        with pytest.raises(ValueError, match="the sizes of the tensors are not known"):
            self.most(100, known=False)
        with pytest.raises(ValueError, match="the number of layers is not known"):
            self.most(100, num_hidden_layers=None)


class TestSequence:
    @pytest.mark.parametrize(
        ("recipe", "consumer", "found"),
        [
            ({}, "transformers", (None, "")),
            ({}, "trl", (1024, "the default of TRL's max_length")),
            ({"max_length": 512, "cutoff_len": 3}, "trl", (512, "max_length of the recipe")),
            ({"max_length": 0, "cutoff_len": 300}, "transformers", (300, "cutoff_len of the recipe")),
            ({"max_length": True, "block_size": 64}, "transformers", (64, "block_size of the recipe")),
            ({"max_completion_length": 100}, "trl", (100, "the recipe's completion and prompt")),
            (
                {"max_completion_length": 100, "max_prompt_length": 60, "max_length": 7},
                "trl",
                (160, "the recipe's completion and prompt"),
            ),
        ],
    )
    def test_where_it_is_said(
        self, make_run: MakeRun, recipe: dict[str, Any], consumer: str, found: tuple[int | None, str]
    ) -> None:
        assert fit.sequence_of(read(make_run(3, recipe=recipe, consumer=consumer))) == found


class TestNodes:
    def test_the_last_number_of_a_node_and_of_a_port(self) -> None:
        place = {"MASTER_ADDR": "a", "NODE_RANK": "1", "MASTER_PORT": "65535"}
        assert here(2, place) == Nodes(2, 1, "a", 65535)
        for wrong in ({"NODE_RANK": "2"}, {"MASTER_PORT": "65536"}, {"NODE_RANK": "-1"}, {"NODE_RANK": "1e0"}):
            with pytest.raises(SmokeError, match="is needed"):
                here(2, place | wrong)
        with pytest.raises(SmokeError, match=r"set MACHINE_RANK to the number of this node, 0 to 1, on every node"):
            here(2, {"MASTER_ADDR": "a"})
        with pytest.raises(SmokeError, match=r"--nodes 2: set MAIN_PROCESS_IP to the address of the node with MACHINE"):
            here(2, {"MACHINE_RANK": "0"})

    def test_ranks_of_a_node(self) -> None:
        assert list(Nodes(3, 2, "a", 1, 4).own) == [8, 9, 10, 11] and Nodes(3, 2, "a", 1, 4).ranks == 12


class TestCertified:
    """Exactly these files, values and code, of a smoke-run that passed."""

    @pytest.mark.parametrize(
        "changed",
        [
            {},
            {"passed": False},
            {"failed": ("x",)},
            {"failure": object()},
            {"unmeasured": ("x",)},
            {"run": "other"},
            {"files": {}},
            {"values": "other"},
            {"code": {"train.py": "0"}},
        ],
        ids=lambda changed: next(iter(changed), "good"),
    )
    def test_each_of_them_counts(
        self, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
    ) -> None:
        run = read(make_run(3))
        result = {"passed": True, "failed": (), "failure": None, "unmeasured": (), "run": "tiny"}
        bound = {"files": run.hashes, "values": values_hash(run.lock), "code": code_hashes(run.path, run.lock)}
        for name, value in changed.items():
            (result if name in result else bound)[name] = value
        found = SimpleNamespace(result=SimpleNamespace(**result), **bound)
        monkeypatch.setattr(current, "read", lambda path: found if path == run.path / "certificate.json" else None)
        monkeypatch.setattr(current, "NAME", "certificate.json")
        assert current.is_certified(run) is not bool(changed)
        assert not current.is_certified(replace(run, changed={"x": "y"}))
        assert not current.is_certified(replace(run, handwritten=object()))  # type: ignore[arg-type]

    def test_without_one_there_is_none(self, make_run: MakeRun) -> None:
        assert not current.is_certified(read(make_run(3)))


class TestWire:
    @pytest.mark.parametrize(
        ("stated", "width"),
        [("fp16", "fp16"), ("bfp16", "bf16"), ("torch.fp32", "fp32"), (None, None), ("int8", None)],
    )
    def test_the_dtype_of_communication(self, stated: str | None, width: str | None) -> None:
        assert wire_options({"communication_data_type": stated}).communication == width

    def test_switches_are_on_or_off_by_default(self) -> None:
        zero = "zero_optimization."
        found = wire_options({})
        assert (found.multi_rank_allreduce, found.reduce_scatter) == (True, True)
        assert (found.quantized_weights, found.quantized_gradients) == (False, False)
        other = wire_options(
            {
                f"{zero}use_multi_rank_bucket_allreduce": False,
                f"{zero}reduce_scatter": False,
                f"{zero}zero_quantized_weights": True,
                f"{zero}zero_quantized_gradients": True,
            }
        )
        assert (other.multi_rank_allreduce, other.reduce_scatter) == (False, False)
        assert (other.quantized_weights, other.quantized_gradients) == (True, True)


def card(index: int, slices: int = 0, mig: bool = False) -> Any:
    parts = tuple(
        SimpleNamespace(uuid=f"MIG-{index}{part}aa", profile="1g.10gb", memory=10 + part) for part in range(slices)
    )
    return SimpleNamespace(
        index=index,
        name=f"card {index}",
        uuid=f"GPU-{index}abc",
        memory=80,
        free=70,
        mig=mig,
        slices=parts,
        unified=False,
    )


class TestVisible:
    """The CUDA programming guide's rules for CUDA_VISIBLE_DEVICES."""

    CARDS = (card(0), card(1), card(2))

    @pytest.mark.parametrize(
        ("variable", "found"),
        [
            (None, [0, 1, 2]),
            ("", []),
            ("1", [1]),
            ("2,0", [2, 0]),
            ("0,5,1", [0]),
            ("0,-1,1", [0]),
            ("0,1,0", []),
            ("+1x, 2", [1, 2]),
            ("GPU-1,GPU-2ab", [1, 2]),
            ("GPU-,GPU-2ab", []),
            ("GPU-1,2", [1]),
            ("1,GPU-2", [1]),
            ("MIG-0", []),
            ("word", []),
        ],
    )
    def test_cards(self, variable: str | None, found: list[int]) -> None:
        assert [device.card.index for device in visible_cards(self.CARDS, variable)] == found

    def test_one_slice_is_seen_and_beside_it_no_card(self) -> None:
        cards = (card(0), card(1, 2, True), card(2, 0, True))
        (device,) = visible_cards(cards, None)
        assert (device.card.index, device.name, device.memory, device.free) == (1, "card 1 MIG 1g.10gb", 10, 10)
        (second,) = visible_cards(cards, "MIG-11")
        assert second.memory == 11
        assert visible_cards(cards, "MIG-1") == [], "two slices begin so"
        assert [item.card.index for item in visible_cards(cards, "0,2,1")] == [0]
        whole = visible_cards(cards[:1], None)[0]
        assert (whole.name, whole.memory, whole.free) == ("card 0", 80, 70)

    def test_why_there_is_none(self) -> None:
        empty = (card(0), card(3, 0, True))
        assert explain_none(empty, None).startswith("MIG mode is enabled on card 3 (card 3) and no MIG device")
        assert explain_none(empty, "3").startswith("MIG mode is enabled")
        assert explain_none(empty, " ") == "CUDA_VISIBLE_DEVICES=' ' names no card of this machine"
        assert explain_none(self.CARDS, None) == "CUDA enumerates none of the cards that nvidia-smi lists"
        assert explain_none(self.CARDS, "7") == "CUDA_VISIBLE_DEVICES='7' names no card of this machine"


def test_a_folder_as_it_was_built(make_run: MakeRun) -> None:
    """Each file against its hash in the lock; a file that is gone or edited is named."""
    folder = make_run(3)
    assert read(folder).changed == {}
    config = json.loads((folder / "ds_config.json").read_text())
    (folder / "ds_config.json").write_text(json.dumps({**config, "steps_per_print": 7}))
    run = read(folder)
    assert list(run.changed) == ["ds_config.json"] and run.deepspeed is not None
    assert Path(run.path) == folder
