"""Whose training arguments a run has: those of the Trainer, or of which trainer of TRL."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from zerocfg.catalog.schema import Key, load_schema
from zerocfg.frontends.registry import foreign_keys, front_end
from zerocfg.rules.effects import recipe_data
from zerocfg.run.model import Run
from zerocfg.run.stages.arguments import parsed
from zerocfg.run.templates import has_placeholders
from zerocfg.source.launch.line import Option

_OF_OTHERS = frozenset(
    "batch_size epochs lr lr_scheduler n_epochs num_workers per_device_batch_size "
    "tensor_parallel_degree pipeline_parallel_degree sharding_parallel_degree virtual_pp_degree recompute".split()
)
"""Keys by which programs with a parser of their own call what TrainingArguments call otherwise; the second line has
those of PaddleNLP, whose arguments have most other names of the Trainer's."""
_OF_TRAINERS = frozenset(
    "per_device_train_batch_size per_device_eval_batch_size num_train_epochs lr_scheduler_type lr_scheduler_kwargs "
    "evaluation_strategy eval_strategy save_strategy logging_strategy save_total_limit remove_unused_columns "
    "ddp_timeout ddp_find_unused_parameters load_best_model_at_end metric_for_best_model gradient_checkpointing_kwargs "
    "overwrite_output_dir report_to do_train do_eval group_by_length logging_first_step save_safetensors "
    "save_only_model hub_model_id hub_strategy".split()
)
"""Arguments of the Trainer whose names few other programs use; `warmup_ratio` or `save_steps` many do."""

_CONFIGS = frozenset("SFTConfig DPOConfig KTOConfig GRPOConfig RLOOConfig RewardConfig DistillationConfig".split())
_METHODS = {name.removesuffix("Config").lower(): name for name in _CONFIGS}
_SCRIPT = rf"(?:^|[/_-])({'|'.join(_METHODS)})(?:[_-]\w+)?(?:\.py)?\Z"


def guessed(run: Run) -> bool:
    """Whether nothing but the options of a launch line tells that a Trainer reads the arguments."""
    seen = run.script is not None and run.script.reader is not None
    return run.launch is not None and run.recipe is None and run.reader_evidence is None and not seen


@lru_cache(maxsize=2)  # rules ask one after the other about the same run; more would keep old files alive
def reader(run: Run) -> Literal["transformers", "trl"] | None:
    """Whose arguments the run has: TrainingArguments, one of TRL's configs, or nobody's that is known."""
    keys = set(recipe_data(run))
    foreign = foreign_keys()
    if keys & foreign or (run.script is None and not foreign.isdisjoint(run.arguments)):
        return None
    if run.consumer == "trl":
        return "trl"
    if run.consumer not in (None, "transformers") or not (keys or run.consumer):
        return None
    if run.consumer is None and not _mostly_arguments(frozenset(map(str, keys))):
        return None
    if run.consumer is None and run.elsewhere.fills_arguments:
        return None  # code makes arguments of a recipe, and which keys it takes is not known
    stated = parsed(run)
    if stated and not any(name.startswith("trl.") for name in stated):
        return "transformers"  # by a class of the project that has TRL's names
    own = run.recipe_reader != "hf" and any(_trainers_with(str(name)) for name in keys)
    # a project may read its recipes with a trainer of its own, which has words and arguments that TRL's has not
    return "trl" if own and run.elsewhere.trainers.isdisjoint(_configs_with(keys)) else "transformers"


def may_have_other_defaults(run: Run) -> bool:
    """Whether an argument that is not written may have another default than the library's: the reader of the recipe is
    not known, and some of its keys are of no library, or code makes arguments of a recipe and may add to it."""
    if run.consumer is not None or run.recipe_reader is not None:
        return False
    return run.elsewhere.fills_arguments or not frozenset(map(str, recipe_data(run))) <= _names()


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    names = load_schema("training-arguments").root.names.keys() | load_schema("trl").root.names.keys()
    return frozenset(names)


def values_arrive(run: Run) -> bool:
    """Whether the Trainer gets the values of training arguments as they are known: its parser reads them, or a front
    end lowers onto them. Those of a template are still to be filled in."""
    document = run.recipe.document if run.recipe is not None else None
    if document is not None and has_placeholders(document):
        return False
    return reader(run) is not None or front_end(run.consumer) is not None


def reads_recipe(run: Run) -> bool:
    """Whether a parser of TrainingArguments, or of a framework around them, reads the run's recipe: by the script, or
    by its keys where no script is seen."""
    if run.recipe_reader is not None or run.consumer in ("transformers", "trl") or front_end(run.consumer) is not None:
        return True
    keys = frozenset(map(str, recipe_data(run)))
    if run.elsewhere.fills_arguments:
        return False
    return run.script is None and keys.isdisjoint(foreign_keys()) and _mostly_arguments(keys)


def parsed_argument(run: Run, option: Option) -> Key | None:
    """The library's argument that an option of the launch line gives, where the script is known to fill it by
    HfArgumentParser or TrlParser."""
    classes, name = parsed(run), option.plain
    if not classes or not option.name.startswith("--") or run.script is None or name in run.script.own:
        return None
    key = load_schema("training-arguments").root.names.get(name)
    if key is None and reader(run) == "trl":
        key = load_schema("trl").root.names.get(name)
        inside = {f"trl.{fact}" for fact in key.facts.get("in", ())} if key is not None else set()
        key = key if inside & classes else None
    return key if key is not None and "cli" in key.facts else None


@lru_cache(maxsize=64)
def _mostly_arguments(keys: frozenset[str]) -> bool:
    """Whether a file that nobody is known to read is a recipe: at least half of its keys are arguments of the Trainer
    or of TRL, one of them by a name that few others use, and none is another program's name of one. A program with a
    loop of its own has a few of their names, too."""
    if keys.isdisjoint(_OF_TRAINERS) or not keys.isdisjoint(_OF_OTHERS):
        return False
    return 2 * len(keys & _names()) >= len(keys)


def key_of(run: Run, name: str) -> Key | None:
    """What the catalog knows of an argument."""
    return load_schema("trl" if reader(run) == "trl" else "training-arguments").root.names.get(name)


@lru_cache(maxsize=256)
def _trainers_with(name: str) -> frozenset[str]:
    """TRL's trainer configs that have an argument of their own by this name."""
    key = load_schema("trl").root.names.get(name)
    return frozenset(key.facts.get("in", ()) if key is not None else ()) & _CONFIGS


def _configs_with(names: Iterable[object]) -> frozenset[str]:
    """TRL's trainer configs that all of these arguments can be for."""
    found = _CONFIGS
    for name in names:
        found &= _trainers_with(str(name)) or found
    return found


def trainer_configs() -> frozenset[str]:
    """The TRL configs that belong to a trainer; others are for the script or the model, whichever trainer it is."""
    return _CONFIGS


def methods(run: Run) -> frozenset[str]:
    """The TRL configs that this recipe can be for, by its keys and the name of the script; empty when unknown."""
    if reader(run) != "trl":
        return frozenset()
    found = _CONFIGS
    calls = run.script.calls if run.script is not None else ()
    stated = {f"trl.{name}" for name in found} & (parsed(run) or {call.name for call in calls})
    if stated:
        return frozenset(name.removeprefix("trl.") for name in stated)
    found = _configs_with((*recipe_data(run), *run.arguments))
    script = run.launch.script.value if run.launch is not None and run.launch.script is not None else None
    match = re.search(_SCRIPT, script) if script else None
    if match and _METHODS[match[1]] in found:
        return frozenset((_METHODS[match[1]],))
    return found
