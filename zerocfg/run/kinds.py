"""What kind of file is this? Told from what is in it; the name helps only where nothing could be read.

DeepSpeed JSON lives in ``.yaml`` files too, and an accelerate config may be ``.json``, so the content decides.
"""

from __future__ import annotations

from typing import Any

from zerocfg.catalog.schema import load_schema
from zerocfg.frontends.registry import recognise
from zerocfg.run.hydra import is_for_omegaconf
from zerocfg.run.model import Kind

# Keys that only one format has at its top level, and keys that it shares with others but that add weight.
_DEEPSPEED_SURE = frozenset(
    "zero_optimization train_micro_batch_size_per_gpu zero_allow_untested_optimizer zero_force_ds_cpu_optimizer "
    "wall_clock_breakdown steps_per_print prescale_gradients gradient_predivide_factor communication_data_type "
    "flops_profiler comms_logger compression_training data_efficiency hybrid_engine sparse_gradients".split()
)
_DEEPSPEED_SECTIONS = frozenset(
    "fp16 bf16 bfloat16 amp activation_checkpointing aio tensorboard zero_optimisation".split()
)
_DEEPSPEED_HINTS = frozenset(
    "train_batch_size gradient_accumulation_steps gradient_clipping optimizer scheduler".split()
)
_ACCELERATE_SURE = frozenset(
    "distributed_type compute_environment deepspeed_config fsdp_config megatron_lm_config".split()
)
_ACCELERATE_HINTS = frozenset(
    "num_processes num_machines machine_rank mixed_precision main_training_function main_process_ip main_process_port "
    "same_network rdzv_backend downcast_bf16 use_cpu gpu_ids dynamo_config tpu_env tpu_use_cluster".split()
)
_ACCELERATE_OWN = (_ACCELERATE_SURE | _ACCELERATE_HINTS) - {"fsdp_config"}
_RECIPE_SURE = frozenset(
    "per_device_train_batch_size per_device_eval_batch_size num_train_epochs lr_scheduler_type save_strategy "
    "evaluation_strategy eval_strategy gradient_checkpointing logging_steps save_steps save_total_limit "
    "remove_unused_columns ddp_timeout max_grad_norm warmup_ratio logging_strategy".split()
)
_RECIPE_HINTS = frozenset(
    "output_dir learning_rate gradient_accumulation_steps max_steps bf16 fp16 deepspeed model_name_or_path seed "
    "warmup_steps report_to weight_decay optim do_train do_eval".split()
)

_INFERENCE = frozenset("replace_with_kernel_inject replace_method mp_size injection_policy max_out_tokens".split())
_TRAINING = frozenset(
    "train_batch_size train_micro_batch_size_per_gpu optimizer zero_optimization per_device_train_batch_size".split()
)

_MOST_MISTYPED = 7
"""Keys that DeepSpeed does not read, of one config that is meant for it."""

# A file without any of these words is of no kind that zerocfg reads; looking for bytes is much cheaper than parsing.
MARKERS = tuple(
    word.encode()
    for word in (
        "zero_optimi",
        "train_micro_batch_size_per_gpu",
        "train_batch_size",
        "distributed_type",
        "compute_environment",
        "deepspeed_config",
        "fsdp_config",
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "deepspeed",
        "bf16",
        "fp16",
    )
)


def sniff(data: Any, name: str = "") -> Kind:
    """The kind of a parsed document; ``data`` is its plain value."""
    if not isinstance(data, dict) or not data:
        return "other"
    keys = {key for key in data if isinstance(key, str)}
    if recognise(data) is not None:
        return "neighbour"
    if isinstance(data.get("defaults"), list) or "hydra" in keys or "_target_" in keys:
        return "other"  # a config of Hydra, for a program of its own
    if "log_history" in keys or "_n_gpu" in keys or (keys & _INFERENCE and not keys & _TRAINING):
        return "other"  # the Trainer's state, its arguments as it dumps them, a config of init_inference
    if isinstance(data.get("runs"), dict) and ("version" in keys or _basename(name) == "zerocfg.yaml"):
        return "spec"
    if "model_type" in keys and ("architectures" in keys or "hidden_size" in keys or "transformers_version" in keys):
        return "model"
    sure = keys & _ACCELERATE_SURE
    if isinstance(data.get("deepspeed_config"), str):
        sure -= {"deepspeed_config"}  # a path: programs of their own name DeepSpeed's config so
    accelerate = 3 * len(sure) + len(keys & _ACCELERATE_HINTS)
    if "distributed_type" not in keys and ("fsdp" in keys or not keys & _ACCELERATE_OWN):
        accelerate = 0  # training arguments, beside `fsdp`, and Composer have an fsdp_config, too
    if accelerate and _makes_an_accelerator(keys):
        accelerate = 0
    recipe = 2 * len(keys & _RECIPE_SURE) + (len(keys & _RECIPE_HINTS) if keys & _RECIPE_SURE else 0)
    if recipe and is_for_omegaconf(data):
        recipe = 0
    sections = [key for key in keys & _DEEPSPEED_SECTIONS if isinstance(data.get(key), dict)]
    deepspeed = 3 * len(keys & _DEEPSPEED_SURE) + 3 * len(sections)
    if deepspeed or ("train_batch_size" in keys and 2 * len(keys & _DEEPSPEED_HINTS) >= len(keys)):
        deepspeed += len(keys & _DEEPSPEED_HINTS) + 2 * ("train_batch_size" in keys)
    if deepspeed and _of_a_program(keys):
        deepspeed = 0
    best = max(accelerate, recipe, deepspeed)
    if best < 3:
        return "other"
    if deepspeed == best:  # one for `init_inference` has other keys, unless a line or script trains with it
        return "other" if "infer" in _basename(name).lower() else "deepspeed"
    return "accelerate" if accelerate == best else "recipe"


def _of_a_program(keys: set[str]) -> bool:
    """Whether sections of DeepSpeed stand among the keys of a program that makes DeepSpeed's config of them, as
    GPT-NeoX does: most keys are none that DeepSpeed reads, and more than anybody mistypes."""
    others = len(keys - _DEEPSPEED_SURE - _DEEPSPEED_SECTIONS - _DEEPSPEED_HINTS)
    if others <= _MOST_MISTYPED or 2 * others <= len(keys):
        return False
    read = len(keys & load_schema("deepspeed").root.names.keys())
    return len(keys) - read > max(read, _MOST_MISTYPED)


def _makes_an_accelerator(keys: set[str]) -> bool:
    """Whether keys of accelerate stand among those of a program that makes an Accelerator by itself: most keys are none
    of the launcher's, and more than anybody mistypes. `accelerate config` always writes `compute_environment`."""
    if "compute_environment" in keys:
        return False
    known = len(keys & load_schema("accelerate").root.names.keys())
    return len(keys) - known > max(known, _MOST_MISTYPED)


def named_recipe(data: Any, more: frozenset[str], share: float) -> bool:
    """Whether a short mapping that a launch line names in a recipe's place is one: three of its keys, and this share of
    all of them, are arguments, of those known here or of ``more``."""
    if not isinstance(data, dict):
        return False
    known = sum(key in _RECIPE_SURE or key in _RECIPE_HINTS or key in more for key in data)
    return known >= 3 and known >= share * len(data)


def guess_unread(text: str, name: str) -> Kind:
    """The kind of a file that did not parse, from its words and its name; "other" unless fairly sure."""
    if '"zero_optimization"' in text or "train_micro_batch_size_per_gpu" in text:
        return "deepspeed"
    if "distributed_type:" in text or "deepspeed_config:" in text or "compute_environment:" in text:
        return "accelerate"
    if "per_device_train_batch_size:" in text:
        return "recipe"
    base = _basename(name)
    if base.startswith(("ds_config", "deepspeed_config", "ds_z", "zero")) and base.endswith((".json", ".hjson")):
        return "deepspeed"
    if base.startswith(("accelerate", "default_config")) and base.endswith((".yaml", ".yml")):
        return "accelerate"
    return "other"


def _basename(name: str) -> str:
    return name.replace("\\", "/").rpartition("/")[2]
