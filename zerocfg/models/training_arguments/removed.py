"""Names of older releases that TrainingArguments 5.23 refuses, and what to write instead."""

from __future__ import annotations

from typing import Any

from zerocfg.models.base import Section, key


def _gone(instead: str, renamed_to: str | None = None) -> Any:
    return key(removed=instead, renamed_to=renamed_to)


class Removed(Section):
    """Each is an unexpected keyword to TrainingArguments() and an unknown argument to the parsers."""

    overwrite_output_dir: object = _gone("an existing folder is always written to; delete the line")
    evaluation_strategy: object = _gone("write eval_strategy", "eval_strategy")
    warmup_ratio: object = _gone("write warmup_steps, where a value below 1 is a fraction", "warmup_steps")
    group_by_length: object = _gone("write train_sampling_strategy: group_by_length", "train_sampling_strategy")
    no_cuda: object = _gone("write use_cpu", "use_cpu")
    use_mps_device: object = _gone("the device is found; delete the line")
    jit_mode_eval: object = _gone("TorchScript evaluation is gone; delete the line")
    use_ipex: object = _gone("the IPEX integration is gone; delete the line")
    fp16_opt_level: object = _gone("Apex is gone; delete the line")
    half_precision_backend: object = _gone("Apex is gone; delete the line")
    fp16_backend: object = _gone("Apex is gone; delete the line")
    logging_dir: object = _gone("set the environment variable TENSORBOARD_LOGGING_DIR")
    tpu_num_cores: object = _gone("the launcher decides; delete the line")
    tpu_metrics_debug: object = _gone("write debug: tpu_metrics_debug", "debug")
    past_index: object = _gone("nothing reads it any more; delete the line")
    fsdp_min_num_params: object = _gone("write fsdp_config.min_num_params", "fsdp_config.min_num_params")
    fsdp_transformer_layer_cls_to_wrap: object = _gone(
        "write fsdp_config.transformer_layer_cls_to_wrap", "fsdp_config.transformer_layer_cls_to_wrap"
    )
    save_safetensors: object = _gone("checkpoints are always safetensors; delete the line")
    torchdynamo: object = _gone("write torch_compile_backend", "torch_compile_backend")
    ray_scope: object = _gone("give it to hyperparameter_search()")
    include_inputs_for_metrics: object = _gone("write include_for_metrics: [inputs]", "include_for_metrics")
    mp_parameters: object = _gone("SageMaker model parallelism is gone; delete the line")
    adafactor: object = _gone("write optim: adafactor", "optim")
    push_to_hub_model_id: object = _gone("write hub_model_id", "hub_model_id")
    push_to_hub_organization: object = _gone("put the organization into hub_model_id", "hub_model_id")
    push_to_hub_token: object = _gone("write hub_token, or log in", "hub_token")
    include_tokens_per_second: object = _gone("write include_num_input_tokens_seen", "include_num_input_tokens_seen")
    per_gpu_train_batch_size: object = _gone("write per_device_train_batch_size", "per_device_train_batch_size")
    per_gpu_eval_batch_size: object = _gone("write per_device_eval_batch_size", "per_device_eval_batch_size")
    split_batches: object = _gone("write accelerator_config.split_batches", "accelerator_config.split_batches")
    dispatch_batches: object = _gone("write accelerator_config.dispatch_batches", "accelerator_config.dispatch_batches")
    xpu_backend: object = _gone("write ddp_backend", "ddp_backend")
    sharded_ddp: object = _gone("write fsdp", "fsdp")
