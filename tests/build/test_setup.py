"""The engine's options and the workload, read off the settings of resolved runs."""

from __future__ import annotations

from typing import Any

import pytest

from zerocfg.memory.options import Options, TorchOptions, Workload
from zerocfg.memory.tracing import Adapters
from zerocfg.models.spec import RunSpec
from zerocfg.resolve.setup import Setup, setup_of

ZERO = "zero_optimization."
DEEPSPEED = {"engine": "deepspeed", "train_micro_batch_size_per_gpu": 2, "bf16.enabled": True, ZERO + "stage": 2}


def setup(
    settings: dict[str, Any],
    recipe: dict[str, Any] | None = None,
    ranks: int = 4,
    dtype: str | None = None,
    **spec: Any,
) -> Setup:
    entry = RunSpec.model_validate({"consumer": "transformers", "script": "train.py", "sequence_length": 512, **spec})
    return setup_of(settings.get, recipe or {}, entry, ranks, dtype)


def test_deepspeed_settings_become_options() -> None:
    found = setup(
        {
            **DEEPSPEED,
            ZERO + "stage": 3,
            ZERO + "reduce_bucket_size": 1000,
            ZERO + "stage3_prefetch_bucket_size": 900,
            ZERO + "stage3_param_persistence_threshold": 10,
            ZERO + "stage3_model_persistence_threshold": 2**63 - 1,
            ZERO + "offload_optimizer.device": "cpu",
            ZERO + "offload_optimizer.pin_memory": False,
            ZERO + "overlap_comm": True,
            "gradient_accumulation_steps": 8,
            "data_types.grad_accum_dtype": "fp32",
        }
    )
    assert found.options == Options(
        3,
        4,
        "bf16",
        accumulation="fp32",
        optimizer="adamw_fused",
        gradient_accumulation_steps=8,
        offload_optimizer="cpu",
        pin_optimizer=False,
        overlap_comm=True,
        reduce_bucket_size=1000,
        prefetch_bucket_size=900,
        param_persistence_threshold=10,
    )
    assert found.workload == Workload(2, 512)
    assert found.assumed == ()


def test_ddp_keeps_fp32_unless_the_model_is_16_bit() -> None:
    settings = {"engine": "ddp", "mixed_precision": "bf16", "train_micro_batch_size_per_gpu": 1}
    wide, half = setup(settings), setup(settings, dtype="bfloat16")
    assert isinstance(wide.options, TorchOptions) and wide.options.master and wide.workload and wide.workload.autocast
    assert any("fp32" in word for word in wide.assumed)
    assert isinstance(half.options, TorchOptions) and not half.options.master
    assert half.workload and not half.workload.autocast
    assert setup(settings, ranks=1).options.kind == "single"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("recipe", "spec", "checkpointing"),
    [
        ({}, {}, False),
        ({"gradient_checkpointing": True}, {}, True),
        ({"gradient_checkpointing": "true"}, {}, True),
        ({"gradient_checkpointing": False}, {"gradient_checkpointing": True}, False),
        ({}, {"gradient_checkpointing": True}, True),
        ({}, {"consumer": "trl"}, True),
        ({"gradient_checkpointing": False}, {"consumer": "trl"}, False),
        ({}, {"consumer": "accelerate", "gradient_checkpointing": True}, True),
    ],
)
def test_who_says_whether_activations_are_recomputed(
    recipe: dict[str, Any], spec: dict[str, Any], checkpointing: bool
) -> None:
    workload = setup(DEEPSPEED, recipe, **spec).workload
    assert workload is not None and workload.gradient_checkpointing is checkpointing


def test_an_own_loop_does_not_tell_and_that_is_said() -> None:
    found = setup(DEEPSPEED, consumer="deepspeed")
    assert any("gradient_checkpointing" in word for word in found.assumed)
    assert any("optimizer of the script" in word for word in found.assumed)


def test_sequences_of_trl_have_a_length_and_others_need_one() -> None:
    assert setup(DEEPSPEED, {"max_length": 4096}, consumer="trl", sequence_length=None).workload == Workload(
        2, 4096, gradient_checkpointing=True, fused_loss=True
    )
    default = setup(DEEPSPEED, consumer="trl", sequence_length=None)
    assert default.workload and default.workload.sequence_length == 1024 and default.assumed
    unknown = setup(DEEPSPEED, sequence_length=None)
    assert unknown.workload is None and "sequence_length" in unknown.unknown


def test_what_is_not_modelled_is_not_predicted() -> None:
    grpo = setup(DEEPSPEED, {"num_generations": 8}, consumer="trl")
    assert grpo.workload is None and "supervised" in grpo.unknown
    assert setup({"engine": "deepspeed", ZERO + "stage": 2}).workload is None
    with pytest.raises(ValueError, match="only with ZeRO-3"):
        setup({**DEEPSPEED, ZERO + "offload_param.device": "cpu"})


@pytest.mark.parametrize(
    ("consumer", "recipe", "fused"),
    [
        ("trl", {}, True),
        ("trl", {"loss_type": "dft", "label_smoothing_factor": 0.1}, True),
        ("trl", {"label_smoothing_factor": 0.1}, False),
        ("transformers", {}, False),
        ("transformers", {"use_liger_kernel": True}, True),
    ],
)
def test_who_computes_the_loss_in_pieces(consumer: str, recipe: dict[str, Any], fused: bool) -> None:
    workload = setup(DEEPSPEED, recipe, consumer=consumer).workload
    assert workload is not None and workload.fused_loss is fused


def test_adapters_as_trl_reads_them() -> None:
    found = setup(DEEPSPEED, {"use_peft": True, "lora_r": 8, "lora_target_modules": ["q_proj"]}, consumer="trl")
    assert found.lora == Adapters(8, ("q_proj",), 0.05, "bf16")
    assert setup(DEEPSPEED, {"use_peft": True}, consumer="trl").lora == Adapters(16, (), 0.05, "bf16")
    assert setup(DEEPSPEED, {"lora_r": 8}, consumer="trl").lora is None
    with pytest.raises(ValueError, match="quantised"):
        setup(DEEPSPEED, {"use_peft": True, "load_in_4bit": True}, consumer="trl")


def test_attention_and_fused_loss() -> None:
    recipe = {"attn_implementation": "flash_attention_2", "use_liger_kernel": True}
    workload = setup(DEEPSPEED, recipe).workload
    assert workload and workload.attention == "flash_attention_2" and workload.fused_loss
    strange = setup(DEEPSPEED, {"attn_implementation": "kernels-community/x"})
    assert strange.workload and strange.workload.attention == "sdpa" and strange.assumed
