"""What is read of a run's model and trainer, and what is said of a plan: each value and guard by itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.build.test_choice_limits import PLAIN, candidate, other, profile, setting
from tests.build.test_forecast_limits import CONFIG, ENGINE, FACTS, built, summary
from tests.build.test_road_limits import inputs_of, run_of
from zerocfg.hardware.catalogue import parse_hardware
from zerocfg.memory.activations.tracing import Adapters
from zerocfg.memory.lora import Quantisation
from zerocfg.memory.options import Options, Rollouts, TorchOptions, Workload
from zerocfg.memory.overhead import GIB, Band
from zerocfg.memory.verdict import Verdict
from zerocfg.models.hardware import Host
from zerocfg.models.model_facts import ModelFacts
from zerocfg.models.spec import RunSpec
from zerocfg.resolve import model_plans
from zerocfg.resolve.explain import alternatives, plan_summary, refused_values
from zerocfg.resolve.explain.forecast import LITTLE, Forecast, _samples, forecast
from zerocfg.resolve.inputs import Inputs
from zerocfg.resolve.model import activations, fused_loss, gaps, grpo, memory_summary, register, room, trainer_defaults
from zerocfg.resolve.model.reader import Reader
from zerocfg.resolve.model.setup import Setup
from zerocfg.resolve.model.sharing import parts_of_sequence, split_by_transformers
from zerocfg.resolve.model.trl_trainer import trainer_of
from zerocfg.resolve.model_plans import Model, ModelImages, find_model, not_a_model, plans_of
from zerocfg.resolve.plan import Considered, Decision
from zerocfg.resolve.search.choice import LIVE, MICRO, OPTIMIZER_DEVICE, PARAM_DEVICE, REDUCED, STAGE, STEPS, Choice
from zerocfg.run.config import VERSIONS
from zerocfg.run.facts import ModelSummary
from zerocfg.run.model import UNKNOWN, Call, Effective, Script, SourceFile
from zerocfg.source.text import SourceText, Span, Where


def reader(recipe: dict[str, Any] | None = None, settings: dict[str, Any] | None = None, **more: Any) -> Reader:
    spec = {"consumer": "trl", "script": "train.py", **{key: more.pop(key) for key in list(more) if key != "versions"}}
    return Reader((settings or {}).get, recipe or {}, RunSpec.model_validate(spec), more.get("versions", {}))


class TestGrpo:
    """The defaults of GRPOConfig in trl 1.15 and 1.16: 8 generations, 512 tokens, 0.3 of a card for vLLM."""

    @pytest.mark.parametrize(
        ("written", "completion", "group"),
        [(None, 512, 8), (0, 512, 8), (1, 1, 1), (256, 256, 256), ("256", 512, 8), (True, 512, 8)],
    )
    def test_sizes(self, written: Any, completion: int, group: int) -> None:
        assert grpo.completion(reader({"max_completion_length": written})) == completion
        assert grpo.group({"num_generations": written}) == group

    @pytest.mark.parametrize(
        ("recipe", "settings", "steps"),
        [
            ({}, {}, None),
            ({"steps_per_generation": 3}, {}, 3),
            ({"steps_per_generation": 3, "generation_batch_size": 64}, {}, 3),
            ({"steps_per_generation": 0}, {}, None),
            ({"generation_batch_size": 64}, {"train_micro_batch_size_per_gpu": 2, "num_processes": 8}, 4),
            ({"generation_batch_size": 15}, {"train_micro_batch_size_per_gpu": 2, "num_processes": 8}, 1),
            ({"generation_batch_size": 47}, {"train_micro_batch_size_per_gpu": 2, "num_processes": 8}, 2),
            ({"generation_batch_size": 6}, {}, 6),
        ],
    )
    def test_micro_batches_of_a_generation(self, recipe: Any, settings: Any, steps: int | None) -> None:
        assert grpo._steps(reader(recipe, settings)) == steps

    @pytest.mark.parametrize(
        ("recipe", "size"),
        [
            ({}, 18),
            ({"temperature": 1, "repetition_penalty": 1.0, "top_k": 0, "top_p": 1.0}, 18),
            ({"temperature": 0.7}, 22),
            ({"repetition_penalty": 1.1}, 22),
            ({"top_k": 50}, 22),
            ({"min_p": 0.1}, 22),
            ({"top_p": 0.9}, 40),
            ({"top_p": "0.9"}, 18),
        ],
    )
    def test_bytes_of_a_logit(self, recipe: dict[str, Any], size: int) -> None:
        assert grpo._per_logit(reader(recipe)) == size

    @pytest.mark.parametrize(
        ("recipe", "changed"),
        [
            ({}, {}),
            ({"use_vllm": True}, {"by": "colocated vLLM"}),
            ({"use_vllm": True, "vllm_mode": "server"}, {"by": "vLLM server"}),
            ({"vllm_mode": "server"}, {}),
            ({"vllm_gpu_memory_utilization": 1}, {"share": 1.0}),
            ({"vllm_gpu_memory_utilization": 1.1}, {}),
            ({"vllm_gpu_memory_utilization": 0}, {}),
            ({"vllm_enable_sleep_mode": True}, {"sleeps": True}),
            ({"num_iterations": 2}, {"iterations": 2}),
            ({"num_iterations": 0}, {}),
            ({"ds3_gather_for_generation": False}, {"gathers": False}),
            ({"beta": 0.1}, {"reference": True}),
            ({"beta": 0.0}, {}),
            ({"beta": "0.1"}, {}),
        ],
    )
    def test_how_it_samples(self, recipe: dict[str, Any], changed: dict[str, Any]) -> None:
        usual = Rollouts("transformers", 0.3, False, None, 1, True, 18, False, 4)
        read = reader(recipe)
        assert grpo.rollouts(read, None, False) == replace(usual, **changed)
        assert read.assumed == ["rewards are counted as functions that take no memory of a card"]

    def test_the_reference(self) -> None:
        """In the dtype in which it is loaded; of adapters it is the model without them."""
        read = reader({"beta": 0.1})
        for dtype, width in (("bfloat16", 2), ("float16", 2), ("float32", 4), (None, 4)):
            found = grpo.rollouts(read, dtype, False)
            assert found is not None and (found.reference, found.reference_width) == (True, width)
        adapted = grpo.rollouts(read, None, True)
        assert adapted is not None and not adapted.reference

    @pytest.mark.parametrize(
        ("trl", "known"),
        [
            (None, True),
            ("==1.15.0", True),
            (">=1.15", True),
            ("==1.14.2", False),
            (">=1.14", False),
            ("==0.0.1", False),
            (">=99", True),  # planned for as the newest that is known
        ],
    )
    def test_releases_that_are_modelled(self, trl: str | None, known: bool) -> None:
        read = reader(versions={"trl": trl} if trl else {}, sequence_length=2048)
        assert grpo.known_release(read) is known
        assert (grpo.rollouts(read, None, False) is not None) is known
        assert (grpo.lacking(read, 512, autocast=False, sees=False) == "") is known

    @pytest.mark.parametrize(
        ("recipe", "how", "said"),
        [
            ({}, {}, ""),
            ({}, {"sees": True}, "modelled for text alone"),
            ({"use_transformers_continuous_batching": True}, {}, "continuous batching"),
            ({"use_transformers_paged": True}, {}, "continuous batching"),
            ({}, {"autocast": True}, "under autocast is not modelled"),
            ({"use_vllm": True}, {"autocast": True}, ""),
            ({}, {"tokens": 1023}, ""),
            ({}, {"tokens": 1024}, "more than the 1024 tokens of `max_completion_length`"),
        ],
    )
    def test_why_activations_are_not_known(self, recipe: Any, how: dict[str, Any], said: str) -> None:
        given = {"tokens": 512, "autocast": False, "sees": False, **how}
        found = grpo.lacking(reader(recipe, sequence_length=1024), given.pop("tokens"), **given)
        assert said in found and bool(found) is bool(said)

    def test_without_a_length_there_are_none(self) -> None:
        assert "nothing says how long prompt and completion are" in grpo.lacking(
            reader(), 512, autocast=False, sees=False
        )


class TestReader:
    @pytest.mark.parametrize(
        ("written", "otherwise", "read"),
        [
            (True, False, True),
            (False, True, False),
            ("YES", False, True),
            ("no", True, False),
            ("nonsense", True, False),
            (1, False, False),
            (None, True, True),
            (UNKNOWN, True, True),
        ],
    )
    def test_a_switch(self, written: Any, otherwise: bool, read: bool) -> None:
        assert reader({"a": written}).flag("a", otherwise) is read

    def test_ranks_that_share_a_sequence_or_a_layer(self) -> None:
        prefix = "parallelism_config.parallelism_config_"
        sizes = {f"{prefix}cp_size": 2, f"{prefix}sp_size": 3}
        for engine, parts in (("fsdp", 2), ("deepspeed", 3), ("ddp", 1), (None, 1)):
            assert parts_of_sequence(reader(settings={"engine": engine, **sizes})) == parts
        for ranks, split in ((1, 1), (8, 8)):
            assert split_by_transformers(reader(settings={f"{prefix}tp_size": ranks}), 8) == split
        with pytest.raises(ValueError, match="tp_size 4 for 8 ranks"):
            split_by_transformers(reader(settings={f"{prefix}tp_size": 4}), 8)


def script_of(*calls: str, parsed: str = "") -> Script:
    file = SourceFile("train.py", "script", SourceText("train.py", ""))
    found = tuple(Call(name, {}, file, Span(0, 0)) for name in calls)
    return Script(file, calls=found, parsed=frozenset({parsed} - {""}))


class TestTrainer:
    @pytest.mark.parametrize(
        ("consumer", "calls", "arguments", "trainer"),
        [
            ("trl", ("trl.KTOTrainer",), {}, "KTOTrainer"),
            ("trl", ("trl.SFTTrainer", "trl.KTOTrainer"), {}, "SFTTrainer"),
            ("trl", ("trl.RewardTrainer", "trl.DPOTrainer"), {}, "DPOTrainer"),
            ("trl", ("trl.SFTConfig", "transformers.Trainer"), {"desirable_weight": 1}, "KTOTrainer"),
            ("trl", (), {"desirable_weight": 1, "num_generations": 8}, "another trainer"),
            ("trl", (), {}, None),
            ("transformers", ("trl.KTOTrainer",), {}, None),
        ],
    )
    def test_who_trains(self, consumer: str, calls: tuple[str, ...], arguments: Any, trainer: str | None) -> None:
        assert trainer_of(run_of(consumer, script=script_of(*calls)), arguments) == trainer

    @pytest.mark.parametrize(
        ("consumer", "parsed", "trl", "wide"),
        [
            ("trl", "trl.ModelConfig", "==1.16.0", True),
            ("trl", "trl.ModelConfig", None, True),
            ("transformers", "trl.ModelConfig", "==1.16.0", False),
            ("trl", "trl.ScriptArguments", "==1.16.0", False),
            ("trl", "trl.ModelConfig", "==0.12.0", False),
        ],
    )
    def test_who_loads_in_fp32(self, consumer: str, parsed: str, trl: str | None, wide: bool) -> None:
        run = run_of(consumer, script=script_of(parsed=parsed), versions={"trl": trl} if trl else {})
        assert trainer_defaults.loads_in_fp32(run) is wide
        assert trainer_defaults.loads_in_fp32(replace(run, script=None)) is False

    def test_who_recomputes_by_default(self) -> None:
        """TRL's configs since 0.22."""
        assert (
            trainer_defaults.recomputes("trl", {}) is True and trainer_defaults.recomputes("transformers", {}) is False
        )
        assert trainer_defaults.recomputes("trl", {"trl": "==0.21.0"}) is False

    @pytest.mark.parametrize(
        ("loss", "smoothed", "trl", "pieces"),
        [
            ("nll", True, None, False),
            ("dft", True, None, True),
            (None, False, None, True),
            ("nll", False, "==1.15.0", True),
            ("nll", True, "==1.15.0", False),
            ("nll", False, "==1.14.2", False),
            (None, False, "==1.7.0", True),
            (None, False, "==1.6.0", False),
            ("chunked_nll", False, "==1.4.0", True),
            ("chunked_nll", False, "==1.3.0", False),
            ("chunked_nll", False, ">=1.3,<1.5", False),
        ],
    )
    def test_the_loss_in_pieces(self, loss: Any, smoothed: bool, trl: str | None, pieces: bool) -> None:
        assert trainer_defaults.loss_in_pieces(loss, smoothed, {"trl": trl} if trl else {}) is pieces


class TestFusedLoss:
    def inputs(self, hardware: str | None = "8xA100-80GB", model: str | None = "llama", **more: Any) -> Any:
        found = inputs_of(run_of(more.pop("consumer", "transformers"), **more), "deepspeed", hardware)
        return replace(found, facts=ModelFacts(model_type=model))

    @pytest.mark.parametrize(
        ("more", "stage", "known"),
        [
            ({}, 2, True),
            ({"hardware": "8xMI300X"}, 2, True),
            ({"hardware": "8xGaudi2"}, 2, False),
            ({"hardware": None}, 2, False),
            ({"model": "granite"}, 2, False),
            ({"model": None}, 2, False),
            ({"recipe": {"label_smoothing_factor": 0.1}}, 2, False),
            ({"recipe": {"label_smoothing_factor": 0}}, 2, True),
            ({"consumer": "trl", "recipe": {"desirable_weight": 1.0}}, 2, False),
            ({"consumer": "trl", "script": script_of("trl.SFTTrainer")}, 2, True),
            ({"versions": {"liger-kernel": "==0.3.0"}}, 2, True),
            ({"versions": {"liger-kernel": "==0.3.0"}, "model": "qwen3"}, 2, False),
            ({"versions": {"liger-kernel": "==0.5.10"}, "model": "qwen3"}, 2, True),
            ({}, 3, True),
            ({"versions": {"liger-kernel": "==0.8.5"}}, 3, True),
            ({"versions": {"liger-kernel": "==0.8.0"}}, 3, False),
            ({"versions": {"deepspeed": VERSIONS["deepspeed"], "transformers": VERSIONS["transformers"]}}, 3, True),
            ({"versions": {"deepspeed": "==0.18.0"}}, 3, False),
            ({"versions": {"transformers": "==5.0.0"}}, 3, False),
            ({"versions": {"transformers": "==5.0.0"}}, 2, True),
        ],
    )
    def test_where_it_is_known_to_work(self, more: dict[str, Any], stage: int, known: bool) -> None:
        found = self.inputs(**more)
        assert fused_loss.fused_by(found, stage=stage) == ("use_liger_kernel" if known else "")
        assert fused_loss.can_fuse(found, stage=stage) is known

    def test_a_script_of_its_own_calls_the_kernels(self) -> None:
        found = self.inputs(consumer="accelerate")
        assert fused_loss.fused_by(found, stage=2) == "Liger's kernels" and not fused_loss.can_fuse(found, stage=2)

    @pytest.mark.parametrize("name", ["use_liger_kernel", "liger_kernel_config", "use_liger", "use_liger_loss"])
    def test_who_decides(self, name: str) -> None:
        assert fused_loss.leaves_open(self.inputs(recipe={"max_steps": 1})) is True
        assert fused_loss.leaves_open(self.inputs(recipe={name: False})) is False
        stated = self.inputs()
        for value in (True, False):
            said = replace(stated, spec=stated.spec.model_copy(update={"fused_loss": value}))
            assert fused_loss.leaves_open(said) is False

    def test_who_states_the_package(self) -> None:
        assert fused_loss.stated(run_of()) is None
        assert fused_loss.stated(run_of(versions={"liger-kernel": ">=0.5"})) == ">=0.5"
        assert fused_loss.where_stated(run_of(versions={"liger-kernel": ">=0.5"})) == "the spec states it"
        assert fused_loss.where_stated(run_of()) == "the project requires it"

    @pytest.mark.parametrize(
        ("text", "stated", "said"),
        [
            ("liger-kernel\n", "", "the project requires it"),
            ("liger-kernel>=0.5\n", ">=0.5", "requirements.txt requires it"),
            ("torch\n", None, "the project requires it"),
        ],
    )
    def test_a_project_that_requires_it(
        self, text: str, stated: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "requirements.txt").write_text(text)
        (tmp_path / "train.py").touch()
        monkeypatch.chdir(tmp_path)
        run = run_of(entry_point=tmp_path / "train.py")
        assert fused_loss.stated(run) == stated
        assert fused_loss.where_stated(run) == said


class TestRegister:
    SETUP = Setup(Options(2, 8), Workload(2, 512), "bf16")

    def sight(
        self,
        setup: Setup | None = None,
        settings: Any = None,
        model: Any = None,
        consumer: str = "trl",
        **arguments: Any,
    ) -> Any:
        return register.Sight(setup or self.SETUP, (settings or {}).get, arguments, model, consumer)

    @pytest.mark.parametrize(
        ("standing", "quiet", "value", "is_quiet"),
        [
            ("modelled", None, "anything", True),
            ("modelled", ("no", "bf16"), "bf16", True),
            ("modelled", ("no", "bf16"), "BF16", True),
            ("modelled", ("no", "bf16"), "fp8", False),
            ("not modelled", None, True, False),
            ("not modelled", None, None, True),
            ("not modelled", None, UNKNOWN, True),
            ("not modelled", None, 0, True),
            ("not modelled", None, "False", True),
            ("not modelled", None, "OFF", True),
            ("not modelled", None, "0", True),
            ("not modelled", None, "1", False),
            ("not modelled", None, [], True),
            ("not modelled", None, {"a": 1}, False),
            ("not modelled", (1,), 1, True),
            ("not modelled", (1,), 0, False),
            ("not modelled", (True,), True, True),
            ("not modelled", (True,), False, False),
        ],
    )
    def test_values_that_say_nothing(self, standing: Any, quiet: Any, value: Any, is_quiet: bool) -> None:
        key = register.Key("engine", "a", ("memory",), standing, "why", quiet)
        assert key.is_quiet(value) is is_quiet

    @pytest.mark.parametrize(
        ("arguments", "more", "evaluates"),
        [
            ({}, {}, False),
            ({"eval_strategy": "no"}, {}, False),
            ({"eval_strategy": "steps"}, {}, True),  # of 8 samples
            ({"eval_on_start": True}, {}, True),
            ({"eval_strategy": "steps", "per_device_eval_batch_size": 2}, {}, False),
            ({"eval_strategy": "steps", "per_device_eval_batch_size": 3}, {}, True),
            ({"eval_strategy": "steps", "per_device_eval_batch_size": "2"}, {}, True),
            (
                {"eval_strategy": "steps", "per_device_eval_batch_size": 2},
                {"fused": True, "consumer": "transformers"},
                True,
            ),
            ({"eval_strategy": "steps", "per_device_eval_batch_size": 2}, {"fused": True}, False),
            ({"eval_strategy": "steps"}, {"work": None}, False),
            ({"eval_strategy": "steps"}, {"work": 8}, False),
            ({"eval_strategy": "steps"}, {"work": 7}, True),
        ],
    )
    def test_evaluation_that_holds_more(self, arguments: Any, more: dict[str, Any], evaluates: bool) -> None:
        size = more.get("work", 2)
        work = None if size is None else Workload(size, 512, fused_loss=more.get("fused", False))
        setup = replace(self.SETUP, workload=work)
        sight = self.sight(setup, consumer=more.get("consumer", "trl"), **arguments)
        assert register._evaluates(sight) is evaluates

    @pytest.mark.parametrize(
        ("kwargs", "selects"),
        [
            ({}, False),
            ({"gradient_checkpointing_kwargs": {"use_reentrant": False, "preserve_rng_state": True}}, False),
            ({"gradient_checkpointing_kwargs": {"use_reentrant": False, "context_fn": 1}}, True),
            ({"activation_checkpointing_kwargs": {"every_n_layers": 2}}, True),
            ({"gradient_checkpointing_kwargs": "text"}, False),
        ],
    )
    def test_some_activations(self, kwargs: dict[str, Any], selects: bool) -> None:
        assert register._selects(self.sight(**kwargs)) is selects

    @pytest.mark.parametrize(
        ("kind", "dense"),
        [("llama", True), ("qwen3_moe", False), ("mixtral", False), ("gpt_oss", False), ("dbrx", False), (None, True)],
    )
    def test_experts(self, kind: str | None, dense: bool) -> None:
        assert register._dense(self.sight(model=ModelSummary("m", model_type=kind))) is dense
        assert register._dense(self.sight()) is True

    @pytest.mark.parametrize(
        ("kind", "named", "others"),
        [
            ("llama", "LlamaMLP", True),
            ("llama", "LlamaDecoderLayer", False),
            ("llama", "A, LlamaDecoderLayer", False),
            ("of-tomorrow", "A", False),
            (None, "A", False),
        ],
    )
    def test_units_of_fsdp(self, kind: str | None, named: str, others: bool) -> None:
        settings = {"fsdp_config.fsdp_transformer_layer_cls_to_wrap": named}
        sight = self.sight(settings=settings, model=ModelSummary("m", model_type=kind))
        assert register._other_layers(sight) is others
        assert register._other_layers(self.sight(settings=settings)) is False

    def test_what_decides_about_the_other_keys(self) -> None:
        alone, split = (
            replace(self.SETUP, options=Options(2, 8)),
            replace(self.SETUP, options=Options(2, 8, tensor_parallel=2)),
        )
        assert not register._split(self.sight(alone)) and register._split(self.sight(split))
        assert register._stage_3(self.sight(settings={STAGE: 3})) and not register._stage_3(
            self.sight(settings={STAGE: 2})
        )
        assert [register._own_loop(self.sight(consumer=item)) for item in ("deepspeed", "accelerate", "trl")] == [
            True,
            True,
            False,
        ]
        assert register._in_fp32(self.sight(replace(self.SETUP, precision="fp32"))) and not register._in_fp32(
            self.sight()
        )
        for dtype, differs in (("bf16", False), ("fp32", True)):
            assert register._other_dtype(self.sight(settings={"communication_data_type": dtype})) is differs
        sampling = replace(self.SETUP, rollouts=Rollouts())
        assert register._samples(self.sight(sampling)) and not register._samples(self.sight())
        assert register._beside_training(self.sight()) and not register._beside_training(self.sight(sampling))
        assert not register._beside_training(self.sight(vllm_mode="server"))
        assert register._smoothed(self.sight(consumer="transformers")) and not register._smoothed(self.sight())
        sighted = ModelSummary("m", vision=object())
        assert register._text_only(self.sight()) and register._text_only(self.sight(model=ModelSummary("m")))
        assert not register._text_only(self.sight(model=sighted))

    def gaps(
        self, settings: Any = None, arguments: Any = None, config: Any = None, exported: Any = None, **more: Any
    ) -> dict[str, str]:
        """What is said of each key that is left out."""
        effective = Effective({name: setting(value) for name, value in (exported or {}).items()})
        run = run_of(more.pop("consumer", "transformers"), effective=effective, **more)
        found = gaps.gaps_of(run, self.SETUP, (settings or {}).get, arguments or {}, config)
        return {item.written: item.standing for item in found}

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({}, {}),
            ({"settings": {"wall_clock_breakdown": True}}, {"`wall_clock_breakdown: true`": "at least"}),
            (
                {"settings": {"wall_clock_breakdown": True, "memory_breakdown": True}},
                {"`wall_clock_breakdown: true`, `memory_breakdown: true`": "at least"},
            ),
            ({"settings": {"optimizer.type": "Lamb"}}, {"`optimizer.type: Lamb`": "not modelled"}),
            ({"settings": {"optimizer.type": "AdamW"}}, {}),
            ({"settings": {"mixed_precision": "fp8"}}, {"`mixed_precision: fp8`": "not modelled"}),
            ({"arguments": {"model_init_kwargs": {"a": 1}}}, {"`model_init_kwargs: {1 keys}`": "not modelled"}),
            (
                {"arguments": {"accelerator_config": {"split_batches": True}}},
                {"`accelerator_config.split_batches: true`": "not modelled"},
            ),
            ({"arguments": {"accelerator_config": {"split_batches": False}}}, {}),
            ({"arguments": {"accelerator_config": "file.json"}}, {}),
            ({"config": {"quantization_config": {"a": 1}}}, {"`quantization_config: {1 keys}`": "not modelled"}),
            (
                {"exported": {"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR"}},
                {"`dynamo_config.dynamo_backend: INDUCTOR`": "not modelled"},
            ),
            ({"exported": {"ACCELERATE_DYNAMO_BACKEND": "NO"}}, {}),
            ({"settings": {"dynamo_config.dynamo_backend": "INDUCTOR"}}, {}),  # nobody exports it
            (
                {"settings": {"parallelism_config.parallelism_config_cp_size": 2}},
                {"`parallelism_config_cp_size: 2`": "at least"},
            ),
            ({"settings": {"parallelism_config.parallelism_config_cp_size": 1}}, {}),
        ],
    )
    def test_keys_that_are_left_out(self, given: dict[str, Any], said: dict[str, str]) -> None:
        assert self.gaps(**given) == said

    def test_what_touches_what(self) -> None:
        made = [gaps.Gap((("a", 1),), "", standing, touches) for standing, touches in (
            ("at least", ("memory",)), ("not modelled", ("time",)), ("at most", ("memory", "time")),
        )]  # fmt: skip
        assert gaps.touching(made, "memory") == (made[0], made[2]) and gaps.touching(made, "batch") == ()
        assert gaps.untimed(made) == (made[1],)
        assert gaps._variables("nothing.at_all") == () == gaps._variables("nothing")


class TestRoom:
    def test_of_a_device_and_of_a_rank_on_the_host(self) -> None:
        assert room.device_room(None) is None and room.host_room(None) is None
        card = profile().accelerator.model_copy(update={"usable_gib": 1.5})
        assert room.device_room(profile(accelerator=card)) == 3 * GIB // 2
        unknown = card.model_copy(update={"usable_gib": None, "memory_gib": None})
        assert room.device_room(profile(accelerator=unknown)) is None
        ranks = parse_hardware("4xcpu").model_copy(update={"host": Host(ram_gib=6.0)})
        assert room.device_room(ranks) == 3 * GIB // 2
        assert room.device_room(ranks.model_copy(update={"host": None})) is None

    def test_ranks_on_the_host_need_what_they_compute_with_as_well(self) -> None:
        prediction: Any = SimpleNamespace(estimate=SimpleNamespace(terms=()), device=Band(GIB, 2 * GIB, 3 * GIB))
        ranks = parse_hardware("4xcpu")
        alone = room.host_needed(prediction, None, 4)
        assert room.host_needed(prediction, profile(), 4) == alone
        found = room.host_needed(prediction, ranks, 4)
        assert [getattr(found, end) - getattr(alone, end) for end in ("low", "expected", "high")] == [
            4 * GIB, 8 * GIB, 12 * GIB
        ]  # fmt: skip


class TestMemory:
    VLLM = Rollouts("colocated vLLM", 0.25)

    @pytest.mark.parametrize(
        ("rollouts", "gib"),
        [
            (VLLM, 20.0),
            (replace(VLLM, sleeps=True), 0.0),
            (replace(VLLM, by="vLLM server"), 0.0),
            (replace(VLLM, by="transformers"), 0.0),
            (None, 0.0),
        ],
    )
    def test_what_vllm_keeps(self, rollouts: Rollouts | None, gib: float) -> None:
        card = profile(accelerator=profile().accelerator.model_copy(update={"usable_gib": 80.0}))
        spec = RunSpec.model_validate({"consumer": "trl", "script": "a.py"})
        own = Setup(Options(2, 8), None, "bf16", rollouts=rollouts)
        found = memory_summary._Predicted(run_of(), FACTS, spec, CONFIG, card, own, None)
        assert found.vllm() == gib and replace(found, setup=None).vllm() == replace(found, profile=None).vllm() == 0.0
        sampling = found.sampling(Workload(1, 8))
        assert (sampling is None) is (rollouts is None)
        assert sampling is None or (sampling.rollouts, sampling.workload) == (rollouts, Workload(1, 8))

    @pytest.mark.parametrize(
        ("settings", "known"),
        [
            ({}, True),
            ({"tensor_parallel.autotp_size": 1}, True),
            ({"tensor_parallel.autotp_size": 2}, False),
            ({"tensor_parallel.autotp_size": "2"}, True),
            ({"parallelism_config.parallelism_config_tp_size": 8, "engine": "ddp"}, False),
            ({"zero_optimization.offload_optimizer.super_offload": True}, False),
            ({"optimizer.params.amsgrad": True, "optimizer.type": "Adam"}, True),
            ({"bf16.bf16_optimizer_states": True}, False),
        ],
    )
    def test_figures_that_the_run_may_stay_below_are_none(self, settings: dict[str, Any], known: bool) -> None:
        """Of a split model, and of keys with which the figures are at most what it takes, or neither."""
        item = summary(ENGINE | settings)
        assert bool(item.states_gib) is (item.peak_gib is not None) is known
        assert item.logits_gib == 0.75

    @pytest.mark.parametrize(("parameters", "known"), [(10**15, True), (10**15 + 1, False)])
    def test_more_parameters_than_any_model_has(self, parameters: int, known: bool) -> None:
        assert bool(summary(facts=ModelFacts(parameters=parameters)).states_gib) is known

    @pytest.mark.parametrize(
        ("settings", "known"),
        [
            ({"bf16.enabled": UNKNOWN}, False),
            ({"fp16.enabled": UNKNOWN, "bf16.enabled": False}, False),
            ({"zero_optimization.offload_param.device": "tape"}, False),
            ({"zero_optimization.offload_param.device": None}, True),
            ({"zero_optimization.stage": None}, False),
        ],
    )
    def test_what_has_to_be_known_of_the_engine(self, settings: dict[str, Any], known: bool) -> None:
        assert (summary(ENGINE | settings).peak_gib is not None) is known

    def test_the_ranks_of_the_run_count_without_hardware(self) -> None:
        seen: list[int] = []
        spec = RunSpec.model_validate({"consumer": "transformers", "script": "a.py"})
        for value, ranks in ((4, 4), (0, 1), ("4", 1), (UNKNOWN, 1)):
            run = run_of(effective=Effective(settings={"num_processes": setting(value), "engine": setting("ddp")}))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(memory_summary, "_setup", lambda _, __, size: seen.append(size))
                memory_summary.memory_summary(run, FACTS, spec, CONFIG, None)
            assert seen.pop() == ranks


class TestActivations:
    SETUP = Setup(Options(2, 8), Workload(2, 1024), "bf16")

    def test_what_is_trained_on_is_sampled(self) -> None:
        """Of a model whose cache nobody knows, only what is beside its activations."""
        item = activations.Activations(FACTS, CONFIG, tracing=False, python=None)
        assert item.sampling(self.SETUP, self.SETUP.workload) is None
        sampled = replace(self.SETUP, rollouts=Rollouts())
        found = item.sampling(sampled, self.SETUP.workload)
        assert found is not None and (found.workload, found.rollouts, found.config) == (
            self.SETUP.workload,
            Rollouts(),
            CONFIG,
        )
        unknown = activations.Activations(ModelFacts(model_type="odd"), None, tracing=False, python=None)
        found = unknown.sampling(sampled, self.SETUP.workload)
        assert found is not None and (found.workload, found.config) == (None, {})
        assert unknown.notes == [
            "activations are not known: what a model of type odd caches while it generates is not known"
        ]
        assert unknown.of(self.SETUP, None) is None

    @pytest.mark.parametrize(
        ("by", "reference", "asks"),
        [("transformers", False, True), ("vLLM server", False, False), ("vLLM server", True, True)],
    )
    def test_a_cache_is_asked_for_where_transformers_generates_or_a_reference_scores(
        self, by: Any, reference: bool, asks: bool
    ) -> None:
        unknown = activations.Activations(ModelFacts(model_type="odd"), None, tracing=False, python=None)
        sampled = replace(self.SETUP, rollouts=Rollouts(by, reference=reference))
        assert unknown._generates(sampled) is not asks
        assert unknown._generates(self.SETUP) is True

    @pytest.mark.parametrize(
        ("ranks", "fused", "traced"), [(1, True, True), (2, True, False), (2, False, True), (1, False, True)]
    )
    def test_a_part_of_the_head_computes_no_loss_in_pieces(self, ranks: int, fused: bool, traced: bool) -> None:
        setup = replace(self.SETUP, options=Options(2, 8, tensor_parallel=ranks))
        assert activations._traceable(setup, Workload(2, 1024, fused_loss=fused)) is traced

    def test_the_facts_of_a_rank(self) -> None:
        assert activations.of_rank(FACTS, CONFIG, self.SETUP) is FACTS
        adapted = replace(self.SETUP, lora=Adapters(rank=8, targets=("q_proj",)))
        unknown = ModelFacts(unknown_because="nobody knows")
        assert activations.of_rank(unknown, CONFIG, adapted) is unknown
        split = replace(self.SETUP, options=Options(2, 8, tensor_parallel=2))
        half = activations.of_rank(FACTS, CONFIG, split)
        assert half.parameters is not None and FACTS.parameters is not None and half.parameters < FACTS.parameters
        found = activations.of_rank(FACTS, CONFIG, adapted)
        assert found.adapters == [8 * 512, 512 * 8], "two matrices of one projection in each layer"

    def test_a_base_that_is_kept_in_fewer_bits(self) -> None:
        assert activations.base_of(CONFIG, self.SETUP) is None
        assert activations.base_of(CONFIG, replace(self.SETUP, quantised=Quantisation(4))) is not None


class TestForecast:
    def made(self, host: int = 0, ram: int | None = None, standings: Any = (), complete: bool = True) -> Forecast:
        item = forecast(built(), tracing=False, changes=False)
        found = tuple(gaps.Gap((("a", 1),), "", standing, touches) for standing, touches in standings)
        prediction: Any = SimpleNamespace(complete=complete)
        return replace(item, host=Band(host, host, host), room=ram, gaps=found, prediction=prediction)

    def test_a_node_has_a_tenth_of_a_gib(self) -> None:
        assert LITTLE == GIB // 10
        assert self.made(LITTLE - 1).of_host == Verdict("fits", 1.0)
        assert self.made(LITTLE).of_host.word == "unknown"
        assert (
            self.made(LITTLE, 64 * GIB).of_host.word == "fits"
            and self.made(64 * GIB, GIB).of_host.word == "does not fit"
        )

    @pytest.mark.parametrize(
        ("standings", "complete", "standing", "whole"),
        [
            ((), True, "modelled", True),
            ((), False, "at least", False),
            ((("at most", ("memory",)),), True, "at most", False),
            ((("at most", ("memory",)),), False, "not modelled", False),
            ((("at least", ("memory",)),), False, "at least", False),
            ((("at most", ("memory",)), ("at least", ("memory", "time"))), True, "not modelled", False),
            ((("at least", ("time",)),), True, "modelled", True),
        ],
    )
    def test_what_the_figures_are(self, standings: Any, complete: bool, standing: str, whole: bool) -> None:
        item = self.made(standings=standings, complete=complete)
        assert (item.standing, item.complete) == (standing, whole)

    @pytest.mark.parametrize(
        ("split", "micro", "steps", "said"),
        [
            (1, 2, 4, ""),
            (8, 1, 1, "1 sample an optimizer step: the 8 ranks that share each layer read the same ones"),
            (4, 2, 3, "12 samples an optimizer step: the 4 ranks that share each layer read the same ones"),
        ],
    )
    def test_samples_of_a_step(self, split: int, micro: int, steps: int, said: str) -> None:
        options = Options(2, 8, tensor_parallel=split, gradient_accumulation_steps=steps)
        assert _samples(Setup(options, Workload(micro, 8), "bf16")) == said
        assert _samples(Setup(options, None, "bf16")) == ""

    def test_keys_without_a_time(self) -> None:
        item = built()
        item.run = replace(item.run, arguments={"torch_compile_backend": setting("inductor")})
        found = forecast(item, tracing=False, changes=False)
        assert found.time is None and [note for note in found.notes if "time" in note] == [
            "no time is predicted: it is not modelled with `torch_compile_backend: inductor` (a compiled model keeps "
            "other activations, and computes faster)"
        ]

    def test_on_the_host(self) -> None:
        assert not forecast(built(), tracing=False, changes=False).on_host
        ranks = parse_hardware("8xcpu")
        found = forecast(built(hardware={"accelerator": ranks.accelerator}, engine="ddp"), tracing=False, changes=False)
        assert found.on_host


class TestSummaries:
    def test_engines_whose_ranks_share_layers(self) -> None:
        shared = "layers shared by 2 ranks"
        assert plan_summary.describe_engine(Options(2, 8, tensor_parallel=2)) == f"ZeRO-2, {shared}"
        assert plan_summary.describe_engine(TorchOptions("single", 2, tensor_parallel=2)) == shared
        assert plan_summary.describe_engine(TorchOptions("single", 1)) == "one process"
        assert plan_summary.describe_engine(TorchOptions("fsdp1", 8)) == "FSDP"

    def test_levers_of_a_built_plan(self) -> None:
        chosen = {LIVE: Decision(7), REDUCED: Decision(9)}
        changes = {"use_liger_kernel": Decision(True)}
        for seen, bucket in (({REDUCED: 9}, {"bucket": 9}), ({}, {})):
            inputs = SimpleNamespace(chosen=chosen, changes=changes, considered=(Considered(seen, "fits", 1.0, 1.0),))
            item: Any = SimpleNamespace(inputs=inputs)
            assert alternatives._levers(item) == {"live": 7, "fused_loss": True, **bucket}
        nothing: Any = SimpleNamespace(inputs=SimpleNamespace(chosen=chosen, changes={}, considered=()))
        assert alternatives._levers(nothing) == {"live": 7}

    def test_a_plan_that_has_them(self) -> None:
        item = other(live=7, fused_loss=True)
        assert alternatives._has(item, {"live": 7, "fused_loss": True}) and alternatives._has(item, {})
        assert not alternatives._has(item, {"live": 8}) and not alternatives._has(candidate(PLAIN), {"live": 7})

    def test_before_the_loss_was_chosen(self) -> None:
        arguments = {"use_liger_kernel": setting(True), "max_steps": setting(1)}
        found = alternatives._without_liger(inputs_of(run_of(arguments=arguments)))
        assert found.run.arguments == {"max_steps": setting(1)}

    def test_the_settings_of_a_run_without_zero(self) -> None:
        spec = RunSpec.model_validate({"consumer": "transformers", "script": "a.py", "sequence_length": 512})
        plan = SimpleNamespace(engine="ddp", num_processes=8)
        run = run_of(recipe={"gradient_checkpointing": True})
        item: Any = SimpleNamespace(plan=plan, run=run, inputs=SimpleNamespace(spec=spec))
        values = {"engine": "ddp", "num_processes": 8, "train_micro_batch_size_per_gpu": 2, STAGE: 0}
        assert alternatives._own(item, values) == {
            "num_processes": 8,
            "train_micro_batch_size_per_gpu": 2,
            "gradient_accumulation_steps": None,
            "gradient_checkpointing": True,
        }

    def test_settings_of_a_plan_without_levers(self) -> None:
        work = Workload(1, 8, gradient_checkpointing=True)
        item = replace(other(live=7), setup=SimpleNamespace(workload=work))  # type: ignore[arg-type]
        found = alternatives._settings(item)
        assert found["gradient_checkpointing"] is True and LIVE not in found and found[STAGE] == 2
        nothing = replace(item, setup=SimpleNamespace(workload=None))  # type: ignore[arg-type]
        assert alternatives._settings(nothing)["gradient_checkpointing"] is False

    def test_a_refused_value_in_words(self) -> None:
        item = refused_values.RefusedValue("a.b", "5", Where("ds.json", 3, 4), "DeepSpeed", "is none of 0, 1")
        assert str(item) == "a.b is 5 (ds.json:3), and DeepSpeed stops at it: the value is none of 0, 1"
        problem = item.problem
        assert (problem.key, problem.place) == ("a.b", Where("ds.json", 3, 4))
        assert problem.message == "the value 5 is none of 0, 1; DeepSpeed stops at it"
        assert problem.help == "Correct it in ds.json, or leave it out."

    @pytest.mark.parametrize(("written", "taken"), [(5, True), (6, False), (None, False)])
    def test_values_that_a_build_takes_over(self, written: int | None, taken: bool) -> None:
        accelerate = {} if written is None else {"a.b": Decision(written)}
        item: Any = SimpleNamespace(plan=SimpleNamespace(accelerate=accelerate))
        key: Any = SimpleNamespace(path=("a", "b"), value=5)
        assert refused_values._is_taken_over(key, item) is taken
        assert refused_values._is_taken_over(key, SimpleNamespace(plan=None)) is False  # type: ignore[arg-type]


class TestAllPlans:
    """What :func:`alternatives.alternatives` compares, with the searches and predictions replaced."""

    VALUES = {MICRO: 1, STEPS: 1, STAGE: 2, OPTIMIZER_DEVICE: "none", PARAM_DEVICE: "none"}  # noqa: RUF012

    def shown(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *others: str,
        chosen: Any = (),
        plan_engine: str = "deepspeed",
        **more: Any,
    ) -> tuple[list[alternatives.Alternative], dict[str, Any]]:
        said: dict[str, Any] = {"engines": [], "options": [], "ways": [], "runs": []}

        def candidates_of(inputs: Inputs, before: Any, **options: Any) -> Any:
            said["options"].append(options)
            said["runs"].append((inputs.engine, before, sorted(inputs.run.arguments)))
            return SimpleNamespace(of=lambda choice: self.predicted(choice, inputs.engine))

        def evaluate(item: Any, choices: Any) -> list[Any]:
            ways = list(choices)
            said["ways"].append(ways)
            return [item.of(way) for way in ways]

        inputs = replace(inputs_of(run_of(arguments=more.pop("arguments", {})), **more), chosen=dict(chosen))
        searches = [SimpleNamespace(inputs=replace(inputs, engine=name), before=name) for name in others]  # type: ignore[arg-type]
        monkeypatch.setattr(alternatives, "other_engines", lambda _: searches)
        monkeypatch.setattr(alternatives, "require_accepted_values", said["engines"].append)
        monkeypatch.setattr(alternatives, "candidates_of", candidates_of)
        monkeypatch.setattr(alternatives, "evaluate", evaluate)
        monkeypatch.setattr(alternatives, "rank_engines", lambda found, prefer: self.rank(found, prefer, said))
        settings = {name: SimpleNamespace(value=value) for name, value in (self.VALUES | {"num_processes": 8}).items()}
        plan = SimpleNamespace(settings=settings, engine="deepspeed", num_processes=8)
        item: Any = SimpleNamespace(plan=plan, run=inputs.run, inputs=replace(inputs, **self.changed))
        return alternatives.alternatives(item), said | {"built": item}

    changed: dict[str, Any] = {}  # noqa: RUF012

    def predicted(self, choice: Choice, _engine: str) -> Any:
        work = SimpleNamespace(gradient_checkpointing=bool(choice.checkpointing))
        return SimpleNamespace(choice=choice, setup=SimpleNamespace(workload=work))

    def rank(self, found: list[Any], prefer: Any, said: dict[str, Any]) -> list[tuple[Any, str]]:
        said["prefer"] = prefer
        return [(item, "" if index == 0 else "slower") for index, item in enumerate(found)]

    def test_every_stage_place_and_recomputation_of_zero(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found, said = self.shown(monkeypatch)
        (ways,) = said["ways"]
        assert {way.stage for way in ways} == {0, 1, 2, 3} and {way.checkpointing for way in ways} == {False, True}
        assert {way.offload_optimizer for way in ways} == {"none", "cpu"} and {way.engine for way in ways} == {None}
        assert {(way.nodes, way.per_node, way.micro_batch, way.accumulation) for way in ways} == {(1, 8, 1, 1)}
        assert said["options"] == [{"resize": False, "tracing": False}] and said["prefer"] == "throughput"
        assert said["engines"] == [said["built"]]
        assert len(found) == len(ways) and [item.excluded for item in found[:2]] == ["", "slower"]
        (own,) = [item.candidate.choice for item in found if item.own]
        assert own == Choice(1, 8, 2, "none", "none", 1, 1, False)

    def test_the_goal_decides_the_order_and_sizes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _, said = self.shown(monkeypatch, goals={"prefer": "cost"})
        assert said["prefer"] == "cost" and said["options"] == [{"resize": True, "tracing": False}]

    def test_other_engines_stand_beside_a_chosen_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        given = {"chosen": {"engine": Decision("deepspeed")}}
        found, said = self.shown(monkeypatch, "ddp", "fsdp", goals={"prefer": "memory"}, **given)
        assert [item[:2] for item in said["runs"]] == [("deepspeed", Effective()), ("ddp", "ddp"), ("fsdp", "fsdp")]
        zero, ddp, fsdp = said["ways"]
        assert {way.engine for way in zero} == {"deepspeed"} and {way.stage for way in zero} == {0, 1, 2, 3}
        assert {(way.engine, way.stage, way.offload_optimizer) for way in ddp} == {("ddp", None, None)}
        assert {(way.engine, way.stage, way.offload_param) for way in fsdp} == {("fsdp", None, None)}
        assert [item.candidate.choice.engine for item in found if item.own] == ["deepspeed"]
        assert len(found) == len(zero) + len(ddp) + len(fsdp)

    @pytest.mark.parametrize(
        "given", [{"chosen": {"engine": Decision("ddp")}}, {"goals": {"prefer": "memory"}}], ids=["no goal", "named"]
    )
    def test_no_other_engine_beside_one_that_is_given(self, given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        _, said = self.shown(monkeypatch, "ddp", **given)
        assert len(said["ways"]) == 1 and {way.engine for way in said["ways"][0]} == {None}

    @pytest.mark.parametrize("goals", [None, {"prefer": "memory"}])
    def test_the_plan_with_its_levers_stands_beside_the_plain_ones(
        self, goals: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        changed = {"changes": {"use_liger_kernel": Decision(True)}, "before": Effective()}
        monkeypatch.setattr(TestAllPlans, "changed", changed | {"chosen": {LIVE: Decision(7)}})
        arguments = {"use_liger_kernel": setting(True), "max_steps": setting(1)}
        found, said = self.shown(monkeypatch, goals=goals, arguments=arguments)
        own = [item.candidate.choice for item in found if item.own]
        plain = Choice(1, 8, 2, "none", "none", 1, 1, False)
        if goals is None:  # nothing was chosen for it
            assert own == [plain] and said["runs"][0][2] == ["max_steps", "use_liger_kernel"]
        else:
            assert own == [replace(plain, live=7, fused_loss=True)] and said["runs"][0][2] == ["max_steps"]
            assert len(found) == len(said["ways"][0]) + 1

    def test_settings_of_the_run_where_nothing_was_chosen_before(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = Effective(settings={STAGE: setting(1)})
        for given, expected in ((before, before), (None, Effective())):
            monkeypatch.setattr(TestAllPlans, "changed", {"before": given})
            assert self.shown(monkeypatch)[1]["runs"][0][1] == expected


QWEN = {
    "model_type": "qwen2_5_vl",
    "text_config": {
        "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
        "intermediate_size": 64, "vocab_size": 100,
    },
    "vision_config": {"depth": 2, "hidden_size": 64, "out_hidden_size": 64, "num_heads": 2},
}  # fmt: skip
LLAVA = {"model_type": "llava", "text_config": {**QWEN["text_config"], "model_type": "llama"}}  # type: ignore[dict-item]


class TestModelPlans:
    @pytest.mark.parametrize(
        ("text", "parameters"),
        [
            ("7B", 7e9),
            ("7b", 7e9),
            ("1.5e9", 1.5e9),
            ("350M", 3.5e8),
            ("100000k", 1e8),
            ("0.4t", 4e11),
            ("8000000000", 8e9),
        ],
    )
    def test_a_number_of_parameters(self, text: str, parameters: float, tmp_path: Path) -> None:
        found = find_model(text, tmp_path)
        assert found is not None and found.name == text
        config = found.config
        assert found.origin == f"of Llama's shape, {config['num_hidden_layers']} layers of {config['hidden_size']}"
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        count = config["num_hidden_layers"] * (4 * hidden**2 + 3 * hidden * inner) + 2 * 32000 * hidden
        assert count == pytest.approx(parameters, rel=0.05)

    def test_a_number_of_parameters_is_exact(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The shape only comes near it, so that what was asked for is looked at."""
        asked: list[int] = []
        shape = {"num_hidden_layers": 1, "hidden_size": 1}
        monkeypatch.setattr(model_plans, "llama_of", lambda count: asked.append(count) or shape)
        for text in ("3", "3k", "3M", "3b", "3T", "2.5e9", "0.5B"):
            assert find_model(text, tmp_path) is not None
        assert asked == [3, 3 * 10**3, 3 * 10**6, 3 * 10**9, 3 * 10**12, 25 * 10**8, 5 * 10**8]

    @pytest.mark.parametrize("text", ["7BB", "7 B", "B", "1.B", "1e100", "nobody/knows"])
    def test_what_is_no_model(self, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
        assert find_model(text, tmp_path) is None
        assert not_a_model(text).endswith(
            f"`hf download {text} config.json` puts a model into the hub's cache, and a size (7B) stands for any"
        )

    def test_where_a_config_comes_from(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path / "hub/models--org--small/snapshots/abc"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(QWEN))
        (tmp_path / "hub/models--org--small/refs").mkdir()
        (tmp_path / "hub/models--org--small/refs/main").write_text("abc")
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine/config.json").write_text(json.dumps(QWEN))
        (tmp_path / "list.json").write_text("[1]")
        assert find_model("org/small", tmp_path) == Model("org/small", QWEN, "config.json in the hub's cache")
        assert find_model("mine", tmp_path) == Model("mine", QWEN, "config.json")
        published = find_model("meta-llama/Llama-2-7b-hf", tmp_path)
        assert published is not None and (published.origin, published.config["hidden_size"]) == ("as published", 4096)
        with pytest.raises(ValueError, match=r"list.json holds no config of a model"):
            find_model("list.json", tmp_path)

    @pytest.mark.parametrize(
        ("config", "images", "pixels", "found"),
        [
            (CONFIG, None, None, None),
            (CONFIG, 0, None, None),
            (CONFIG, 1, None, "has no vision part that zerocfg knows"),
            (QWEN, None, None, ModelImages(0)),
            (QWEN, 0, None, ModelImages(0)),
            (QWEN, 1, None, "nothing says how large an image is"),
            (QWEN, 2, 784 * 100, ModelImages(2, 78400, 200)),  # a token of 28 x 28 pixels
            (QWEN, 10, 784 * 100, ModelImages(10, 78400, 1000)),
            (QWEN, 10, 784 * 101, r"1,010 tokens, more than its 1,000; .* \(--seq 1011 or more\)"),
            ({**QWEN, "model_type": "qwen3_vl"}, 2, None, ModelImages(2, None, None)),  # counted, and no more
            ({**QWEN, "model_type": "qwen3_vl"}, 2, 784, ModelImages(2, 784, None)),
            (LLAVA, 1, None, ModelImages(1, 336 * 336, 576)),
            (LLAVA, 1, 336 * 336, ModelImages(1, 336 * 336, 576)),
            (LLAVA, 1, 336, "resizes every image to 112,896 pixels; leave --pixels out"),
        ],
    )
    def test_images_of_a_sample(self, config: Any, images: int | None, pixels: int | None, found: Any) -> None:
        model = Model("m", config, "here")
        if isinstance(found, str):
            with pytest.raises(ValueError, match=found):
                model_plans._images(model, 1000, images, pixels)
            return
        assert model_plans._images(model, 1000, images, pixels) == found

    @pytest.mark.parametrize(
        ("base", "images", "run", "recipe"),
        [
            (None, None, {"consumer": "transformers"}, {}),
            ("bfloat16", None, {"consumer": "trl"}, {"use_peft": True, "dtype": "bfloat16"}),
            (None, ModelImages(0), {"consumer": "transformers", "images": {"per_sample": 0}}, {}),
            (
                None,
                ModelImages(2, 784, 2),
                {"consumer": "transformers", "images": {"per_sample": 2, "pixels": 784}},
                {},
            ),
        ],
    )
    def test_the_spec_of_a_model(self, base: str | None, images: Any, run: Any, recipe: Any, tmp_path: Path) -> None:
        path = model_plans._written(tmp_path, Model("m", CONFIG, "here"), base, 512, 64, images)
        assert path == tmp_path / "zerocfg.yaml"
        assert json.loads(path.read_text()) == {
            "version": 1,
            "runs": {
                "model": {
                    "script": "train.py",
                    "model": "config.json",
                    "recipe": "recipe.json",
                    "sequence_length": 512,
                    "goals": {"global_batch_size": 64},
                    "versions": VERSIONS,
                    **run,
                }
            },
        }
        assert json.loads((tmp_path / "recipe.json").read_text()) == {"output_dir": "out", "max_steps": 1000, **recipe}
        assert json.loads((tmp_path / "config.json").read_text()) == CONFIG
        assert (tmp_path / "train.py").read_text() == ""

    @pytest.mark.parametrize(
        ("hardware", "samples", "batch"),
        [("8xA100-80GB", None, 64), ("100xA100-80GB", None, 100), ("3xA100-80GB", None, 66), ("3xA100-80GB", 9, 9)],
    )
    def test_samples_of_a_step(self, hardware: str, samples: int | None, batch: int, monkeypatch: Any) -> None:
        """64, or as many more as give each rank the same number."""
        seen: list[Any] = []

        def written(folder: Path, model: Model, base: Any, tokens: int, samples: int, images: Any) -> Path:
            seen.append((base, tokens, samples, images))
            raise RuntimeError

        monkeypatch.setattr(model_plans, "_written", written)
        for lora, base in ((False, None), (True, "bfloat16")):
            with pytest.raises(RuntimeError):
                plans_of(Model("m", CONFIG, "here"), hardware, lora=lora, tokens=None, samples=samples)
            assert seen.pop() == (base, 2048, batch, None)
        with pytest.raises(RuntimeError):
            plans_of(Model("m", CONFIG, "here"), "8xV100-32GB", lora=True, tokens=7, samples=None)
        assert seen.pop() == ("float16", 7, 64, None)

    @pytest.mark.parametrize(("samples", "said"), [(9, "take 8 or 16"), (7, "take 8"), (15, "take 8 or 16")])
    def test_samples_that_ranks_cannot_share(self, samples: int, said: str) -> None:
        with pytest.raises(ValueError, match=f"{samples} samples cannot be shared among 8 ranks; {said}$"):
            plans_of(Model("m", CONFIG, "here"), "8xA100-80GB", lora=False, tokens=None, samples=samples)

    def test_plans_of_a_small_model(self) -> None:
        found = plans_of(Model("m", CONFIG, "here"), "2xA100-80GB", lora=False, tokens=256, samples=4)
        assert (found.samples, found.tokens, found.images) == (4, 256, None)
        assert found.rows and found.rows[0].excluded == "" and found.profile.world_size == 2
        assert found.setup.workload is not None and found.setup.workload.sequence_length == 256

    def test_this_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        own = parse_hardware("2x4xA100-80GB")
        monkeypatch.setattr("zerocfg.hardware.probe.probe", lambda: own)
        found = model_plans._profile("this", "8x200 infiniband")
        assert found.link_between_nodes is not None and found.link_between_nodes.kind == "infiniband"
        assert model_plans._profile("2x4xA100-80GB", None).world_size == 8

    def test_what_all_plans_share(self) -> None:
        """The settings before anything was chosen, where something was; what nobody knows is none."""
        before = Effective(
            settings={"engine": setting("ddp"), "mixed_precision": setting("bf16"), "x": setting(UNKNOWN)}
        )
        own = Effective(settings={"engine": setting("ddp"), "mixed_precision": setting("no")})
        spec = RunSpec.model_validate({"consumer": "transformers", "script": "a.py"})
        run = run_of(effective=own)
        for given, precision in ((before, "bf16"), (None, "fp32")):
            item: Any = SimpleNamespace(inputs=SimpleNamespace(before=given, spec=spec), run=run)
            found = model_plans._shared(item, 8)
            assert found.precision == precision and found.options.world_size == 8
