"""The keys of TRL's dataclasses: what no walk of its releases says of them, which are type, meaning and unit.

Which class has a key, with which default and which choices, is in ``schemas/releases/trl.json``. A key of
TrainingArguments that a trainer changes is here, too; without a sentence of its own it keeps the one it has there.
"""

from __future__ import annotations

from typing import NamedTuple


class TrlKey(NamedTuple):
    """``type``: what the classes that have the key take, together, in the words of Python."""

    type: str
    about: str = ""
    unit: str | None = None


KEYS: dict[str, TrlKey] = {
    # ScriptArguments
    "dataset_name": TrlKey("str | None", "Data set: a path or a name on the Hub. Ignored beside datasets."),
    "dataset_config": TrlKey("str | None", "Configuration of the data set."),
    "dataset_train_split": TrlKey("str", "Split to train on."),
    "dataset_test_split": TrlKey("str", "Split to evaluate on."),
    "dataset_streaming": TrlKey("bool", "Read the data set as a stream."),
    "ignore_bias_buffers": TrlKey("bool", "Leave bias and mask buffers out of DDP's broadcasts; a work-around."),
    "reward_model_name_or_path": TrlKey("str | None", "Reward model: a folder or a name on the Hub."),
    "reward_funcs": TrlKey("list[str] | None", "Reward functions: names that TRL knows, or import paths."),
    # DatasetMixtureConfig
    "datasets": TrlKey("list[dict]", "Several data sets that are mixed, each with its settings."),
    "streaming": TrlKey("bool", "Read the mixed data sets as streams."),
    "test_split_size": TrlKey(
        "float | None", "Part of the mixture that is split off for evaluation; absent: none.", "samples or fraction"
    ),
    # ModelConfig
    "model_name_or_path": TrlKey("str | None", "Model to start from: a folder or a name on the Hub."),
    "model_revision": TrlKey("str", "Branch, tag or commit of the model."),
    "dtype": TrlKey("str | None", "Dtype in which the weights are loaded."),
    "attn_implementation": TrlKey("str | None", "How attention is computed, e.g. sdpa or flash_attention_2."),
    "use_peft": TrlKey("bool", "Train adapters (PEFT) instead of all weights."),
    "lora_r": TrlKey("int", "Rank of LoRA."),
    "lora_alpha": TrlKey("int", "Scale of LoRA's update: alpha / r."),
    "lora_dropout": TrlKey("float", "Dropout before the LoRA matrices."),
    "lora_target_modules": TrlKey("list[str] | None", "Modules that get adapters; all-linear for every linear layer."),
    "lora_target_parameters": TrlKey(
        "list[str] | None", "Parameters that get adapters, for weights that are no module's."
    ),
    "lora_modules_to_save": TrlKey("list[str] | None", "Modules that are trained whole beside the adapters."),
    "lora_task_type": TrlKey("str", "Task of the model for PEFT; SEQ_CLS for a reward model."),
    "use_rslora": TrlKey("bool", "Scale by alpha / sqrt(r) instead of alpha / r."),
    "use_dora": TrlKey("bool", "Split updates into magnitude and direction (DoRA)."),
    "load_in_8bit": TrlKey("bool", "Load the base model in 8 bit; with LoRA alone."),
    "load_in_4bit": TrlKey("bool", "Load the weights in 4 bit (QLoRA); not together with ZeRO-3."),
    "bnb_4bit_quant_type": TrlKey("str", "Number format of 4-bit weights."),
    "use_bnb_nested_quant": TrlKey("bool", "Quantize the constants of the quantization, too."),
    "bnb_4bit_quant_storage": TrlKey("str | None", "Dtype in which 4-bit weights are stored."),
    # _BaseConfig
    "bf16": TrlKey(
        "bool | None", "bf16 training. Absent means true unless fp16 is set, unlike plain TrainingArguments."
    ),
    "gradient_checkpointing": TrlKey(
        "bool", "On unless activation_checkpointing says otherwise, unlike plain TrainingArguments."
    ),
    "logging_steps": TrlKey("float"),
    # SFTConfig
    "learning_rate": TrlKey("float"),
    "model_init_kwargs": TrlKey("dict | str | None", "Arguments for from_pretrained when the trainer loads the model."),
    "trust_remote_code": TrlKey("bool", "Run Python code that comes with the model."),
    "router_aux_loss_coef": TrlKey(
        "float | None", "Weight of the load balancing loss of experts; absent: the model's own, 0: none."
    ),
    "chat_template_path": TrlKey("str | None", "Chat template: a Jinja file, or a tokenizer to take it from."),
    "dataset_text_field": TrlKey("str", "Column that holds the text."),
    "dataset_kwargs": TrlKey("dict | str | None", "Options of the preparation: skip_prepare_dataset."),
    "dataset_num_proc": TrlKey("int | None", "Processes that prepare the data set.", "processes"),
    "eos_token": TrlKey("str | None", "Token that ends a turn; absent: the tokenizer's."),
    "max_length": TrlKey("int | None", "Samples are cut to this length.", "tokens"),
    "truncation_mode": TrlKey("str", "Which end of a sample is kept when it is cut."),
    "shuffle_dataset": TrlKey("bool | None", "Shuffle the data set before training."),
    "packing": TrlKey("bool", "Fill each sequence with several samples."),
    "packing_strategy": TrlKey(
        "str", "bfd: best fit, cuts what is too long; bfd_split: splits it; wrapped: cuts anywhere."
    ),
    "padding_free": TrlKey("bool", "Flatten a batch instead of padding it; needs flash attention."),
    "pad_to_multiple_of": TrlKey("int | str | None", "Pad to a multiple of this length.", "tokens"),
    "eval_packing": TrlKey("bool | None", "Pack the evaluation set; absent: as packing."),
    "completion_only_loss": TrlKey(
        "bool | None", "Loss on the completion alone; for data with prompts and completions."
    ),
    "assistant_only_loss": TrlKey("bool", "Loss on the assistant's turns alone; for conversations."),
    "loss_type": TrlKey("str | list[str]", "Formula of the loss; what is allowed depends on the trainer."),
    "activation_offloading": TrlKey("bool", "Keep activations in host memory until the backward pass."),
    "pad_token": TrlKey("str | None"),
    # DPOConfig
    "disable_dropout": TrlKey("bool", "No dropout, so that the model and its reference see the same network."),
    "precompute_ref_log_probs": TrlKey("bool", "Run the reference model once beforehand and free it."),
    "precompute_ref_batch_size": TrlKey("int | None", "Batch of the run of the reference model beforehand.", "samples"),
    "loss_weights": TrlKey("list[float] | None", "Weights of several losses in loss_type; absent: 1 each."),
    "ld_alpha": TrlKey("float | None", "Weight of the part of an answer that is longer than the other one (LD-DPO)."),
    "f_divergence_type": TrlKey("str", "Divergence between the policy and its reference."),
    "f_alpha_divergence_coef": TrlKey("float", "Exponent of alpha_divergence."),
    "label_smoothing": TrlKey(
        "float", "Label smoothing; in robust DPO the probability that a preference is the wrong way round."
    ),
    "beta": TrlKey("float", "Weight of the distance to the reference model; 0 in GRPO loads no reference model."),
    "use_weighting": TrlKey("bool", "Weight pairs by their likelihood under the policy (WPO)."),
    "discopop_tau": TrlKey("float", "Temperature of the loss discopop."),
    "sync_ref_model": TrlKey("bool", "Move the reference model after the policy while training."),
    "ref_model_mixup_alpha": TrlKey("float", "Part of the policy in the mix that becomes the reference.", "fraction"),
    "ref_model_sync_steps": TrlKey("int", "Distance of two such moves; needs sync_ref_model.", "steps"),
    # KTOConfig
    "train_sampling_strategy": TrlKey("str"),
    "desirable_weight": TrlKey("float", "Weight of the losses of desirable answers, against unequal counts."),
    "undesirable_weight": TrlKey("float", "Weight of the losses of undesirable answers, against unequal counts."),
    # RewardConfig
    "center_rewards_coefficient": TrlKey("float | None", "Weight of the pull of rewards towards a mean of zero."),
    # GRPOConfig
    "remove_unused_columns": TrlKey("bool | None"),
    "cast_lm_head_to_fp32": TrlKey("bool", "Compute the head of the model in fp32."),
    "num_generations": TrlKey(
        "int | None", "Completions of one prompt; must divide the effective batch.", "completions"
    ),
    "num_generations_eval": TrlKey(
        "int | None", "Completions of one prompt in evaluation; absent: num_generations.", "completions"
    ),
    "max_completion_length": TrlKey("int | None", "Longest completion that is generated.", "tokens"),
    "ds3_gather_for_generation": TrlKey(
        "bool", "Gather the parameters of ZeRO-3 to generate; false is slower and needs less memory."
    ),
    "generation_batch_size": TrlKey(
        "int | None", "Completions that one round of generation makes, over all ranks.", "completions"
    ),
    "steps_per_generation": TrlKey("int | None", "Micro batches that one round of generation serves.", "micro batches"),
    "temperature": TrlKey("float", "Temperature of sampling."),
    "top_p": TrlKey("float", "Sample from the likeliest tokens that have this probability together; 1: from all."),
    "top_k": TrlKey("int", "Sample from so many likeliest tokens; 0: from all.", "tokens"),
    "min_p": TrlKey("float | None", "Least probability of a token, relative to the likeliest one."),
    "generation_kwargs": TrlKey("dict | str | None", "Further arguments of generation or of vLLM's sampling."),
    "chat_template_kwargs": TrlKey("dict | str | None", "Arguments of the chat template when prompts are made."),
    "repetition_penalty": TrlKey("float", "Above 1: repeat less; below 1: repeat more."),
    "cache_implementation": TrlKey("str | None", "Kind of cache of keys and values; without vLLM."),
    "use_vllm": TrlKey("bool", "Generate with vLLM."),
    "vllm_mode": TrlKey("str", "colocate: on the devices of training; server: a server of its own."),
    "vllm_model_impl": TrlKey("str", "Whether vLLM runs its own model or that of transformers."),
    "vllm_enable_sleep_mode": TrlKey("bool", "Give vLLM's memory back during the optimizer step."),
    "vllm_structured_outputs_regex": TrlKey(
        "str | None", "Regular expression that completions must match; absent: none."
    ),
    "vllm_server_base_url": TrlKey("str | None", "Address of the vLLM server; host and port are ignored then."),
    "vllm_server_host": TrlKey("str", "Host of the vLLM server."),
    "vllm_server_port": TrlKey("int", "Port of the vLLM server."),
    "vllm_server_timeout": TrlKey("float", "Patience with the server.", "seconds"),
    "vllm_group_port": TrlKey("int", "Port over which the server gets new weights."),
    "vllm_gpu_memory_utilization": TrlKey("float", "Part of a device's memory that colocated vLLM takes.", "fraction"),
    "vllm_max_model_length": TrlKey(
        "int | None", "Longest prompt and completion together; absent: the model's.", "tokens"
    ),
    "vllm_tensor_parallel_size": TrlKey("int", "Ranks that share one colocated vLLM.", "ranks"),
    "num_iterations": TrlKey("int", "Updates that are made with each generated batch."),
    "epsilon": TrlKey("float", "Clipping of the probability ratio, below and, without epsilon_high, above."),
    "delta": TrlKey("float | None", "Upper bound of two-sided clipping; absent: one-sided."),
    "epsilon_high": TrlKey("float | None", "Upper clipping of the probability ratio; absent: epsilon."),
    "sapo_temperature_neg": TrlKey("float", "Temperature of tokens with an advantage of 0 or less in the loss sapo."),
    "sapo_temperature_pos": TrlKey("float", "Temperature of tokens with a positive advantage in the loss sapo."),
    "vespo_k_pos": TrlKey("float", "Exponent for positive advantages in the loss vespo."),
    "vespo_lambda_pos": TrlKey("float", "Decay for positive advantages in the loss vespo."),
    "vespo_k_neg": TrlKey("float", "Exponent for negative advantages in the loss vespo."),
    "vespo_lambda_neg": TrlKey("float", "Decay for negative advantages in the loss vespo."),
    "importance_sampling_level": TrlKey("str", "Whether the probability ratio is one of tokens or of sequences."),
    "reward_weights": TrlKey("list[float] | None", "Weight of each reward function; absent: 1 each."),
    "multi_objective_aggregation": TrlKey("str", "Whether rewards are summed before or after they are normalized."),
    "scale_rewards": TrlKey("str", "Divide rewards by their deviation in the group or in the batch; none: not at all."),
    "mask_truncated_completions": TrlKey("bool", "Leave completions that were cut off out of the loss."),
    "top_entropy_quantile": TrlKey(
        "float", "Part of the tokens, those of highest entropy, that the loss is on.", "fraction"
    ),
    "entropy_coef": TrlKey("float", "Weight of the entropy bonus in the loss."),
    "use_adaptive_entropy": TrlKey("bool", "Let entropy_coef follow the entropy."),
    "entropy_coef_min": TrlKey("float", "Least adaptive entropy_coef."),
    "entropy_coef_max": TrlKey("float", "Largest adaptive entropy_coef."),
    "entropy_coef_delta": TrlKey("float", "Step of the adaptive entropy_coef."),
    "entropy_target": TrlKey("float", "Mean entropy of a token that adaptive entropy_coef aims at.", "nats"),
    "max_tool_calling_iterations": TrlKey("int | None", "Most rounds of tool calls; absent: no limit.", "rounds"),
    "vllm_importance_sampling_correction": TrlKey(
        "bool", "Correct for vLLM's log probabilities being others than training's."
    ),
    "vllm_importance_sampling_mode": TrlKey("str", "How that correction treats ratios that are out of bounds."),
    "vllm_importance_sampling_clip_max": TrlKey("float | None", "Upper bound of the correction's ratio."),
    "vllm_importance_sampling_clip_min": TrlKey("float | None", "Lower bound of the correction's ratio."),
    "off_policy_mask_threshold": TrlKey(
        "float | None", "Leave out sequences of negative advantage that are further from the policy; absent: none."
    ),
    "use_bias_correction_kl": TrlKey("bool", "Multiply the KL term by the probability ratio."),
    "log_completions": TrlKey("bool", "Log samples of prompts and completions."),
    "log_multimodal": TrlKey("bool", "Log images and videos with them."),
    "num_completions_to_print": TrlKey("int | None", "Samples to print; absent: all.", "completions"),
    "log_unique_prompts": TrlKey("bool", "Log each prompt once."),
    "log_completions_hub_repo": TrlKey("str | None", "Repository on the Hub that completions are saved to."),
    "use_transformers_continuous_batching": TrlKey("bool", "Generate with the continuous batching of transformers."),
    "transformers_continuous_batching_config": TrlKey("dict | str | None", "Arguments of that continuous batching."),
    "use_transformers_paged": TrlKey("bool"),
    "vllm_importance_sampling_cap": TrlKey("float | None"),
    # RLOOConfig
    "normalize_advantages": TrlKey("bool", "Bring advantages to mean 0 and deviation 1."),
    "reward_clip_range": TrlKey("tuple | None", "Least and largest reward; absent: no clipping."),
    # DistillationConfig
    "teacher_model_name_or_path": TrlKey("str | None", "Model that is learnt from."),
    "teacher_model_revision": TrlKey("str | None", "Branch, tag or commit of the teacher."),
    "teacher_model_init_kwargs": TrlKey("dict | str | None", "Arguments for from_pretrained of the teacher."),
}
