"""The options of `accelerate launch` 1.15.0: name, how its text is converted, and its default.

One namespace holds them all, whatever section of the config file a key stands in, so this is also the list of the
keys that have any effect in a section (accelerate/commands/launch.py, `launch_command_parser`).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from zerocfg.run.config import words

Kind = Literal["str", "int", "float", "flag", "bool"]


class Option(NamedTuple):
    kind: Kind = "str"
    default: Any = None
    choices: tuple[str, ...] = ()


ALIASES = {"tpu_cluster": "tpu_use_cluster", "m": "module", "t": "tee", "q": "quiet"}

_FLAGS_OFF = (
    "cpu multi_gpu tpu enable_cpu_affinity dynamo_use_fullgraph dynamo_use_dynamic dynamo_use_regional_compilation "
    "use_deepspeed use_fsdp use_parallelism_config use_megatron_lm same_network tpu_use_cluster tpu_use_sudo "
    "downcast_bf16 fp8_use_autocast_during_eval"
)
_FLAGS_UNSET = "quiet module no_python debug"
_TEXT = (
    "config_file gpu_ids main_process_ip log_dir vm env main_training_function deepspeed_config_file "
    "offload_optimizer_device offload_param_device offload_optimizer_nvme_path offload_param_nvme_path "
    "zero3_init_flag zero3_save_16bit_model deepspeed_hostfile deepspeed_exclusion_filter deepspeed_inclusion_filter "
    "deepspeed_multinode_launcher deepspeed_moe_layer_cls_names fsdp_auto_wrap_policy "
    "fsdp_transformer_layer_cls_to_wrap fsdp_backward_prefetch fsdp_state_dict_type megatron_lm_sequence_parallelism "
    "megatron_lm_recompute_activations megatron_lm_use_distributed_optimizer megatron_lm_recompute_granularity "
    "megatron_lm_recompute_method megatron_lm_attention_backend megatron_lm_attention_softmax_in_fp32 "
    "megatron_lm_calculate_per_token_loss megatron_lm_use_rotary_position_embeddings aws_access_key_id "
    "aws_secret_access_key mpirun_hostfile parallelism_config_sp_seq_length"
)
_INTEGERS = (
    "num_processes num_machines num_cpu_threads_per_process machine_rank main_process_port zero_stage "
    "gradient_accumulation_steps megatron_lm_decoder_last_pipeline_num_layers megatron_lm_num_micro_batches "
    "megatron_lm_recompute_num_layers megatron_lm_expert_model_parallel_size megatron_lm_context_parallel_size "
    "megatron_lm_expert_tensor_parallel_size"
)
_MEGATRON_BOOLS = (
    "use_custom_fsdp no_load_optim eod_mask_loss overlap_cpu_optimizer_d2h_h2d no_save_optim optimizer_cpu_offload "
    "use_precision_aware_optimizer"
)
DYNAMO_BACKENDS = words(
    "no eager aot_eager inductor aot_ts_nvfuser nvprims_nvfuser cudagraphs ofi fx2trt onnxrt tensorrt "
    "aot_torchxla_trace_once torhchxla_trace_once tvm"
)
PRECISIONS = ("no", "fp8", "fp16", "bf16")

OPTIONS: dict[str, Option] = {
    **{name: Option("flag", False) for name in _FLAGS_OFF.split()},
    **{name: Option("flag", None) for name in _FLAGS_UNSET.split()},
    **{name: Option() for name in _TEXT.split()},
    **{name: Option("int") for name in _INTEGERS.split()},
    **{f"megatron_lm_{name}": Option("bool", False) for name in _MEGATRON_BOOLS.split()},
    "mixed_precision": Option(choices=("no", "fp16", "bf16", "fp8")),
    "dynamo_backend": Option(choices=DYNAMO_BACKENDS),
    "dynamo_mode": Option("str", "default", ("default", "reduce-overhead", "max-autotune")),
    "tee": Option("str", "0"),
    "role": Option("str", "default"),
    "rdzv_backend": Option("str", "static"),
    "rdzv_conf": Option("str", ""),
    "max_restarts": Option("int", 0),
    "monitor_interval": Option("float", 0.1),
    "gradient_clipping": Option("float"),
    "fsdp_version": Option("str", "1", ("1", "2")),
    "fsdp_offload_params": Option("str", "false"),
    "fsdp_min_num_params": Option("int", 100000000),
    "fsdp_sharding_strategy": Option("str", "FULL_SHARD"),
    "fsdp_reshard_after_forward": Option("str", "true"),
    "fsdp_forward_prefetch": Option("str", "false"),
    "fsdp_use_orig_params": Option("str", "true"),
    "fsdp_cpu_ram_efficient_loading": Option("str", "true"),
    "fsdp_sync_module_states": Option("str", "true"),
    "fsdp_activation_checkpointing": Option("str", "false"),
    "fsdp_activation_checkpointing_offload": Option("str", "false"),
    "megatron_lm_tp_degree": Option("int", 1),
    "megatron_lm_pp_degree": Option("int", 1),
    "megatron_lm_gradient_clipping": Option("float", 1.0),
    "megatron_lm_attention_dropout": Option("float"),
    "megatron_lm_hidden_dropout": Option("float"),
    "fp8_backend": Option("str", None, ("ao", "te", "msamp")),
    "fp8_margin": Option("int", 0),
    "fp8_interval": Option("int", 1),
    "fp8_format": Option("str", "HYBRID", ("HYBRID", "E4M3", "E5M2")),
    "fp8_amax_history_len": Option("int", 1024),
    "fp8_amax_compute_algo": Option("str", "most_recent", ("max", "most_recent")),
    "fp8_override_linear_precision": Option("str", (False, False, False)),
    "fp8_opt_level": Option("str", "O2", ("O1", "O2")),
    # The parser runs a text default through its converter, which yields 1.
    "fp8_enable_fsdp_float8_all_gather": Option("str", 1),
    "fp8_pad_inner_dim": Option("str", 1),
    "parallelism_config_dp_replicate_size": Option("int", 1),
    "parallelism_config_dp_shard_size": Option("int", 1),
    "parallelism_config_tp_size": Option("int", 1),
    "parallelism_config_cp_size": Option("int", 1),
    "parallelism_config_cp_backend": Option("str", "torch", ("torch",)),
    "parallelism_config_cp_comm_strategy": Option("str", "allgather"),
    "parallelism_config_sp_size": Option("int", 1),
    "parallelism_config_sp_backend": Option("str", "deepspeed", ("deepspeed",)),
    "parallelism_config_sp_seq_length_is_variable": Option("bool", True),
    "parallelism_config_sp_attn_implementation": Option("str", "sdpa"),
}

DISTRIBUTED_TYPES = words(
    "NO MULTI_CPU MULTI_GPU MULTI_NPU MULTI_MLU MULTI_SDAA MULTI_MUSA MULTI_XPU MULTI_HPU MULTI_NEURON "
    "DEEPSPEED FSDP XLA MEGATRON_LM"
)
MULTI_DEVICE = words("MULTI_GPU MULTI_NPU MULTI_MLU MULTI_SDAA MULTI_MUSA MULTI_XPU MULTI_HPU MULTI_NEURON")

TOP_LEVEL: dict[str, Any] = {
    "mixed_precision": None,
    "use_cpu": False,
    "debug": False,
    "num_processes": -1,
    "machine_rank": 0,
    "num_machines": 1,
    "gpu_ids": None,
    "main_process_ip": None,
    "main_process_port": None,
    "rdzv_backend": "static",
    "same_network": False,
    "main_training_function": "main",
    "enable_cpu_affinity": False,
    "fp8_config": None,
    "deepspeed_config": None,
    "fsdp_config": None,
    "parallelism_config": None,
    "megatron_lm_config": None,
    "mpirun_config": None,
    "downcast_bf16": False,
    "tpu_name": None,
    "tpu_zone": None,
    "tpu_use_cluster": False,
    "tpu_use_sudo": False,
    "command_file": None,
    "commands": None,
    "tpu_vm": None,
    "tpu_env": None,
    "dynamo_config": None,
}
"""Top-level keys of an accelerate config file in the order in which the launcher merges them, with defaults."""

SECTIONS = tuple(name for name in TOP_LEVEL if name.endswith("_config"))
PREFIXED = {
    "fsdp_config": ("fsdp", "fsdp_"),
    "fp8_config": ("fp8", "fp8_"),
    "dynamo_config": ("dynamo_", "dynamo_"),
}
"""Section -> (what a key may already start with, what is put before it otherwise)."""
