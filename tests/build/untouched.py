"""Keys of the schemas that touch neither memory nor time nor batch, or too little for a figure: patterns, by why.

With `tests/build/test_register.py`: a key is among these, in the register, or unknown to both, which fails.
"""

from __future__ import annotations

DEEPSPEED: dict[str, str] = {
    "numbers of the training": "gradient_clipping prescale_gradients gradient_predivide_factor gradient_allreduce_op "
    "optimizer.params.lr optimizer.params.betas optimizer.params.eps optimizer.params.weight_decay "
    "optimizer.params.max_grad_norm scheduler.* fp16.loss_scale fp16.initial_scale_power fp16.loss_scale_window "
    "fp16.hysteresis fp16.consecutive_hysteresis fp16.min_loss_scale bf16.check_grad_overflow "
    "zero_optimization.compute_grad_norm",
    "permissions and checks": "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer "
    "zero_optimization.legacy_stage1 zero_optimization.cpu_offload_use_pin_memory "
    "zero_optimization.ignore_unused_parameters zero_optimization.enable_sanity_checks "
    "zero_optimization.override_module_apply zero_optimization.log_trace_cache_warnings",
    "read by nobody": "dump_state disable_allgather vocabulary_size data_parallel_size allgather_size "
    "zero_optimization.allgather_partitions managed_gradient_accumulation pipeline.* disable_python_gc "
    "zero_optimization.offload_param.pin_memory",
    "reports": "steps_per_print log_level tensorboard.* wandb.* csv_monitor.* comet.* timers.* comms_logger.* "
    "flops_profiler.* activation_checkpointing.profile",
    "checkpoints": "checkpoint.* datastates_ckpt zero_optimization.load_from_fp32_weights "
    "zero_optimization.elastic_checkpoint zero_optimization.pipeline_loading_checkpoint "
    "zero_optimization.save_muon_momentum_buffer_in_memory",
    "in place, or a few elements": "zero_optimization.allgather_bucket_size zero_optimization.parameter_alignment "
    "zero_optimization.round_robin_gradients fp16.auto_cast data_types.buffer_dtype data_types.keep_in_fp32_modules "
    "data_types.param_dtype dataloader_drop_last use_data_before_expert_parallelism",
    "drives, whose measured rate is counted": "aio.* zero_optimization.offload_optimizer.nvme_path "
    "zero_optimization.offload_param.nvme_path zero_optimization.offload_optimizer.pipeline_read "
    "zero_optimization.offload_optimizer.pipeline_write zero_optimization.offload_optimizer.fast_init "
    "zero_optimization.offload_optimizer.cpuadam_cores_perc",
    "of a feature whose switch is in the register": "seq_parallel_communication_data_type torch_autocast.* "
    "data_efficiency.* compile.* tensor_parallel.* expert_parallel.* hybrid_engine.* weight_quantization.* "
    "autotuning.* optimizer.legacy_fusion activation_checkpointing.number_checkpoints "
    "activation_checkpointing.contiguous_memory_optimization activation_checkpointing.synchronize_checkpoint_boundary",
    "removed: DeepSpeed refuses them": "nebula compression_training amp quantize_training sparse_gradients eigenvalue "
    "sparse_attention elasticity graph_harvesting curriculum_learning progressive_layer_drop "
    "zero_optimization.mics_* zero_optimization.zeropp_loco_param",
}
ACCELERATE: dict[str, str] = {
    "where and how processes start": "compute_environment distributed_type use_cpu debug machine_rank gpu_ids "
    "main_process_* rdzv_* same_network enable_cpu_affinity main_training_function mpirun_config.* command_file "
    "commands tpu_* use_xpu",
    "settings of DeepSpeed and of the launcher, by the names that they have there": "deepspeed_config.* fp16 "
    "dynamo_backend dynamo_config.*",
    "of a feature whose switch is in the register": "fp8_config.* parallelism_config.*_cp_backend "
    "parallelism_config.*_cp_comm_strategy parallelism_config.*_sp_backend parallelism_config.*_sp_seq_length* "
    "parallelism_config.*_sp_attn_implementation fsdp_config.*min_num_params",
    "loading and saving": "fsdp_config.*state_dict_type fsdp_config.*cpu_ram_efficient_loading "
    "fsdp_config.*sync_module_states fsdp_config.*use_orig_params",
    "engines that are not planned": "megatron_lm_config.* downcast_bf16 ipex_config",
}
ARGUMENTS: dict[str, str] = {
    "numbers of the training": "num_train_epochs max_steps learning_rate lr_scheduler_* warmup_* weight_decay adam_* "
    "max_grad_norm neftune_noise_alpha seed data_seed optim_args average_tokens_across_devices",
    "reports": "logging_* log_* report_to run_name project trackio_* disable_tqdm include_* skip_memory_metrics debug",
    "the hub": "hub_* push_to_hub*",
    "saving and resuming": "output_dir overwrite_output_dir save_* load_best_model_at_end resume_from_checkpoint "
    "ignore_data_skip restore_callback_states_from_checkpoint enable_jit_checkpoint metric_for_best_model "
    "greater_is_better",
    "evaluation, where it is switched on": "evaluation_strategy eval_steps eval_delay prediction_loss_only "
    "eval_do_concat_batches eval_use_gather_object eval_accumulation_steps batch_eval_metrics bf16_full_eval "
    "fp16_full_eval do_train do_eval do_predict per_gpu_eval_batch_size",
    "the engine, which the build decides": "deepspeed fsdp fsdp_config.* fsdp_min_num_params "
    "fsdp_transformer_layer_cls_to_wrap ddp_backend ddp_timeout ddp_find_unused_parameters ddp_broadcast_buffers "
    "ddp_static_graph local_rank use_cpu no_cuda use_mps_device xpu_backend sharded_ddp mp_parameters tpu_* ray_scope",
    "the data": "dataloader_* remove_unused_columns train_sampling_strategy group_by_length length_column_name "
    "label_names dispatch_batches accelerator_config.*",
    "words without an effect on memory": "liger_kernel_config use_cache past_index fp16_opt_level fp16_backend "
    "jit_mode_eval use_ipex",
}
TRL: dict[str, str] = {
    "the data": "dataset_* datasets streaming assistant_only_loss completion_only_loss chars_per_token chat_template_* "
    "eos_token pad_token pad_to_multiple_of truncation_mode shuffle_dataset num_of_sequences test_split_size",
    "sequences are counted as long as they may be": "packing packing_strategy eval_packing",
    "names": "model_name_or_path model_revision model_adapter_name trust_remote_code base_model_attribute_name env "
    "reward_funcs",
    "numbers of the training": "lora_alpha lora_task_type use_rslora router_aux_loss_coef ignore_bias_buffers "
    "disable_dropout",
    "of a feature whose switch is in the register": "bnb_4bit_* gradient_checkpointing_use_reentrant "
    "transformers_continuous_batching_config num_generations_eval ref_model_*",
    "GRPO: numbers of each token or of each sample": "epsilon* delta sapo_* vespo_* importance_sampling_level "
    "reward_weights multi_objective_aggregation scale_rewards mask_truncated_completions *entropy* "
    "off_policy_mask_threshold use_bias_correction_kl vllm_importance_sampling_*",
    "GRPO: within the share of vLLM, or of its server": "vllm_model_impl vllm_structured_outputs_regex vllm_server_* "
    "vllm_group_port vllm_max_model_len* vllm_tensor_parallel_size vllm_device vllm_dtype vllm_guided_decoding_regex",
    "GRPO: within `max_completion_length` and `sequence_length`": "max_tool_calling_iterations max_prompt_length",
    "GRPO: reports": "num_completions_to_print wandb_log_unique_prompts",
}
