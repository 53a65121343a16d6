"""Every key that decides memory, time or batch of a run, and whether predictions follow it.

A key that is set and not followed makes a prediction incomplete; :mod:`zerocfg.resolve.model.gaps` finds those of a
run.
``tests/build/test_register.py`` holds the table against the schemas, and flips each key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from zerocfg.models.layers import LAYER_CLASSES
from zerocfg.resolve.model import grpo
from zerocfg.resolve.model.setup import CHECKPOINTING, OPTIMIZERS, SIZES, SWITCHES, ZERO, Setup
from zerocfg.run.model import UNKNOWN
from zerocfg.run.stages.fsdp import PARALLEL
from zerocfg.run.stages.fsdp import SECTION as FSDP

if TYPE_CHECKING:
    from zerocfg.run.facts import ModelSummary

Place = Literal["engine", "launcher", "arguments", "model"]
Touch = Literal["memory", "time", "batch"]
Standing = Literal["modelled", "at most", "at least", "not modelled"]

MEMORY: tuple[Touch, ...] = ("memory",)
TIME: tuple[Touch, ...] = ("time",)
BOTH: tuple[Touch, ...] = ("memory", "time")
EVERYTHING: tuple[Touch, ...] = ("memory", "time", "batch")
OFF: tuple[Any, ...] = (None, False, "", "no", "none", 0, [], {})


@dataclass(frozen=True, slots=True)
class Sight:
    """What decides whether a key has an effect, beside its value."""

    setup: Setup
    setting: Callable[[str], Any]
    arguments: Mapping[str, Any]
    model: ModelSummary | None
    consumer: str


@dataclass(frozen=True, slots=True)
class Key:
    """A key that touches memory, time or batch.

    ``name``: dotted, as effective settings ("engine", "launcher"), training arguments or config.json have it.
    ``standing``: "modelled": predictions follow it. Else they are made as if it had no effect, and so "at least" or "at
    most" what the run takes, or neither of both ("not modelled"); ``effect`` says why.
    ``quiet``: values that do nothing; of a modelled key those that are followed, None where all of them are.
    ``exported``: no setting holds it, only the variable that the launcher exports. ``default``: what it is where nobody
    writes it, of a key that has an effect then, too. ``applies``: whether it has an effect at all in a run.
    """

    place: Place
    name: str
    touches: tuple[Touch, ...]
    standing: Standing = "modelled"
    effect: str = ""
    quiet: Collection[Any] | None = None
    exported: bool = False
    default: Any = None
    applies: Callable[[Sight], bool] = lambda sight: True

    def is_quiet(self, value: Any) -> bool:
        """Whether nothing needs to be said of a value."""
        if value is None or value is UNKNOWN or (self.standing == "modelled" and self.quiet is None):
            return True
        words = (value.lower(), value.upper()) if isinstance(value, str) else (value,)
        if self.quiet is None:
            return any(word == item for word in words for item in (*OFF, "false", "off", "0"))
        return any(word == item for word in (value, *words) for item in self.quiet)


def _followed(place: Place, touches: tuple[Touch, ...], *names: str) -> Iterator[Key]:
    return (Key(place, name, touches) for name in names)


def _each(key: Key, *names: str) -> Iterator[Key]:
    """Keys about which the same holds."""
    return (replace(key, name=name) for name in names)


# -- whether a key has an effect ---------------------------------------------------------------------------------------


def _stage_3(sight: Sight) -> bool:
    return bool(sight.setting(ZERO + "stage") == 3)


def _split(sight: Sight) -> bool:
    return sight.setup.options.tensor_parallel > 1


def _own_loop(sight: Sight) -> bool:
    return sight.consumer in ("deepspeed", "accelerate")


def _in_fp32(sight: Sight) -> bool:
    return sight.setup.precision == "fp32"


def _other_dtype(sight: Sight) -> bool:
    return bool(sight.setting("communication_data_type") != sight.setup.precision)


def _dense(sight: Sight) -> bool:
    """Of a mixture of experts zerocfg itself writes the leaves, and counts them."""
    kind = sight.model.model_type if sight.model else None
    return kind is None or ("moe" not in kind and kind not in ("mixtral", "gpt_oss", "dbrx"))


def _selects(sight: Sight) -> bool:
    """Whether its keywords name which activations are recomputed."""
    given = [sight.arguments.get(f"{name}_kwargs") for name in CHECKPOINTING]
    return any(set(item) - {"use_reentrant", "preserve_rng_state"} for item in given if isinstance(item, dict))


def _evaluates(sight: Sight) -> bool:
    """Evaluation holds whole logits and no activations: more than training only with a larger batch, or where training
    alone computes the loss without them; TRL does so in both."""
    arguments, load = sight.arguments, sight.setup.workload
    if (arguments.get("eval_strategy", "no") in OFF and arguments.get("eval_on_start") in OFF) or load is None:
        return False
    batch = arguments.get("per_device_eval_batch_size", 8)
    alone = load.fused_loss and sight.consumer != "trl"
    return alone or not isinstance(batch, int) or batch > load.micro_batch


def _beside_training(sight: Sight) -> bool:
    return sight.arguments.get("vllm_mode") != "server" and sight.setup.rollouts is None


def _samples(sight: Sight) -> bool:
    return sight.setup.rollouts is not None


def _smoothed(sight: Sight) -> bool:
    """The Trainer's own smoothing keeps a second copy of the log probabilities."""
    return sight.consumer == "transformers"


def _text_only(sight: Sight) -> bool:
    return sight.model is None or sight.model.vision is None


def _other_layers(sight: Sight) -> bool:
    """Other modules are wrapped than the decoder layers, which are counted."""
    named = sight.setting(FSDP + "fsdp_transformer_layer_cls_to_wrap")
    layer = LAYER_CLASSES.get((sight.model.model_type if sight.model else None) or "")
    return layer is not None and layer not in [name.strip() for name in str(named).split(",")]


# -- the table ---------------------------------------------------------------------------------------------------------

_NOT: Standing = "not modelled"
_ZENFLOW = Key("engine", "", BOTH, _NOT, "ZenFlow updates a part of the gradients on the device")
_CHECKPOINTS = Key(
    "engine",
    "",
    BOTH,
    "at most",
    "where the loop uses DeepSpeed's own checkpointing, its checkpoints are divided or leave the device",
    applies=_own_loop,
)
_LOW_STATES = Key("engine", "", MEMORY, "at most", "master weights or moments have 16 bits")
_EVALUATION = Key(
    "arguments", "", BOTH, "at least", "evaluation holds the logits of its batch at once", applies=_evaluates
)
_COMPILED = Key("arguments", "", BOTH, _NOT, "a compiled model keeps other activations, and computes faster")
_INDUCTOR = replace(_COMPILED, touches=MEMORY, effect="a compiled model keeps other activations")
_GENERATES = Key(
    "arguments",
    "",
    BOTH,
    "at least",
    "samples are generated on the devices that train",
    applies=_beside_training,
)

_WITHOUT = ("allgather_bucket_size", "offload_param.pin_memory")
"""ZeRO-1 and 2 gather in place, whatever the bucket; offloaded parameters are pinned whatever the key says."""

REGISTER: tuple[Key, ...] = (
    # DeepSpeed's config, by the names of effective settings
    *_followed(
        "engine",
        EVERYTHING,
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "train_batch_size",
    ),
    *_followed("engine", BOTH, ZERO + "stage", ZERO + "offload_optimizer.device", ZERO + "offload_param.device"),
    *_followed("engine", BOTH, "bf16.enabled", "fp16.enabled"),
    *_followed("engine", MEMORY, *(ZERO + key for key in (*SIZES.values(), *SWITCHES.values()) if key not in _WITHOUT)),
    *_followed("engine", MEMORY, ZERO + "stage3_model_persistence_threshold", "data_types.grad_accum_dtype"),
    Key("engine", "optimizer.type", BOTH, effect="its states are counted as AdamW's", quiet=OPTIMIZERS),
    *_followed("engine", MEMORY, "optimizer.params.momentum", "optimizer.params.torch_adam"),
    Key("engine", "optimizer.params.amsgrad", MEMORY, "at least", "a third state of the optimizer"),
    Key(
        "engine",
        ZERO + "offload_optimizer.ratio",
        TIME,
        "at most",
        "memory is counted with the sub groups that stay on the device, time as if the host updated them all",
        quiet=(1, 1.0),
        applies=lambda sight: _stage_3(sight) and sight.setting(ZERO + "offload_optimizer.device") == "cpu",
    ),
    Key("engine", ZERO + "offload_optimizer.super_offload", BOTH, _NOT, "states move between host and device"),
    *_each(
        _ZENFLOW,
        *(
            f"{ZERO}zenflow.{key}"
            for key in "topk_ratio select_strategy select_interval update_interval overlap_step offload auto_ratio "
            "full_warm_up_rounds pt_reserved_cores_perc steps_per_epoch".split()
        ),
    ),
    *_each(
        Key("engine", "", BOTH, _NOT, "parameters and messages are quantised"),
        ZERO + "zero_quantized_weights",
        ZERO + "zero_quantized_gradients",
        ZERO + "zero_quantized_nontrainable_weights",
        "weight_quantization.enabled",
    ),
    Key("engine", ZERO + "memory_efficient_linear", MEMORY, "at least", "linear layers keep their weights", (True,)),
    *_each(
        Key("engine", "", BOTH, _NOT, "parameters are gathered in another way", applies=_stage_3),
        ZERO + "stage3_module_granularity_threshold",
        ZERO + "stage3_use_all_reduce_for_fetch_params",
        ZERO + "stage3_allgather_sequential",
    ),
    *_each(
        Key("engine", "", BOTH, "at least", "whole modules are gathered at once", applies=_dense),
        ZERO + "leaf_module.classes",
        ZERO + "leaf_module.names",
        ZERO + "leaf_module.name_suffixes",
    ),
    *_each(
        Key("engine", "", TIME, _NOT, "gradients are reduced in another way", (True,)),
        ZERO + "reduce_scatter",
        ZERO + "use_multi_rank_bucket_allreduce",
    ),
    Key(
        "engine",
        "communication_data_type",
        BOTH,
        _NOT,
        "gradients are converted to be sent",
        applies=_other_dtype,
    ),
    Key("engine", "sequence_parallel_size", EVERYTHING, _NOT, "ranks share one sequence", (1,)),
    *_followed("engine", EVERYTHING, "tensor_parallel.autotp_size"),
    *_each(
        Key("engine", "", BOTH, _NOT, "layers are split in another way than their model's plan says", applies=_split),
        *(
            f"tensor_parallel.{key}"
            for key in "partition_config.layer_specs preset_model vocab_parallel_lm_head".split()
        ),
    ),
    Key("engine", "expert_parallel.enabled", BOTH, _NOT, "experts are divided among ranks"),
    Key("engine", "hybrid_engine.enabled", BOTH, _NOT, "a second engine generates on the same device"),
    Key("engine", "compile.deepcompile", BOTH, _NOT, "a compiled engine gathers and offloads by itself"),
    Key("engine", "torch_autocast.enabled", BOTH, _NOT, "parameters and their gradients keep another precision"),
    *_each(
        _LOW_STATES,
        "bf16.bf16_master_weights_and_grads",
        "bf16.bf16_optimizer_states",
        "fp16.fp16_master_weights_and_grads",
    ),
    Key("engine", "bf16.immediate_grad_update", MEMORY, _NOT, "gradients are added to their fp32 copy at once"),
    *_each(
        _CHECKPOINTS,
        "activation_checkpointing.partition_activations",
        "activation_checkpointing.cpu_checkpointing",
    ),
    Key("engine", "data_efficiency.enabled", EVERYTHING, _NOT, "samples and their lengths are chosen while training"),
    Key("engine", "autotuning.enabled", EVERYTHING, _NOT, "DeepSpeed's launcher chooses the micro batch"),
    *_each(
        Key("engine", "", TIME, "at least", "ranks wait for each other to take times"),
        "wall_clock_breakdown",
        "flops_profiler.enabled",
        "comms_logger.enabled",
        "memory_breakdown",
    ),
    # accelerate's config
    *_followed("launcher", EVERYTHING, "num_processes"),
    *_followed("launcher", BOTH, "engine", "num_machines"),
    Key("launcher", "mixed_precision", BOTH, effect="counted as computed in fp32", quiet=("no", "bf16", "fp16")),
    *_followed("launcher", MEMORY, PARALLEL + "dp_replicate_size", PARALLEL + "dp_shard_size"),
    *_followed("launcher", EVERYTHING, PARALLEL + "tp_size"),
    *_each(
        Key("launcher", "", BOTH, "at least", "each rank counts with its part of a sequence, and nothing sent", (1,)),
        PARALLEL + "cp_size",
        PARALLEL + "sp_size",
    ),
    *_followed(
        "launcher",
        BOTH,
        *(
            f"{FSDP}fsdp_{key}"
            for key in "version sharding_strategy reshard_after_forward offload_params activation_checkpointing "
            "backward_prefetch forward_prefetch".split()
        ),
    ),
    Key(
        "launcher",
        FSDP + "fsdp_auto_wrap_policy",
        MEMORY,
        effect="units are counted as the model's layers",
        quiet=("TRANSFORMER_BASED_WRAP",),
    ),
    Key(
        "launcher",
        FSDP + "fsdp_transformer_layer_cls_to_wrap",
        MEMORY,
        _NOT,
        "units are counted as the model's layers",
        applies=_other_layers,
    ),
    Key(
        "launcher",
        FSDP + "fsdp_activation_checkpointing_offload",
        BOTH,
        _NOT,
        "checkpoints wait on the host for their backward",
        exported=True,
    ),
    Key("launcher", FSDP + "fsdp_ignored_modules", MEMORY, _NOT, "modules stay whole on every rank"),
    Key(
        "launcher",
        "dynamo_config.dynamo_backend",
        BOTH,
        _NOT,
        _COMPILED.effect,
        (*OFF, "NO"),
        exported=True,
    ),
    # training arguments
    *_followed("arguments", EVERYTHING, "per_device_train_batch_size", "gradient_accumulation_steps"),
    *_followed("arguments", BOTH, "bf16", "fp16", *CHECKPOINTING, "use_liger_kernel", "attn_implementation"),
    *_each(
        Key("arguments", "", BOTH, "at least", "only some activations are recomputed", applies=_selects),
        *(f"{name}_kwargs" for name in CHECKPOINTING),
    ),
    *_followed("arguments", MEMORY, "ddp_bucket_cap_mb"),
    Key("arguments", "optim", BOTH, effect="its states are counted as AdamW's", quiet=OPTIMIZERS),
    Key("arguments", "optim_target_modules", MEMORY, _NOT, "the optimizer trains projections or parts of the model"),
    Key(
        "arguments",
        "auto_find_batch_size",
        EVERYTHING,
        "at most",
        "the Trainer takes a smaller micro batch where memory runs out",
    ),
    *_each(_INDUCTOR, "torch_compile", "torch_compile_mode"),
    *_each(_COMPILED, "torch_compile_backend", "torchdynamo"),
    Key("arguments", "adafactor", MEMORY, _NOT, "its states are counted as those of `optim`"),
    Key("arguments", "per_gpu_train_batch_size", EVERYTHING, _NOT, "another micro batch than is counted"),
    *_each(_EVALUATION, "eval_strategy", "eval_on_start", "per_device_eval_batch_size"),
    Key(
        "arguments",
        "label_smoothing_factor",
        MEMORY,
        "at least",
        "the Trainer keeps a second copy of the log probabilities",
        applies=_smoothed,
    ),
    Key("arguments", "torch_empty_cache_steps", BOTH, "at most", "the allocator's cache is given back"),
    Key("arguments", "parallelism_config", EVERYTHING, _NOT, "ranks share layers, sequences or samples"),
    *_each(
        Key("arguments", "", EVERYTHING, _NOT, "ranks share each batch of the loader"),
        "accelerator_config.split_batches",
        "split_batches",
    ),
    Key("arguments", "full_determinism", TIME, "at least", "slower kernels"),
    Key("arguments", "half_precision_backend", BOTH, _NOT, "Apex keeps other copies", ("auto", "cuda_amp", "cpu_amp")),
    Key("arguments", "tf32", TIME, _NOT, "matrix products in fp32 are faster", applies=_in_fp32),
    # TRL's arguments
    *_followed(
        "arguments", BOTH, "max_length", "max_seq_length", "loss_type", "lora_r", "lora_target_modules", "lora_dropout"
    ),
    *_followed("arguments", BOTH, "use_peft", "dtype", "torch_dtype"),
    Key("arguments", "load_in_4bit", TIME, "at least", "weights are unpacked whenever they are computed with"),
    Key("arguments", "load_in_8bit", BOTH, "at least", "what enters an 8-bit layer is quantised and kept once more"),
    *_followed("arguments", MEMORY, "use_bnb_nested_quant"),
    *_each(
        Key("arguments", "", MEMORY, "at least", "more than the adapters is trained"),
        "lora_modules_to_save",
        "lora_target_parameters",
        "use_dora",
    ),
    Key("arguments", "padding_free", BOTH, "at most", "batches without padding hold fewer tokens"),
    *_each(Key("arguments", "", BOTH, "at most", "the loss needs no logits"), "use_liger", "use_liger_loss"),
    Key(
        "arguments", "model_init_kwargs", BOTH, _NOT, "the model may be loaded in another dtype or with other attention"
    ),
    Key("arguments", "activation_offloading", BOTH, _NOT, "activations wait on the host for their backward"),
    *_each(_GENERATES, "use_vllm", "predict_with_generate"),
    Key(
        "arguments",
        "num_generations",
        TIME,
        "at least",
        "completions are generated and scored between the steps",
        default=grpo.GENERATIONS,
        applies=_samples,
    ),
    *_followed("arguments", BOTH, "max_completion_length"),
    *_followed(
        "arguments",
        MEMORY,
        *"beta steps_per_generation generation_batch_size num_iterations ds3_gather_for_generation vllm_mode "
        "vllm_gpu_memory_utilization vllm_enable_sleep_mode temperature top_p top_k min_p repetition_penalty".split(),
    ),
    *_each(
        Key("arguments", "", BOTH, _NOT, "another cache is generated with"),
        *"cache_implementation generation_kwargs use_transformers_continuous_batching use_transformers_paged".split(),
    ),
    Key("arguments", "sync_ref_model", MEMORY, "at least", "ZeRO-3 gathers both models whole", applies=_stage_3),
    Key("arguments", "cast_lm_head_to_fp32", BOTH, "at least", "the output head is kept and computed in fp32"),
    Key("arguments", "reward_model_name_or_path", BOTH, "at least", "a reward model is held beside the trained one"),
    # config.json
    *_followed(
        "model",
        BOTH,
        *"hidden_size num_hidden_layers num_attention_heads num_key_value_heads intermediate_size vocab_size head_dim "
        "tie_word_embeddings dtype torch_dtype".split(),
    ),
    Key("model", "quantization_config", BOTH, _NOT, "weights are counted in the precision of the computation"),
    *_each(
        Key("model", "", BOTH, "at least", "only the language part of the model is counted", applies=_text_only),
        "vision_config",
        "audio_config",
    ),
)
