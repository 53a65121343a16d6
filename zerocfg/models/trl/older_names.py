"""Names of older releases of TRL: those that no dataclass of 1.16 has any more, those that it warns about."""

from __future__ import annotations

REMOVED: dict[str, tuple[str, str | None]] = {
    "max_seq_length": ("write max_length", "max_length"),
    "torch_dtype": ("write dtype", "dtype"),
    "max_prompt_length": ("shorten prompts in the data set; delete the line", None),
    "use_liger": ("write use_liger_kernel", "use_liger_kernel"),
    "use_liger_loss": ("write use_liger_kernel", "use_liger_kernel"),
    "dataset_batch_size": ("delete the line", None),
    "num_of_sequences": ("delete the line", None),
    "chars_per_token": ("delete the line", None),
    "gradient_checkpointing_use_reentrant": (
        "write activation_checkpointing_kwargs: {use_reentrant: ...}",
        "activation_checkpointing_kwargs",
    ),
    "vllm_device": (
        "vLLM shares the devices of training or is a server of its own: write vllm_mode",
        "vllm_mode",
    ),
    "vllm_dtype": ("delete the line", None),
    "vllm_max_model_len": ("write vllm_max_model_length", "vllm_max_model_length"),
    "vllm_guided_decoding_regex": ("write vllm_structured_outputs_regex", "vllm_structured_outputs_regex"),
    "wandb_log_unique_prompts": ("write log_unique_prompts", "log_unique_prompts"),
    "rpo_alpha": ("write loss_type: [sigmoid, sft] with loss_weights", "loss_weights"),
    "reference_free": ("delete the line", None),
    "force_use_ref_model": ("delete the line", None),
    "generate_during_eval": ("delete the line", None),
    "model_adapter_name": ("delete the line", None),
    "ref_adapter_name": ("delete the line", None),
    "base_model_attribute_name": ("delete the line", None),
    "label_pad_token_id": ("delete the line", None),
    "padding_value": ("delete the line", None),
    "use_logits_to_keep": ("delete the line", None),
}

# name -> (class that warns, what to do, name that replaced it)
DEPRECATED: dict[str, tuple[str, str, str | None]] = {
    "pad_token": ("SFTConfig", "goes away in TRL 2; set the pad token of the tokenizer", None),
    "use_transformers_paged": (
        "GRPOConfig",
        "goes away in TRL 2; write use_transformers_continuous_batching",
        "use_transformers_continuous_batching",
    ),
    "vllm_importance_sampling_cap": (
        "GRPOConfig",
        "goes away in TRL 2; write vllm_importance_sampling_clip_max",
        "vllm_importance_sampling_clip_max",
    ),
}
