"""axolotl. Established on 0.19.0."""

from __future__ import annotations

from zerocfg.catalog.history import histories
from zerocfg.frontends.api import UNKNOWN, Claims, Facts, FrontEnd, Lowered, Value, Written
from zerocfg.frontends.handed_on import COMMON, handed_on

_BESIDE_MODEL = frozenset(
    "datasets pretraining_dataset micro_batch_size sequence_len num_epochs adapter sample_packing val_set_size "
    "dataset_prepared_path".split()
)
_FIELDS = {**{name: name for name in COMMON}, "micro_batch_size": "per_device_train_batch_size"}
"""core/builders/base.py and causal.py: TrainingArguments are made of the recipe, field by field."""

# From the metadata of its wheels on PyPI (``Requires-Dist``, for DeepSpeed that of the extra of this name), of the last
# patch of each minor release.
_REQUIRES = {
    "0.5.2": {"deepspeed": "==0.15.4", "accelerate": "==1.1.0", "transformers": "==4.46.3", "trl": "==0.12.0"},
    "0.6.0": {"deepspeed": "==0.16.1", "accelerate": "==1.2.0", "transformers": ">=4.46.3", "trl": "==0.12.1"},
    "0.7.0": {"deepspeed": "==0.16.1", "accelerate": "==1.3.0", "transformers": "==4.48.3", "trl": "==0.15.0"},
    "0.8.1": {"deepspeed": "==0.15.4", "accelerate": "==1.6.0", "transformers": "==4.51.0", "trl": "==0.16.1"},
    "0.9.2": {"deepspeed": "==0.15.4", "accelerate": "==1.6.0", "transformers": "==4.51.3", "trl": "==0.17.0"},
    "0.10.0": {"deepspeed": "==0.17.0", "accelerate": "==1.7.0", "transformers": "==4.52.3", "trl": "==0.18.1"},
    "0.11.0": {"deepspeed": "==0.17.1", "accelerate": "==1.8.1", "transformers": "==4.53.1", "trl": "==0.18.2"},
    "0.12.2": {"deepspeed": "==0.17.2", "accelerate": "==1.10.0", "transformers": "==4.55.2", "trl": "==0.21.0"},
    "0.13.2": {"deepspeed": "==0.18.2", "accelerate": "==1.12.0", "transformers": "==4.57.6", "trl": "==0.27.0"},
    "0.14.0": {"deepspeed": "==0.18.2", "accelerate": "==1.12.0", "transformers": "==5.0.0", "trl": "==0.27.1"},
    "0.15.0": {"deepspeed": "==0.18.2", "accelerate": "==1.13.0", "transformers": "==5.3.0", "trl": "==0.29.0"},
    "0.16.1": {"deepspeed": "==0.18.2", "accelerate": "==1.13.0", "transformers": "==5.5.0", "trl": "==0.29.0"},
    "0.17.0": {
        "deepspeed": ">=0.18.6,<0.19.0",
        "accelerate": "==1.13.0",
        "transformers": "==5.9.0",
        "trl": "==1.5.1",
    },
    "0.18.0": {
        "deepspeed": ">=0.18.6,<0.19.0",
        "accelerate": "==1.13.0",
        "transformers": "==5.14.1",
        "trl": "==1.8.0",
    },
    "0.19.0": {
        "deepspeed": ">=0.18.6,<0.19.0",
        "accelerate": "==1.13.0",
        "transformers": "==5.16.1",
        "trl": "==1.9.0",
    },
}


def _is_recipe(keys: Written) -> bool:
    return "base_model" in keys and not _BESIDE_MODEL.isdisjoint(keys)


def _lower(recipe: Written, options: Written) -> Lowered:
    """`bf16: true` turns fp16 off; `auto` is resolved by the device, and everything else depends on other keys. No
    accumulation (0) is worked out from `batch_size`."""
    found = handed_on(recipe, options, _FIELDS)
    steps = found.get("gradient_accumulation_steps")
    if steps is not None and not steps.value:
        found["gradient_accumulation_steps"] = steps._replace(value=UNKNOWN)
    if recipe.get("bf16") is True and not {"bf16", "fp16"} & options.keys():
        found |= {"bf16": Value(True, "bf16"), "fp16": Value(False, "bf16")}
    return Lowered(found)


def _has_other_plugins(recipe: Written) -> bool:
    """Whether plugins outside of axolotl bring keys of their own."""
    plugins = recipe.get("plugins") or ()
    names = plugins if isinstance(plugins, (list, tuple)) else (plugins,)
    return not all(isinstance(name, str) and name.startswith("axolotl.") for name in names)


FRONT_END = FrontEnd(
    "axolotl",
    Claims(
        programs={"axolotl": frozenset({"train"})},
        words=("axolotl train",),
        modules=("axolotl.cli.train",),
        recipe=_is_recipe,
        keys=frozenset("base_model micro_batch_size sequence_len num_epochs".split()),
        shipped=("deepspeed_configs/",),
    ),
    lower=_lower,
    facts=Facts("axolotl", "axolotl", lambda: histories("axolotl"), extended=_has_other_plugins, requires=_REQUIRES),
    texts_are_numbers="always",  # utils/schemas: pydantic in its lax mode; a validator for learning_rate
    # no ranks_needed: it sets the variables of a job of one process by itself
)
