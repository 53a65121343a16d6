"""LLaMA-Factory. Established on llamafactory 0.9.5."""

from __future__ import annotations

from zerocfg.catalog.history import histories
from zerocfg.catalog.schema import load_schema
from zerocfg.frontends.api import UNKNOWN, Claims, Facts, FrontEnd, Lowered, Written
from zerocfg.frontends.handed_on import handed_on

_STAGES = frozenset("pt sft rm ppo dpo kto".split())
_OWN = frozenset(
    "remove_unused_columns label_names ddp_find_unused_parameters resume_from_checkpoint report_to "
    "generation_max_length generation_num_beams fp8".split()
)
"""Fields of TrainingArguments that it sets by itself."""

# From the metadata of its wheels on PyPI (``Requires-Dist``, for DeepSpeed that of the extra of this name); 0.9.5 names
# no DeepSpeed.
_REQUIRES = {
    "0.7.1": {
        "deepspeed": ">=0.10.0,<=0.14.0",
        "accelerate": ">=0.27.2",
        "transformers": ">=4.37.2",
        "trl": ">=0.8.1",
    },
    "0.8.0": {
        "deepspeed": ">=0.10.0,<=0.14.0",
        "accelerate": ">=0.30.1",
        "transformers": ">=4.41.2",
        "trl": ">=0.8.6",
    },
    "0.8.1": {
        "deepspeed": ">=0.10.0,<=0.14.0",
        "accelerate": ">=0.30.1",
        "transformers": ">=4.41.2",
        "trl": ">=0.8.6",
    },
    "0.8.2": {"deepspeed": ">=0.10.0", "accelerate": ">=0.30.1", "transformers": ">=4.41.2", "trl": ">=0.8.6"},
    "0.8.3": {"deepspeed": ">=0.10.0", "accelerate": ">=0.30.1", "transformers": ">=4.41.2", "trl": ">=0.8.6"},
    "0.9.0": {
        "deepspeed": ">=0.10.0,<=0.14.4",
        "accelerate": ">=0.30.1,<=0.33.0",
        "transformers": ">=4.41.2,<=4.45.0",
        "trl": ">=0.8.6,<=0.9.6",
    },
    "0.9.1": {
        "deepspeed": ">=0.10.0,<=0.14.4",
        "accelerate": ">=0.34.0,<=1.0.1",
        "transformers": ">=4.41.2,<=4.46.1",
        "trl": ">=0.8.6,<=0.9.6",
    },
    "0.9.2": {
        "deepspeed": ">=0.10.0,<=0.16.4",
        "accelerate": ">=0.34.0,<=1.2.1",
        "transformers": ">=4.41.2,<=4.49.0",
        "trl": ">=0.8.6,<=0.9.6",
    },
    "0.9.3": {
        "deepspeed": ">=0.10.0,<=0.16.9",
        "accelerate": ">=0.34.0,<=1.7.0",
        "transformers": ">=4.45.0,<=4.52.4,!=4.46.*,!=4.47.*,!=4.48.0,!=4.52.0",
        "trl": ">=0.8.6,<=0.9.6",
    },
    "0.9.4": {
        "deepspeed": ">=0.10.0,<=0.16.9",
        "accelerate": ">=1.3.0,<=1.11.0",
        "transformers": ">=4.51.0,<=4.57.1,!=4.52.0,!=4.57.0",
        "trl": ">=0.18.0,<=0.24.0",
    },
    "0.9.5": {
        "accelerate": ">=1.3.0,<=1.11.0",
        "transformers": ">=4.55.0,<=5.6.0,!=4.52.0,!=4.57.0",
        "trl": ">=0.18.0,<=0.24.0",
    },
}


def _is_recipe(keys: Written) -> bool:
    if "finetuning_type" in keys and ("model_name_or_path" in keys or "stage" in keys):
        return True
    stage = keys.get("stage")
    known = isinstance(stage, str) and stage in _STAGES
    return known and "model_name_or_path" in keys and ("template" in keys or "cutoff_len" in keys)


def _lower(recipe: Written, options: Written) -> Lowered:
    """hparams/parser.py: HfArgumentParser over Seq2SeqTrainingArguments and four dataclasses of its own, so that its
    recipes hold the fields of TrainingArguments themselves."""
    fields = {name: name for name in load_schema("training-arguments").root.keys if name not in _OWN}
    found = handed_on(recipe, options, fields)
    if recipe.get("pure_bf16"):  # it trains in bf16 without telling the Trainer
        found |= {name: found[name]._replace(value=UNKNOWN) for name in ("bf16", "fp16") if name in found}
    return Lowered(found)


FRONT_END = FrontEnd(
    "llamafactory",
    Claims(
        programs={"llamafactory-cli": frozenset({"train"}), "lmf": frozenset({"train"})},
        words=("llamafactory-cli", "lmf train"),
        modules=("llamafactory.launcher", "llamafactory.train.tuner"),
        recipe=_is_recipe,
        options=_is_recipe,
        shipped=("examples/deepspeed/",),
    ),
    lower=_lower,
    defaults=True,
    facts=Facts(
        "LLaMA-Factory",
        "llamafactory",
        lambda: histories("llamafactory"),
        libraries=("transformers",),
        unknown="stops",
        stops="its parser stops with `ValueError: Some keys are not used by the HfArgumentParser`",
        lenient=frozenset(("ALLOW_EXTRA_ARGS", "USE_MCA", "USE_V1")),
        requires=_REQUIRES,
    ),
    ranks_needed=None,
    texts_are_numbers="unquoted",  # OmegaConf loads the recipe; HfArgumentParser.parse_dict converts nothing
)
