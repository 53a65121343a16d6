"""The engine's options and the workload, read off the settings of resolved runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zerocfg.memory.activations.tracing import Adapters
from zerocfg.memory.lora import Quantisation
from zerocfg.memory.options import Options, TorchOptions, Workload
from zerocfg.models.spec import RunSpec
from zerocfg.resolve.model.setup import Setup, is_size, setup_of, setup_of_run
from zerocfg.resolve.model.trl_trainer import GRPO, trainer_of_arguments
from zerocfg.run.facts import ModelSummary
from zerocfg.run.model import UNKNOWN, Run, Script, SourceFile
from zerocfg.run.stages.fsdp import PARALLEL
from zerocfg.source.text import SourceText

ZERO = "zero_optimization."
AUTOTP = "tensor_parallel.autotp_size"
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


@pytest.mark.parametrize(("written", "share"), [(0.1, 0.1), (1, 1.0), (0, 0.0), (None, 1.0), (True, 1.0), ("0.1", 1.0)])
def test_the_share_of_the_optimizer_that_leaves_the_device(written: Any, share: float) -> None:
    offloaded = {**DEEPSPEED, ZERO + "stage": 3, ZERO + "offload_optimizer.device": "cpu"}
    options = setup({**offloaded, ZERO + "offload_optimizer.ratio": written}).options
    assert isinstance(options, Options) and options.offload_ratio == share


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
    with pytest.raises(ValueError, match=r"quantised \(load_in_4bit\), which is modelled in one process and under DDP"):
        setup(DEEPSPEED, {"use_peft": True, "load_in_4bit": True}, consumer="trl")


QLORA = {"use_peft": True, "dtype": "bfloat16"}


@pytest.mark.parametrize(
    ("recipe", "found"),
    [
        ({"load_in_4bit": True}, Quantisation(4)),
        ({"load_in_4bit": "yes", "use_bnb_nested_quant": True}, Quantisation(4, double=True)),
        ({"load_in_8bit": True}, Quantisation(8)),
        ({"load_in_8bit": True, "use_bnb_nested_quant": True}, Quantisation(8)),
        ({"load_in_4bit": False, "load_in_8bit": "no", "use_bnb_nested_quant": True}, None),
        ({"load_in_4bit": True, "dtype": "auto"}, Quantisation(4)),
        ({"load_in_4bit": True, "dtype": None, "torch_dtype": "bfloat16"}, Quantisation(4)),
    ],
)
@pytest.mark.parametrize(("engine", "ranks"), [("single", 1), ("ddp", 4)])
def test_a_base_in_4_or_8_bits(recipe: dict[str, Any], found: Quantisation | None, engine: str, ranks: int) -> None:
    settings = {"engine": "ddp", "train_micro_batch_size_per_gpu": 2, "mixed_precision": "bf16"}
    one = setup(settings, QLORA | recipe, ranks, dtype="bfloat16", consumer="trl")
    assert one.quantised == found and one.lora is not None and one.precision == "bf16"
    assert isinstance(one.options, TorchOptions) and (one.options.kind, one.options.master) == (engine, False)
    assert setup(settings, QLORA | recipe, ranks, dtype="bfloat16").quantised is None, "of TRL alone"


@pytest.mark.parametrize(
    ("settings", "recipe", "says"),
    [
        ({"engine": "fsdp", "fsdp_config.fsdp_version": 2}, {}, "one process and under DDP only"),
        ({}, {"use_peft": False}, r"with adapters only \(use_peft\)"),
        ({}, {"dtype": None}, "`dtype` is float32 beside bf16"),
        ({}, {"dtype": "float16"}, "`dtype` is float16 beside bf16"),
        ({"mixed_precision": "fp16"}, {}, "`dtype` is bfloat16 beside fp16"),
        ({"mixed_precision": "no"}, {}, "`dtype` is bfloat16 beside fp32"),
    ],
)
def test_a_base_in_4_bits_that_is_not_modelled(settings: dict[str, Any], recipe: dict[str, Any], says: str) -> None:
    own = {"engine": "ddp", "train_micro_batch_size_per_gpu": 2, "mixed_precision": "bf16", **settings}
    with pytest.raises(ValueError, match=f"quantised .load_in_4bit., which is modelled .*{says}"):
        setup(own, QLORA | {"load_in_4bit": True} | recipe, dtype="bfloat16", consumer="trl")


def test_attention_and_fused_loss() -> None:
    recipe = {"attn_implementation": "flash_attention_2", "use_liger_kernel": True}
    workload = setup(DEEPSPEED, recipe).workload
    assert workload and workload.attention == "flash_attention_2" and workload.fused_loss
    strange = setup(DEEPSPEED, {"attn_implementation": "kernels-community/x"})
    assert strange.workload and strange.workload.attention == "sdpa" and strange.assumed


# -- both sides of each guard ------------------------------------------------------------------------------------------

FSDP = "fsdp_config."
SHARDED = {"engine": "fsdp", "train_micro_batch_size_per_gpu": 2, "mixed_precision": "bf16", FSDP + "fsdp_version": 2}


def torch_options(settings: dict[str, Any], **more: Any) -> TorchOptions:
    found = setup({**SHARDED, **settings}, **more).options
    assert isinstance(found, TorchOptions)
    return found


@pytest.mark.parametrize(
    ("value", "fits"),
    [(1, True), (0, False), (-1, False), (True, False), (10**15 - 1, True), (10**15, False), ("8", False)],
)
def test_what_can_be_a_size(value: Any, fits: bool) -> None:
    assert is_size(value) is fits


@pytest.mark.parametrize(
    ("settings", "precision"),
    [
        ({}, "fp32"),
        ({"bf16.enabled": True, "fp16.enabled": True}, "bf16"),
        ({"bf16.enabled": "auto"}, "fp32"),
        ({"fp16.enabled": True}, "fp16"),
        ({"mixed_precision": "bf16"}, "bf16"),
        ({"mixed_precision": "fp16"}, "fp16"),
        ({"mixed_precision": "no"}, "fp32"),
    ],
)
def test_the_precision_that_is_computed_in(settings: dict[str, Any], precision: str) -> None:
    plain = {"engine": "deepspeed", ZERO + "stage": 1}
    assert setup({**plain, **settings}).precision == precision


def test_deepspeed_values_that_are_no_sizes_and_no_switches() -> None:
    strange = {
        ZERO + "reduce_bucket_size": "auto",
        ZERO + "sub_group_size": 0,
        ZERO + "overlap_comm": "auto",
        ZERO + "offload_optimizer.device": None,
        ZERO + "stage": "auto",
        "data_types.grad_accum_dtype": "float32",
        "gradient_accumulation_steps": "auto",
    }
    assert setup({**DEEPSPEED, **strange}).options == Options(0, 4, "bf16", optimizer="adamw_fused")
    given = {ZERO + "stage": 3, ZERO + "stage3_model_persistence_threshold": 7, ZERO + "offload_param.device": "nvme"}
    given |= {ZERO + "zero_hpz_partition_size": 2, ZERO + "stage3_gather_16bit_weights_on_model_save": True}
    assert setup({**DEEPSPEED, **given}).options == Options(
        3,
        4,
        "bf16",
        optimizer="adamw_fused",
        offload_param="nvme",
        model_persistence_threshold=7,
        secondary_partition_size=2,
        gather_on_save=True,
    )


@pytest.mark.parametrize(
    ("precision", "dtype", "ranks", "kind", "master", "autocast", "assumed"),
    [
        ("bf16", None, 4, "ddp", True, True, 1),
        ("bf16", "float32", 4, "ddp", True, True, 0),
        ("bf16", "float16", 4, "ddp", False, False, 0),
        ("no", None, 2, "ddp", True, False, 0),
        ("no", "bfloat16", 1, "single", False, False, 0),
    ],
)
def test_plain_data_parallelism(
    precision: str, dtype: str | None, ranks: int, kind: str, master: bool, autocast: bool, assumed: int
) -> None:
    settings = {"engine": "ddp", "mixed_precision": precision, "train_micro_batch_size_per_gpu": 1}
    found = setup({**settings, "gradient_accumulation_steps": 3}, ranks=ranks, dtype=dtype)
    computed = "bf16" if precision == "bf16" else "fp32"
    assert found.options == TorchOptions(
        kind,  # type: ignore[arg-type]
        ranks,
        computed,  # type: ignore[arg-type]
        master=master,
        optimizer="adamw_fused",
        gradient_accumulation_steps=3,
    )
    assert found.workload == Workload(1, 512, autocast=autocast, assumed=bool(assumed))
    assert len(found.assumed) == assumed


@pytest.mark.parametrize(
    ("mixed", "dtype", "precision", "master"),
    [
        ("bf16", None, "bf16", True),
        ("fp16", "bfloat16", "fp16", True),
        ("no", "bfloat16", "bf16", False),
        ("no", "float16", "fp16", False),
        ("no", "float32", "fp32", True),
        ("no", None, "fp32", True),
    ],
)
def test_the_dtype_that_fsdp_keeps(mixed: str, dtype: str | None, precision: str, master: bool) -> None:
    found = setup({**SHARDED, "mixed_precision": mixed}, dtype=dtype)
    assert found.options == TorchOptions("fsdp2", 4, precision, master=master, optimizer="adamw_fused")  # type: ignore[arg-type]
    assert found.precision == precision and found.workload == Workload(2, 512), "no autocast"


def test_fsdp_settings_become_options() -> None:
    first = {FSDP + "fsdp_version": 1}
    assert torch_options(first).kind == "fsdp1" and torch_options({FSDP + "fsdp_version": None}).kind == "fsdp2"
    for strategy, reshard in (
        ("FULL_SHARD", True),
        ("SHARD_GRAD_OP", False),
        ("HYBRID_SHARD", True),
        ("HYBRID_SHARD_ZERO2", False),
    ):
        settings = first | {FSDP + "fsdp_sharding_strategy": strategy}
        assert torch_options(settings).reshard_after_forward is reshard
        assert torch_options({FSDP + "fsdp_sharding_strategy": strategy}).reshard_after_forward is True, "of version 1"
    for written, reshard in ((False, False), (True, True), (None, True)):
        assert torch_options({FSDP + "fsdp_reshard_after_forward": written}).reshard_after_forward is reshard
        assert torch_options(first | {FSDP + "fsdp_reshard_after_forward": written}).reshard_after_forward is True
    for word, prefetch in (("BACKWARD_PRE", "pre"), ("BACKWARD_POST", "post"), ("NO_PREFETCH", "none"), (None, "none")):
        assert torch_options(first | {FSDP + "fsdp_backward_prefetch": word}).backward_prefetch == prefetch
        assert torch_options({FSDP + "fsdp_backward_prefetch": word}).backward_prefetch == "pre"
    for name in ("offload_params", "forward_prefetch"):
        on = torch_options({f"{FSDP}fsdp_{name}": True})
        assert (on.cpu_offload, on.forward_prefetch) == (name == "offload_params", name == "forward_prefetch")
        assert torch_options({f"{FSDP}fsdp_{name}": "true"}) == torch_options({}), "a text is not read here"


def test_policies_of_fsdp() -> None:
    with pytest.raises(ValueError, match="FSDP without a wrap policy gathers the whole model at once"):
        setup({**SHARDED, FSDP + "fsdp_auto_wrap_policy": "NO_WRAP"})
    assert setup({**SHARDED, FSDP + "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}).assumed == ()


@pytest.mark.parametrize(
    ("settings", "ranks"),
    [
        ({}, None),
        ({FSDP + "fsdp_sharding_strategy": "FULL_SHARD"}, None),
        ({FSDP + "fsdp_sharding_strategy": "NO_SHARD"}, 1),
        ({FSDP + "fsdp_sharding_strategy": "HYBRID_SHARD", "num_machines": 2}, 4),
        ({FSDP + "fsdp_sharding_strategy": "HYBRID_SHARD_ZERO2", "num_machines": 4}, 2),
        ({FSDP + "fsdp_sharding_strategy": "HYBRID_SHARD"}, 8),
        ({FSDP + "fsdp_sharding_strategy": "HYBRID_SHARD", "num_machines": 16}, 1),
        ({PARALLEL + "dp_replicate_size": 2, PARALLEL + "dp_shard_size": 4}, 4),
        ({PARALLEL + "dp_replicate_size": 1, PARALLEL + "dp_shard_size": 8}, None),
        ({PARALLEL + "tp_size": 1}, None),
    ],
)
def test_ranks_that_share_a_copy(settings: dict[str, Any], ranks: int | None) -> None:
    assert torch_options(settings, ranks=8).shard_ranks == ranks


def test_ranks_that_share_each_layer() -> None:
    """All of them without DeepSpeed, where no DDP wraps what they hold; with it groups, which ZeRO divides among."""
    alone = setup({"engine": "ddp", f"{PARALLEL}tp_size": 8}, ranks=8).options
    assert isinstance(alone, TorchOptions)
    assert (alone.kind, alone.tensor_parallel, alone.data_parallel) == ("single", 8, 1)
    groups = setup({"engine": "deepspeed", "zero_optimization.stage": 2, AUTOTP: 4}, ranks=8).options
    assert (groups.tensor_parallel, groups.data_parallel) == (4, 2)
    for size in (0, 1):
        whole = setup({"engine": "deepspeed", "zero_optimization.stage": 2, AUTOTP: size}, ranks=8).options
        assert (whole.tensor_parallel, whole.data_parallel) == (1, 8)


@pytest.mark.parametrize(
    ("settings", "recipe", "said"),
    [
        ({**SHARDED, f"{PARALLEL}tp_size": 2}, {}, "parallelism_config has tp_size 2 beside FSDP.*ReplicateParallel"),
        ({"engine": "ddp", f"{PARALLEL}tp_size": 2}, {}, "parallelism_config has tp_size 2 for 8 ranks"),
        ({"engine": "deepspeed", f"{PARALLEL}tp_size": 8}, {}, "tp_size 8 beside DeepSpeed.*autotp_size"),
        ({"engine": "deepspeed", AUTOTP: 3}, {}, "8 ranks cannot be divided into groups of 3"),
        ({"engine": "deepspeed", AUTOTP: 2}, {"use_peft": True}, "autotp_size 2 splits each layer.*use_peft"),
        ({"engine": "ddp", f"{PARALLEL}tp_size": 8}, {"load_in_4bit": True}, "tp_size 8.*quantised base model"),
    ],
)
def test_layers_that_are_shared_otherwise_are_not_modelled(
    settings: dict[str, Any], recipe: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        setup(settings, recipe, ranks=8, consumer="trl" if recipe else "transformers")


def test_completions_of_a_split_model_are_not_modelled() -> None:
    entry = RunSpec(consumer="trl", script="train.py", sequence_length=512)
    with pytest.raises(ValueError, match="where completions are generated"):
        setup_of({**DEEPSPEED, AUTOTP: 2}.get, {}, entry, 4, trainer=GRPO)


@pytest.mark.parametrize(
    ("settings", "name", "length"),
    [("FSDP", "cp", 171), ("FSDP", "sp", 512), ("DEEPSPEED", "sp", 171), ("DEEPSPEED", "cp", 512)],
)
def test_ranks_that_share_a_sequence(settings: str, name: str, length: int) -> None:
    """FSDP 2 divides sequences for cp_size alone, DeepSpeed for sp_size alone."""
    base = {"FSDP": SHARDED, "DEEPSPEED": DEEPSPEED}[settings]
    work = setup({**base, f"{PARALLEL}{name}_size": 3}, sequence_length=512).workload
    assert work is not None and work.sequence_length == length


@pytest.mark.parametrize(
    ("trainer", "recipe", "known"),
    [
        ("SFTTrainer", {}, True),
        (None, {}, True),
        ("SFTTrainer", {"beta": 0.1}, True),  # of the script itself: what its trainer does not read does nothing
        ("KTOTrainer", {}, False),
        ("DPOTrainer", {}, False),
        (None, {"desirable_weight": 1.0}, False),
        (None, {"center_rewards_coefficient": 0.1}, False),
        (None, {"num_generations": 8}, False),
        (None, {"max_length": 512, "learning_rate": 1e-5, "loss_type": "nll"}, True),
    ],
)
def test_the_trainer_that_is_modelled(trainer: str | None, recipe: dict[str, Any], known: bool) -> None:
    entry = RunSpec.model_validate({"consumer": "trl", "script": "train.py", "sequence_length": 512})
    found = setup_of(DEEPSPEED.get, recipe, entry, 4, trainer=trainer)
    assert (found.workload is not None) is known


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("desirable_weight", "KTOTrainer"),
        ("center_rewards_coefficient", "RewardTrainer"),
        ("beta", "another trainer"),
        ("max_length", None),
        ("use_peft", None),
        ("per_device_train_batch_size", None),  # GRPOConfig has had a default of its own
        ("nothing_of_trl", None),
    ],
)
def test_arguments_that_tell_the_trainer(name: str, named: str | None) -> None:
    assert trainer_of_arguments({name: 1, "output_dir": "out"}) == named


@pytest.mark.parametrize(
    ("settings", "recipe", "consumer", "optimizer", "assumed"),
    [
        ({}, {}, "transformers", "adamw_fused", None),
        ({}, {}, "trl", "adamw_fused", None),
        ({}, {}, "accelerate", "adamw", "the optimizer of the script is counted as torch's AdamW"),
        ({}, {"optim": "adamw_torch"}, "transformers", "adamw_foreach", None),
        ({"optimizer.type": "Lion"}, {"optim": "sgd"}, "transformers", "lion", None),
        ({"optimizer.type": "Lamb"}, {}, "transformers", "adamw", None),  # the register says that it is none
        ({}, {"optim": 3}, "transformers", "adamw", None),
        ({"optimizer.type": "AdamW"}, {}, "transformers", "fused_adam", None),
        ({}, {"optim": "adamw_torch_fused"}, "transformers", "adamw_fused", None),
        ({"optimizer.type": "SGD"}, {}, "transformers", "sgd", None),
        ({"optimizer.type": "SGD", "optimizer.params.momentum": 0.9}, {}, "transformers", "sgd_momentum", None),
        ({"optimizer.type": "Adam", "optimizer.params.torch_adam": True}, {}, "transformers", "adamw_foreach", None),
        ({"optimizer.type": "Lion", "optimizer.params.torch_adam": True}, {}, "transformers", "lion", None),
        ({}, {"optim": UNKNOWN}, "transformers", "adamw_fused", None),
    ],
)
def test_the_optimizer_that_is_counted(
    settings: dict[str, Any], recipe: dict[str, Any], consumer: str, optimizer: str, assumed: str | None
) -> None:
    found = setup({**DEEPSPEED, **settings}, recipe, consumer=consumer, gradient_checkpointing=False)
    assert found.options.optimizer == optimizer and found.assumed == ((assumed,) if assumed else ())


@pytest.mark.parametrize(
    ("declared", "early"),
    [(None, False), ("==0.18.3", False), (">=0.18.3", False), ("==0.18.2", True), (">=0.16", True), ("<0.19", True)],
)
def test_the_bucket_is_counted_where_an_admitted_release_allocates_it_before_backward(
    declared: str | None, early: bool
) -> None:
    """setup_buckets in a gradient's hook since 0.18.3 (DeepSpeed #7665); backward_prologue before."""
    versions = {} if declared is None else {"deepspeed": declared}
    entry = RunSpec.model_validate({"consumer": "transformers", "script": "train.py", "sequence_length": 512})
    found = setup_of(DEEPSPEED.get, {}, entry, 4, None, versions)
    assert isinstance(found.options, Options) and found.options.early_bucket is early


def test_adapters_within_and_beyond_what_makes_sense() -> None:
    def lora(**recipe: Any) -> Adapters | None:
        return setup(DEEPSPEED, {"use_peft": True, **recipe}, consumer="trl").lora

    assert lora(lora_r=0) == lora(lora_r="8") == Adapters(16, (), 0.05, "bf16") and lora(lora_r=1) != lora()
    assert lora(lora_target_modules="all-linear") == Adapters(16, ("all-linear",), 0.05, "bf16")
    assert lora(lora_target_modules=7) == Adapters(16, (), 0.05, "bf16")
    for dropout, counted in ((0, 0), (0.5, 0.5), (1, 0.05), (-0.1, 0.05), ("0.1", 0.05)):
        assert lora(lora_dropout=dropout) == Adapters(16, (), counted, "bf16")
    assert lora(load_in_8bit=False, load_in_4bit="no") is not None
    assert setup(DEEPSPEED, {"use_peft": True}).lora is None, "of TRL alone"


@pytest.mark.parametrize(
    ("recipe", "length", "assumed"),
    [({}, 1024, 1), ({"max_length": 0}, 1024, 0), ({"max_length": 1}, 1, 0), ({"max_length": None}, 1024, 1)],
)
def test_the_length_of_trl(recipe: dict[str, Any], length: int, assumed: int) -> None:
    found = setup(DEEPSPEED, recipe, consumer="trl", sequence_length=None)
    assert found.workload is not None and found.workload.sequence_length == length and len(found.assumed) == assumed


def test_why_activations_are_not_known() -> None:
    assert setup({**DEEPSPEED, "train_micro_batch_size_per_gpu": 0}).unknown.startswith("nothing says how large the")
    long = setup(DEEPSPEED, sequence_length=10**15)
    assert (long.workload, long.unknown) == (None, "no machine could hold sequences that long")
    assert setup(DEEPSPEED, sequence_length=10**15 - 1).workload is not None
    assert setup(DEEPSPEED, {"num_generations": 8}).workload is not None, (
        "of another trainer than TRL's it means nothing"
    )


@pytest.mark.parametrize(
    ("settings", "recipe", "spec", "recomputed", "assumed"),
    [
        ({}, {}, {"consumer": "accelerate"}, False, True),
        ({}, {}, {"consumer": "accelerate", "gradient_checkpointing": False}, False, False),
        (
            {},
            {"gradient_checkpointing": True},
            {"consumer": "accelerate", "gradient_checkpointing": False},
            False,
            False,
        ),
        ({FSDP + "fsdp_activation_checkpointing": True}, {"gradient_checkpointing": False}, {}, True, False),
        ({FSDP + "fsdp_activation_checkpointing": False}, {"gradient_checkpointing": True}, {}, True, False),
        ({}, {"gradient_checkpointing": "no"}, {"consumer": "trl"}, False, False),
        ({}, {"gradient_checkpointing": 1}, {}, False, False),
    ],
)
def test_who_recomputes(
    settings: dict[str, Any], recipe: dict[str, Any], spec: dict[str, Any], recomputed: bool, assumed: bool
) -> None:
    found = setup({**SHARDED, **settings}, recipe, dtype="float32", **spec)
    assert found.workload is not None and found.workload.gradient_checkpointing is recomputed
    assert any("no gradient checkpointing" in text for text in found.assumed) is assumed


@pytest.mark.parametrize(
    ("recipe", "spec", "attention", "assumed"),
    [
        ({}, {}, "sdpa", 0),
        ({}, {"attention": "eager"}, "eager", 0),
        ({"attn_implementation": "eager"}, {"attention": "sdpa"}, "eager", 0),
        ({"attn_implementation": "paged"}, {"attention": "eager"}, "sdpa", 1),
    ],
)
def test_the_attention_that_is_counted(
    recipe: dict[str, Any], spec: dict[str, Any], attention: str, assumed: int
) -> None:
    found = setup(DEEPSPEED, recipe, **spec)
    assert found.workload is not None and found.workload.attention == attention and len(found.assumed) == assumed


@pytest.mark.parametrize(
    ("recipe", "spec", "fused"),
    [
        ({}, {"fused_loss": True}, True),
        ({"use_liger_kernel": False}, {"fused_loss": True}, False),
        ({"label_smoothing_factor": 0}, {"consumer": "trl"}, True),
        ({"loss_type": "dft"}, {}, False),
    ],
)
def test_the_loss_in_pieces(recipe: dict[str, Any], spec: dict[str, Any], fused: bool) -> None:
    workload = setup(DEEPSPEED, recipe, **spec).workload
    assert workload is not None and workload.fused_loss is fused


@pytest.mark.parametrize(
    ("versions", "recipe", "pieces"),
    [
        ({}, {}, True),
        ({"trl": "==1.16.0"}, {}, True),
        ({"trl": "==1.16.0"}, {"label_smoothing_factor": 0.1}, False),
        ({"trl": "==1.15.0"}, {"loss_type": "nll"}, True),
        ({"trl": "==1.8.0"}, {"loss_type": "nll"}, False),
        ({"trl": "==1.8.0"}, {}, True),
        ({"trl": "==1.6.0"}, {}, False),
        ({"trl": "==1.6.0"}, {"loss_type": "chunked_nll"}, True),
        ({"trl": "==1.3.0"}, {"loss_type": "chunked_nll"}, False),
        ({"trl": "==0.19.1"}, {}, False),
        ({"trl": "==0.19.1"}, {"use_liger_kernel": True}, True),
        ({"trl": ">=0.19"}, {}, False),
        ({"trl": ">=1.8"}, {}, True),
        ({"trl": "newest"}, {}, True),
    ],
    ids=str,
)
def test_the_loss_of_a_release_of_trl(versions: dict[str, str], recipe: dict[str, Any], pieces: bool) -> None:
    entry = RunSpec.model_validate({"consumer": "trl", "script": "train.py", "sequence_length": 512})
    found = setup_of(DEEPSPEED.get, recipe, entry, 4, None, versions)
    assert found.workload is not None and found.workload.fused_loss is pieces


@pytest.mark.parametrize(
    ("versions", "recomputes"),
    [({}, True), ({"trl": "==0.22.2"}, True), ({"trl": "==0.21.0"}, False), ({"trl": ">=0.21"}, False)],
    ids=str,
)
def test_checkpointing_of_a_release_of_trl(versions: dict[str, str], recomputes: bool) -> None:
    entry = RunSpec.model_validate({"consumer": "trl", "script": "train.py", "sequence_length": 512})
    found = setup_of(DEEPSPEED.get, {}, entry, 4, None, versions)
    assert found.workload is not None and found.workload.gradient_checkpointing is recomputes


@pytest.mark.parametrize(
    ("versions", "optimizer"),
    [({}, "adamw_fused"), ({"transformers": "==4.53.3"}, "adamw"), ({"transformers": "==5.0.0"}, "adamw_fused")],
    ids=str,
)
def test_the_optimizer_of_a_release_of_transformers(versions: dict[str, str], optimizer: str) -> None:
    entry = RunSpec.model_validate({"consumer": "transformers", "script": "train.py", "sequence_length": 512})
    found = setup_of(DEEPSPEED.get, {}, entry, 4, None, versions)
    assert isinstance(found.options, Options) and found.options.optimizer == optimizer


@pytest.mark.parametrize(
    ("parsed", "recipe", "trl", "master"),
    [
        ("trl.ModelConfig", {}, "==1.16.0", True),
        ("trl.ModelConfig", {}, "", True),
        ("trl.ModelConfig", {}, "==0.26.0", False),
        ("trl.ModelConfig", {}, ">=0.26.0", False),
        ("trl.ModelConfig", {"dtype": "bfloat16"}, "==1.16.0", False),
        ("trl.ModelConfig", {"dtype": "auto"}, "==1.16.0", False),
        ("trl.ScriptArguments", {}, "==1.16.0", False),
    ],
)
def test_the_dtype_that_model_config_loads(parsed: str, recipe: dict[str, Any], trl: str, master: bool) -> None:
    """Of a model whose config.json says bfloat16: fp32 where TRL's ModelConfig fills the dtype with its default."""
    source = SourceText("train.py", "")
    script = Script(SourceFile("train.py", "script", source), parsed=frozenset({parsed}))
    versions = {"trl": trl} if trl else {}
    facts = ModelSummary("m", dtype="bfloat16")
    run = Run("r", consumer="trl", script=script, model=facts, versions=versions)
    settings = {"engine": "ddp", "mixed_precision": "bf16", "train_micro_batch_size_per_gpu": 1}
    spec = RunSpec.model_validate({"consumer": "trl", "script": "train.py", "sequence_length": 512})
    found = setup_of_run(run, settings.get, spec, 4, recipe)
    assert isinstance(found.options, TorchOptions) and found.options.master is master


@pytest.mark.libs
def test_what_trl_loads(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl import ModelConfig
    from trl.trainer.utils import create_model_from_path

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    LlamaForCausalLM(LlamaConfig(vocab_size=8, **sizes)).bfloat16().save_pretrained(tmp_path)
    assert str(create_model_from_path(str(tmp_path), dtype=ModelConfig().dtype).dtype) == "torch.float32"
    assert str(create_model_from_path(str(tmp_path), dtype="auto").dtype) == "torch.bfloat16"
