"""TrainingArguments: batch, schedule, optimizer."""

from __future__ import annotations

from typing import Literal

from zerocfg.models.base import Section
from zerocfg.models.training_arguments.facts import (
    integer,
    items,
    mapping,
    number,
    optional_switch,
    switch,
    text,
)

SchedulerType = Literal[
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
    "reduce_lr_on_plateau",
    "cosine_with_min_lr",
    "cosine_warmup_with_min_lr",
    "warmup_stable_decay",
    "greedy",
]
OptimizerName = Literal[
    "adamw_torch",
    "adamw_torch_fused",
    "adamw_torch_xla",
    "adamw_torch_npu_fused",
    "adafactor",
    "adamw_anyprecision",
    "adamw_torch_4bit",
    "adamw_torch_8bit",
    "ademamix",
    "sgd",
    "adagrad",
    "adamw_bnb_8bit",
    "adamw_8bit",
    "ademamix_8bit",
    "lion_8bit",
    "lion_32bit",
    "paged_adamw_32bit",
    "paged_adamw_8bit",
    "paged_ademamix_32bit",
    "paged_ademamix_8bit",
    "paged_lion_32bit",
    "paged_lion_8bit",
    "rmsprop",
    "rmsprop_bnb",
    "rmsprop_bnb_8bit",
    "rmsprop_bnb_32bit",
    "galore_adamw",
    "galore_adamw_8bit",
    "galore_adafactor",
    "galore_adamw_layerwise",
    "galore_adamw_8bit_layerwise",
    "galore_adafactor_layerwise",
    "lomo",
    "adalomo",
    "grokadamw",
    "schedule_free_radam",
    "schedule_free_adamw",
    "schedule_free_sgd",
    "apollo_adamw",
    "apollo_adamw_layerwise",
    "stable_adamw",
]


class Optimization(Section):
    """Batch, schedule, optimizer."""

    per_device_train_batch_size: int = integer(
        "Micro batch: samples of one rank in one forward pass.",
        unit="samples",
        ge=1,
        setting="train_micro_batch_size_per_gpu",
    )
    gradient_accumulation_steps: int = integer(
        "Micro batches per optimizer step; must equal what a DeepSpeed file says.",
        unit="micro batches",
        ge=1,
        setting="gradient_accumulation_steps",
    )
    auto_find_batch_size: bool = switch("Halve the micro batch after running out of memory. Refused with ZeRO-3.")
    num_train_epochs: float = number("Length of training when max_steps is not positive.", unit="epochs")
    max_steps: int = integer(
        "Optimizer steps; positive wins over num_train_epochs.",
        unit="steps",
        setting="scheduler.params.total_num_steps",
    )
    learning_rate: float = number("Peak learning rate.", ge=0, setting="optimizer.params.lr")
    lr_scheduler_type: SchedulerType = text(
        "Shape of the schedule; a scheduler in the DeepSpeed file silently replaces it."
    )
    lr_scheduler_kwargs: dict[str, object] | str | None = mapping("Further arguments of the schedule.")
    warmup_steps: float = number(
        "Warmup; below 1 a fraction of all steps, from 1 a number of steps.",
        unit="steps or fraction",
        ge=0,
        setting="scheduler.params.warmup_num_steps",
    )
    optim: OptimizerName = text(
        "Optimizer; an optimizer in the DeepSpeed file, or CPU offload of optimizer state, silently replaces it."
    )
    optim_args: str | None = text("Further arguments of the optimizer: `name=value` separated by commas.")
    optim_target_modules: str | list[str] | None = text("Modules that GaLore or APOLLO work on.")
    weight_decay: float = number("Weight decay.", setting="optimizer.params.weight_decay")
    adam_beta1: float = number("Decay of Adam's first moment.", setting="optimizer.params.betas.0")
    adam_beta2: float = number("Decay of Adam's second moment.", setting="optimizer.params.betas.1")
    adam_epsilon: float = number("Adam's epsilon.", setting="optimizer.params.eps")
    max_grad_norm: float = number(
        "Largest gradient norm. A DeepSpeed file without gradient_clipping clips at 1.0 anyway.",
        unit="norm",
        setting="gradient_clipping",
    )
    label_smoothing_factor: float = number("Label smoothing.")
    average_tokens_across_devices: bool = switch("Count tokens over all ranks when averaging the loss.")
    neftune_noise_alpha: float | None = number("Scale of NEFTune's embedding noise.")
    seed: int = integer("Seed of everything random.")
    data_seed: int | None = integer("Seed of data sampling; default: seed.")
    full_determinism: bool = switch("Deterministic algorithms only (slow).")
    use_cache: bool = switch("Keep the model's key and value cache while training.")
    greater_is_better: bool | None = optional_switch("Direction of metric_for_best_model; default: from its name.")
    metric_for_best_model: str | None = text("Metric by which the best checkpoint is chosen.")
    label_names: list[str] | None = items("Inputs of the model that are labels.")
