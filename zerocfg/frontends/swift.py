"""ms-swift. Established on 4.6.0; the names of its DeepSpeed configs also on 2.6.1."""

from __future__ import annotations

from zerocfg.catalog.history import histories
from zerocfg.frontends.api import Claims, Facts, FrontEnd, Lowered, Written
from zerocfg.frontends.handed_on import COMMON, handed_on

_FIELDS = {name: name for name in (*COMMON, "per_device_train_batch_size", "bf16", "fp16")}
"""arguments/sft_args.py: Seq2SeqTrainingArguments with other defaults; `bf16` and `fp16` as given."""

# From the metadata of its wheels on PyPI (``Requires-Dist``), of the last patch of each minor release.
_REQUIRES = {
    "2.6.1": {"transformers": ">=4.33,<4.48", "trl": ">=0.11,<0.12"},
    "3.0.3": {"transformers": ">=4.33,<4.49", "trl": ">=0.11,<0.12"},
    "3.2.2": {"transformers": ">=4.33,<4.51", "trl": ">=0.13,<0.17"},
    "3.4.1": {"transformers": ">=4.33,<4.53", "trl": ">=0.13,<0.18"},
    "3.6.4": {"transformers": ">=4.33,<4.53", "trl": ">=0.15,<0.20"},
    "3.8.3": {"transformers": ">=4.33,<4.57", "trl": ">=0.15,<0.21"},
    "3.10.3": {"transformers": ">=4.33,<4.58", "trl": ">=0.15,<0.25"},
    "3.12.6": {"transformers": ">=4.33,<4.58", "trl": ">=0.15,<0.25"},
    "4.0.4": {"transformers": ">=4.33,<5.4.0", "trl": ">=0.15,<0.30"},
    "4.1.3": {"transformers": ">=4.33,<5.7.0", "trl": ">=0.15,<0.30"},
    "4.2.3": {"transformers": ">=4.33,<5.9.0", "trl": ">=0.15,<1.0"},
    "4.3.2": {"transformers": ">=4.33,<5.13.0", "trl": ">=0.15,<1.0"},
    "4.4.2": {"transformers": ">=4.33,<5.13.0", "trl": ">=0.15,<1.0"},
    "4.5.3": {"transformers": ">=4.33,<5.17.0", "trl": ">=0.15,<1.0"},
    "4.6.0": {"transformers": ">=4.33,<5.20.0", "trl": ">=0.15,<1.0"},
}


def _is_recipe(keys: Written) -> bool:
    tuned = not keys.keys().isdisjoint({"tuner_type", "train_type", "sft_type"})
    return tuned and not keys.keys().isdisjoint({"model", "model_type", "dataset"})


def _lower(recipe: Written, options: Written) -> Lowered:
    return Lowered(handed_on(recipe, options, _FIELDS))


FRONT_END = FrontEnd(
    "swift",
    Claims(
        programs={"swift": frozenset({"sft", "pt", "rlhf"})},
        words=("swift sft", "swift pt", "swift rlhf"),
        modules=("swift.cli.sft", "swift.cli.pt", "swift.cli.rlhf"),
        calls=frozenset(("swift.sft_main", "swift.pt_main", "swift.rlhf_main")),
        recipe=_is_recipe,
        keys=frozenset("tuner_type train_type split_dataset_ratio rlhf_type".split()),
        presets=frozenset(
            "zero0 zero1 zero2 zero2_offload zero3 zero3_offload "
            "default-zero2 default-zero3 zero2-offload zero3-offload".split()  # the names of ms-swift 2
        ),
    ),
    lower=_lower,
    facts=Facts(
        "ms-swift",
        "ms-swift",
        lambda: histories("ms-swift"),
        libraries=("transformers", "trl"),
        unknown="stops",
        stops="it stops with `ValueError: remaining_argv`",
        lenient=frozenset(("ignore_args_error",)),
        abbreviates=True,
        requires=_REQUIRES,
    ),
    # its RLHF sets the variables of a rank in some cases
    ranks_needed=("swift.cli.sft", "swift.cli.pt", "swift.sft_main", "swift.pt_main"),
    takes_words=False,
    texts_are_numbers="always",  # cli/main.py: the recipe becomes options, which argparse converts
)
