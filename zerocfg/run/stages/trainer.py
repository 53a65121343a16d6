"""What the transformers Trainer writes into the DeepSpeed config, and which differences it refuses.

Follows transformers/integrations/deepspeed.py (`trainer_config_process` while TrainingArguments or Trainer are built,
`trainer_config_finalize` at `train()`). Differences are collected in both and raised at `train()`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from zerocfg.budgets import LARGEST_NUMBER
from zerocfg.record import field, record
from zerocfg.run.config import Config, any_unknown, product
from zerocfg.run.model import UNKNOWN, Difference, Failure, Origin, Setting

if TYPE_CHECKING:
    from zerocfg.run.facts import ModelSummary
    from zerocfg.run.stages.arguments import Arguments

REDUCE_BUCKET = "zero_optimization.reduce_bucket_size"
PREFETCH_BUCKET = "zero_optimization.stage3_prefetch_bucket_size"
PERSISTENCE = "zero_optimization.stage3_param_persistence_threshold"
HIDDEN_SIZE_KEYS = (REDUCE_BUCKET, PREFETCH_BUCKET, PERSISTENCE)


@record(slots=True)
class Matching:
    """The differences found so far."""

    config: Config
    found: list[Difference] = field(default_factory=list)

    def match(self, name: str, setting: Setting, argument: str, *, must_match: bool = True) -> None:
        """Fill an "auto"; otherwise note a value that differs (Python's ``!=``)."""
        if self.config.fill(name, setting) or not must_match:
            return
        written = self.config.get(name)
        if written is None or any_unknown(written, setting.value) or written == setting.value:
            return
        old = self.config.setting(name)
        origin = old.origin if old is not None else Origin("computed", "the DeepSpeed config")
        self.found.append(Difference(name, Setting(written, origin), argument, setting))

    def failure(self) -> Failure | None:
        if not self.found:
            return None
        text = "\n".join(
            f"- ds {item.key}={item.written.value} vs hf {item.argument}={item.asked.value}" for item in self.found
        )
        message = (
            "Please correct the following DeepSpeed config values that mismatch TrainingArguments values:\n"
            f"{text}\nThe easiest method is to set these DeepSpeed config values to 'auto'."
        )
        places = tuple(setting.origin for item in self.found for setting in (item.written, item.asked))
        return Failure("trainer-mismatch", "init", message, places, differences=tuple(self.found))


def either(first: Setting, second: Setting) -> Setting:
    """Python's ``first or second``, as the Trainer joins `bf16` and `bf16_full_eval`."""
    if first.value is UNKNOWN:
        return first
    return first if first.value else Setting(second.value, second.origin if second.value else first.origin)


def process(matching: Matching, arguments: Arguments, world_size: Setting, *, batches: bool = True) -> None:
    """The part that needs no model: batch sizes, clipping, optimizer and scheduler values, precision.

    ``batches`` False: batch sizes may differ, because auto_find_batch_size tries several.
    """
    get = arguments.setting
    micro, steps = get("per_device_train_batch_size"), get("gradient_accumulation_steps")
    total = product(world_size.value, micro.value, steps.value)
    batch = Setting(total, Origin("computed", "processes * per_device_train_batch_size * gradient_accumulation_steps"))
    matching.match("train_micro_batch_size_per_gpu", micro, "per_device_train_batch_size", must_match=batches)
    matching.match("gradient_accumulation_steps", steps, "gradient_accumulation_steps")
    matching.match("train_batch_size", batch, "train_batch_size (calculated)", must_match=batches)
    matching.match("gradient_clipping", get("max_grad_norm"), "max_grad_norm")
    matching.match("optimizer.params.lr", get("learning_rate"), "learning_rate")
    beta1, beta2 = get("adam_beta1"), get("adam_beta2")
    betas: Any = UNKNOWN if any_unknown(beta1.value, beta2.value) else [beta1.value, beta2.value]
    matching.match("optimizer.params.betas", Setting(betas, beta1.origin), "adam_beta1+adam_beta2")
    matching.match("optimizer.params.eps", get("adam_epsilon"), "adam_epsilon")
    matching.match("optimizer.params.weight_decay", get("weight_decay"), "weight_decay")
    zero = Setting(0, Origin("computed", "the Trainer warms up from 0"))
    matching.match("scheduler.params.warmup_min_lr", zero, "", must_match=False)
    matching.match("scheduler.params.warmup_max_lr", get("learning_rate"), "learning_rate")
    node = get("save_on_each_node")
    if node.value is not UNKNOWN and node.value:
        if matching.config.data.get("checkpoint", {}) is None:
            matching.config.require_mapping("checkpoint")
        matching.config.set("checkpoint.use_node_local_storage", node.value, node.origin)
    matching.match("fp16.enabled", either(get("fp16"), get("fp16_full_eval")), "fp16|fp16_full_eval")
    matching.match("bf16.enabled", either(get("bf16"), get("bf16_full_eval")), "bf16|bf16_full_eval")
    if "amp" in matching.config.data and (filled := arguments.apex()) is not None:
        enabled, level = filled
        matching.match("amp.enabled", enabled, "fp16+fp16_backend(apex)")
        matching.match("amp.opt_level", level, "fp16_opt_level")


def hidden_size(model: ModelSummary | None, *, text: bool) -> Any:
    """The hidden size that a library finds in the model's config; None when it finds none, UNKNOWN when nobody knows.

    ``text``: the Trainer also looks into text_config, accelerate does not.
    """
    if model is None:
        return UNKNOWN
    if model.hidden_size is not None:
        return model.hidden_size
    if model.max_hidden_sizes is not None:
        return model.max_hidden_sizes
    if text and model.text_hidden_size is not None:
        return model.text_hidden_size
    return None if model.width_known else UNKNOWN


def bucket_settings(size: Any) -> dict[str, Setting]:
    """The three sizes (elements) that both libraries derive from the hidden size."""
    known = size is not UNKNOWN and size <= LARGEST_NUMBER
    note = f"from the model's hidden size {size}" if known else "from the model's hidden size"
    values = (size * size, int(0.9 * size * size), 10 * size) if known else (UNKNOWN,) * 3
    return {
        name: Setting(value, Origin("computed", note)) for name, value in zip(HIDDEN_SIZE_KEYS, values, strict=True)
    }


def missing_hidden_size(names: list[str], config: Config, who: str) -> Failure:
    message = f"the model's config has no hidden size where {who} looks, so {', '.join(names)} cannot be filled"
    places = [setting.origin for name in names if (setting := config.setting(name)) is not None]
    return Failure("hidden-size-missing", "init", message, tuple(places))


def finalize(matching: Matching, arguments: Arguments, model: ModelSummary | None) -> Failure | None:
    """The part that needs the model and the number of steps; the failure that ends `train()`, if any."""
    config = matching.config
    missing: Failure | None = None
    autos = [name for name in HIDDEN_SIZE_KEYS if config.is_auto(name)]
    size = hidden_size(model, text=True)
    if autos and size is None:
        missing = missing_hidden_size(autos, config, "the Trainer")
    elif autos:
        sizes = bucket_settings(size)
        config.fill(REDUCE_BUCKET, sizes[REDUCE_BUCKET])
        stage = config.get("zero_optimization.stage")
        if stage == 3 or stage is UNKNOWN:
            config.fill(PREFETCH_BUCKET, sizes[PREFETCH_BUCKET])
            config.fill(PERSISTENCE, sizes[PERSISTENCE])
    steps = training_steps(arguments)
    matching.match("scheduler.params.total_num_steps", steps, "num_training_steps (calculated)")
    matching.match("scheduler.params.warmup_num_steps", warmup_steps(arguments, steps.value), "warmup_steps")
    return missing or matching.failure()


def training_steps(arguments: Arguments) -> Setting:
    """max_steps when it is set; otherwise the data set decides."""
    given = arguments.setting("max_steps")
    if isinstance(given.value, (int, float)) and given.value >= 0:
        return given
    return Setting(UNKNOWN, Origin("computed", "num_train_epochs times the steps of an epoch"))


def warmup_steps(arguments: Arguments, total: Any) -> Setting:
    """At least 1: warmup_steps from 1 on is a number of steps, below a share of all steps."""
    given = arguments.setting("warmup_steps")
    value = given.value
    try:
        if isinstance(value, (int, float)):
            if value >= 1:
                return Setting(max(1, int(value)), given.origin)
            if value == 0:
                return Setting(1, given.origin)
            if isinstance(total, (int, float)):
                return Setting(max(1, math.ceil(total * value)), given.origin)
    except (OverflowError, ValueError):  # infinite, no number, or beyond every float
        pass
    return Setting(UNKNOWN, given.origin)


def refused_arguments(arguments: Arguments, stage: Any, *, deepspeed: bool) -> list[Failure]:
    """Combinations that the Trainer's constructor refuses with DeepSpeed."""
    found: list[Failure] = []
    only, best = arguments.setting("save_only_model"), arguments.setting("load_best_model_at_end")
    if deepspeed and only.value and best.value:
        message = "DeepSpeed can't be used with `save_only_model` along with `load_best_model_at_end`."
        found.append(Failure("save-only-model-best", "arguments", message, (only.origin, best.origin)))
    finder = arguments.setting("auto_find_batch_size")
    if deepspeed and finder.value and stage == 3:
        message = "`auto_find_batch_size` isn't supported yet with DeepSpeed Zero-3."
        found.append(Failure("auto-find-batch-size-zero3", "arguments", message, (finder.origin,)))
    return found


def both_precisions(arguments: Arguments) -> list[Failure]:
    """TrainingArguments refuses fp16 together with bf16."""
    half, bfloat = arguments.setting("fp16"), arguments.setting("bf16")
    if not (half.value and bfloat.value):
        return []
    message = "At most one of fp16 and bf16 can be True, but not both"
    return [Failure("fp16-and-bf16", "arguments", message, (half.origin, bfloat.origin))]
