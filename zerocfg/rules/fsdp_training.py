"""ZC6xx: FSDP together with the training arguments and the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import TRAINERS, edited, recipe_data
from zerocfg.rules.fsdp import WRAPPED, fsdp_argument, fsdp_key, fsdp_version
from zerocfg.rules.proof import shows
from zerocfg.run.model import UNKNOWN, Run, SourceFile
from zerocfg.source.edit import insert_entry, replace_value
from zerocfg.source.node import Path

RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n"
_LINE = "accelerate launch --config_file accelerate.yaml train.py --config recipe.yaml\n"


def recipe_example(keys: str, **more: Any) -> Example:
    """A recipe with these keys, trained by two ranks of torchrun."""
    files = {"recipe.yaml": RECIPE + keys, "train.sh": "torchrun --nproc_per_node 2 train.py --config recipe.yaml\n"}
    return Example(files, consumer="transformers", **more)


def launched(yaml: str, keys: str = "", **more: Any) -> Example:
    """An accelerate config and a recipe with these keys."""
    files = {"accelerate.yaml": yaml, "recipe.yaml": RECIPE + keys, "train.sh": _LINE}
    return Example(files, consumer="transformers", **more)


def argument_key(run: Run, name: str) -> tuple[SourceFile, Path, Any] | None:
    """A key of the recipe's `fsdp_config`, with or without `fsdp_`, when the Trainer reads it; the prefix wins."""
    config = recipe_data(run).get("fsdp_config")
    if run.recipe is None or not isinstance(config, dict):
        return None
    for spelling in (f"fsdp_{name}", name):
        if spelling in config:
            return run.recipe, ("fsdp_config", spelling), config[spelling]
    return None


def argument_version(run: Run) -> str | None:
    """ "1" or "2" when the training arguments switch FSDP on, else None."""
    asked = fsdp_argument(run)
    if not asked or asked is UNKNOWN or isinstance(recipe_data(run).get("fsdp_config"), str):
        return None
    found = argument_key(run, "version")
    version = str(found[2]) if found is not None else "2"
    return version if version in ("1", "2") else None


@rule(
    "ZC607",
    "fsdp-sharded-weights",
    Severity.WARNING,
    bad=(
        launched(WRAPPED % 2 + "  fsdp_state_dict_type: SHARDED_STATE_DICT\n"),
        launched(WRAPPED % 2),
        recipe_example("fsdp: true\nfsdp_config:\n  state_dict_type: SHARDED_STATE_DICT\n"),
    ),
    good=(
        launched(WRAPPED % 2 + "  fsdp_state_dict_type: FULL_STATE_DICT\n"),
        recipe_example("fsdp: true\nfsdp_config:\n  state_dict_type: FULL_STATE_DICT\n"),
    ),
    proof=shows("save", {"weights": ("missing", "complete")}, ranks=2),
    consumers=TRAINERS,
    fixable=True,
    references=("transformers/trainer.py@5.23.0", "accelerate/utils/dataclasses.py@1.15.0"),
)
def fsdp_sharded_weights(run: Run) -> Iterator[Finding]:
    """The Trainer saves FSDP weights as shards only.

    Nothing can load the result of `trainer.save_model()`: the folder holds a config and no weights. Where no
    checkpoint was written before, the trained weights are gone with the processes.

    What happens: with SHARDED_STATE_DICT `save_model()` writes no `model.safetensors`. It is the default of
    accelerate's FSDP 2 (FSDP 1 and the training argument `fsdp` default to FULL_STATE_DICT). The checkpoints hold
    distributed shards, which `accelerate merge-weights` turns into one file.

    Fix: FULL_STATE_DICT is written; that is a choice, because saving then gathers the model on the first process.

    When to ignore: the merge is part of your pipeline.
    """
    if recipe_data(run).get("save_only_model") is True:
        return  # ZC623: that stops
    version, argument = fsdp_version(run), argument_version(run)
    if argument is not None:
        found, section = argument_key(run, "state_dict_type"), run.recipe
    elif version is not None:
        found, section = fsdp_key(run, "state_dict_type"), run.accelerate
    else:
        return
    why = "write FULL_STATE_DICT"
    message = "with SHARDED_STATE_DICT the Trainer writes shards but no model.safetensors"
    if found is not None and str(found[2]).upper() == "SHARDED_STATE_DICT":
        yield Finding(
            Location(found[0], found[1], "value"),
            message,
            f"{why}, or run `accelerate merge-weights` afterwards",
            fix=edited(replace_value, found[0], found[1], "FULL_STATE_DICT", why=why, safe=False),
        )
    elif found is None and version == "2" and argument is None and section is not None and _from_file(run):
        yield Finding(
            Location(section, ("fsdp_config",), "key"),
            "FSDP 2 saves with SHARDED_STATE_DICT unless told otherwise: the Trainer writes shards but no "
            "model.safetensors",
            "write `fsdp_state_dict_type: FULL_STATE_DICT`",
            fix=edited(
                insert_entry,
                section,
                ("fsdp_config",),
                "fsdp_state_dict_type",
                "FULL_STATE_DICT",
                why=why,
                safe=False,
            ),
        )


def _from_file(run: Run) -> bool:
    """Whether nothing but the accelerate config speaks of the state dict."""
    return "FSDP_STATE_DICT_TYPE" not in run.effective.environment


RULES = (fsdp_sharded_weights,)
