"""ZC6xx: FSDP together with the training arguments and the model."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.catalog.versions import only_below
from zerocfg.rules.api import Example, Finding, Fix, Location, Severity, rule
from zerocfg.rules.arguments import argument, dropped, given, set_argument, value, written
from zerocfg.rules.effects import TRAINERS, edited, recipe_data
from zerocfg.rules.fsdp.plugin import (
    ARGUMENTS,
    RECIPE,
    WRAPPED,
    argument_key,
    argument_version,
    fsdp_key,
    fsdp_setting,
    fsdp_version,
    launched,
    on,
    recipe_example,
    releases,
)
from zerocfg.rules.line import is_page
from zerocfg.rules.proof import crashes, logged, shows
from zerocfg.run.model import Run, SourceFile
from zerocfg.source.edit import insert_entry, replace_value
from zerocfg.source.node import Path

_GATHERING = frozenset(("set_state_dict_type", "summon_full_params"))


@rule(
    "ZC607",
    "fsdp-sharded-weights",
    Severity.WARNING,
    bad=(
        launched(WRAPPED % 2 + "  fsdp_state_dict_type: SHARDED_STATE_DICT\n").finds(
            "warning", "accelerate.yaml: SHARDED_STATE_DICT"
        ),
        launched(WRAPPED % 2).finds("warning", "accelerate.yaml: fsdp_config", 2),
        recipe_example("fsdp: true\nfsdp_config:\n  state_dict_type: SHARDED_STATE_DICT\n").finds(
            "warning", "recipe.yaml: SHARDED_STATE_DICT"
        ),
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
    distributed shards, which `accelerate merge-weights` turns into one file. LOCAL_STATE_DICT of FSDP 1 is the same,
    with one file a process in the checkpoints.

    Nothing is said where the script chooses the kind itself before it saves (`fsdp_plugin.set_state_dict_type`), or
    gathers the weights (`FSDP.summon_full_params`), nor of a page whose script is not here.

    Fix: FULL_STATE_DICT is written; that is a choice, because saving then gathers the model on the first process.

    When to ignore: the merge is part of your pipeline.
    """
    if value(run, "save_only_model") is True:
        return  # ZC627
    script = run.script
    if script is not None and (_GATHERING & script.methods or "state_dict_type" in script.assigned):
        return
    if script is None and run.launch_file is not None and is_page(run.launch_file):
        return
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
    elif found is not None and str(found[2]).upper() == "LOCAL_STATE_DICT" and (argument or version) == "1":
        yield Finding(
            Location(found[0], found[1], "value"),
            "with LOCAL_STATE_DICT the Trainer writes each process's piece into checkpoints and no model.safetensors",
            why,
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


def _full_states(run: Run) -> Fix | None:
    """A fix that makes FSDP save whole states, in the place that counts."""
    found = fsdp_setting(run, "state_dict_type")
    why = "write FULL_STATE_DICT"
    if found is not None:
        return edited(replace_value, found[1], found[2], "FULL_STATE_DICT", why=why, safe=False)
    where = ("fsdp_config",)
    return edited(insert_entry, run.accelerate, where, "fsdp_state_dict_type", "FULL_STATE_DICT", why=why, safe=False)


def _saves_shards(run: Run) -> bool:
    """Whether FSDP runs and saves its states as shards."""
    found = fsdp_setting(run, "state_dict_type")
    if found is not None:
        return str(found[3]).upper() == "SHARDED_STATE_DICT"
    return argument_version(run) is None and fsdp_version(run) == "2" and _from_file(run)


@rule(
    "ZC627",
    "fsdp-shards-without-states",
    Severity.ERROR,
    bad=(
        recipe_example(
            "save_only_model: true\nfsdp: true\nfsdp_config:\n  state_dict_type: SHARDED_STATE_DICT\n"
        ).finds(
            "error", "recipe.yaml: state_dict_type: SHARDED_STATE_DICT", also=("recipe.yaml: save_only_model: true",)
        ),
        launched(WRAPPED % 2, "save_only_model: true\n").finds(
            "error", "accelerate.yaml: fsdp_config", 2, also=("recipe.yaml: save_only_model: true",)
        ),
    ),
    good=(
        recipe_example("save_only_model: true\nfsdp: true\n"),
        launched(WRAPPED % 2 + "  fsdp_state_dict_type: FULL_STATE_DICT\n", "save_only_model: true\n"),
    ),
    proof=crashes("arguments", "save_only_model option is not compatible with FSDP state dict type"),
    consumers=TRAINERS,
    fixable=True,
    references=("transformers/trainer.py@5.23.0",),
)
def fsdp_shards_without_states(run: Run) -> Iterator[Finding]:
    """`save_only_model: true` where FSDP saves shards.

    Shards of the weights alone would be of no use to anybody: they are neither a model that can be loaded nor a
    checkpoint that can be continued.

    What happens: `ValueError: save_only_model option is not compatible with FSDP state dict type
    'SHARDED_STATE_DICT'`, in every process, when the Trainer is made. Shards are the default of accelerate's FSDP 2.

    Fix: FULL_STATE_DICT is written; that is a choice, `save_only_model: false` would be another.
    """
    if value(run, "save_only_model") is not True or not _saves_shards(run):
        return
    found = fsdp_setting(run, "state_dict_type")
    section = run.recipe if argument_version(run) is not None else run.accelerate
    place = Location(found[1], found[2]) if found else None
    if place is None and section is not None:
        place = Location(section, ("fsdp_config",), "key")
    if place is None:
        return
    yield Finding(
        place,
        "FSDP saves shards"
        + ("" if found else " (the default of FSDP 2)")
        + ", and `save_only_model: true` refuses them: the Trainer stops",
        "write FULL_STATE_DICT",
        [written(run, "save_only_model")[0]],
        fix=_full_states(run),
        versions=releases(run),
    )


_CHECKPOINTING = ("gradient_checkpointing", "activation_checkpointing")
_BEST = "eval_strategy: steps\nsave_strategy: steps\nload_best_model_at_end: true\nsave_only_model: true\n"


@rule(
    "ZC628",
    "fsdp-best-of-models-only",
    Severity.ERROR,
    bad=recipe_example("fsdp: true\n" + _BEST).finds(
        "error", "recipe.yaml: save_only_model: true", also=("recipe.yaml: load_best_model_at_end: true",)
    ),
    good=recipe_example("fsdp: true\n" + _BEST.replace("save_only_model: true\n", "")),
    proof=crashes("arguments", "FSDP can't be used with `save_only_model` along with `load_best_model_at_end`"),
    consumers=TRAINERS,
    fixable=True,
    references=("transformers/trainer.py@5.23.0",),
)
def fsdp_best_of_models_only(run: Run) -> Iterator[Finding]:
    """`save_only_model` and `load_best_model_at_end` together with FSDP.

    At the end the best checkpoint is to be loaded into the sharded model, and that takes the states that
    `save_only_model` leaves out.

    What happens: `ValueError: FSDP can't be used with save_only_model along with load_best_model_at_end.`, in every
    process, when the Trainer is made.

    Fix: `save_only_model: false` is written; that is a choice.
    """
    if value(run, "save_only_model") is not True or value(run, "load_best_model_at_end") is not True:
        return
    if argument_version(run) is None and fsdp_version(run) is None:
        return
    why = "write save_only_model: false"
    location, related = written(run, "save_only_model", "load_best_model_at_end")
    yield Finding(
        location,
        "with FSDP `save_only_model` and `load_best_model_at_end` exclude each other: the Trainer stops",
        why,
        related,
        fix=set_argument(run, "save_only_model", "false", why),
    )


_COMPARED = {
    "version": "2",
    "reshard_after_forward": "true",
    "state_dict_type": "FULL_STATE_DICT",
    "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
}
"""Keys that the training argument `fsdp` always hands over, with what it hands over when they are not written."""


@rule(
    "ZC629",
    "fsdp-told-twice",
    Severity.ERROR,
    bad=launched(WRAPPED % 1 + "  fsdp_sharding_strategy: FULL_SHARD\n", "fsdp: true\n").finds(
        "error", "accelerate.yaml: fsdp_version: 1", 1, 2, also=("recipe.yaml: fsdp: true",)
    ),
    good=launched(WRAPPED % 1 + "  fsdp_sharding_strategy: FULL_SHARD\n"),
    proof=shows("arguments", {"plugin.fsdp_version": (2, 1)}),
    consumers=TRAINERS,
    fixable=True,
    references=("transformers/training_args.py@5.23.0",),
    versions=ARGUMENTS,
)
def fsdp_told_twice(run: Run) -> Iterator[Finding]:
    """The accelerate config and the training arguments both configure FSDP, and differ.

    What the accelerate config says about versions, sharding, wrapping and saving is replaced without a word, also by
    what the recipe does not mention: its defaults count as said.

    What happens: the training argument `fsdp` makes the plugin anew. Its version (2 unless written), strategy, wrap
    policy and state dict replace those of the accelerate config; only offloading and activation checkpointing of the
    accelerate config remain where the recipe is silent.

    Fix: where the recipe has `fsdp` alone, it is removed, and the accelerate config counts; that is a choice.

    When to ignore: the accelerate config is shared, and the recipe is meant to win.
    """
    version, asked = argument_version(run), argument(run, "fsdp")
    if version is None or asked is None or "ACCELERATE_USE_FSDP" not in run.effective.environment:
        return
    for name, default in _COMPARED.items():
        told = fsdp_key(run, name)
        if told is None or told[2] is None:
            continue
        said = argument_key(run, name)
        here = said[2] if said is not None else default
        if name == "reshard_after_forward" and (version != "2" or str(told[2]).lower() not in ("true", "false")):
            continue
        if str(here).lower() == str(told[2]).lower():
            continue
        yield Finding(
            Location(told[0], told[1]),
            f"`{told[1][-1]}: {show(told[2])}` is replaced by {show(here)}, which the training argument `fsdp` "
            + ("says" if said else "stands for"),
            "say it in one place",
            [Location(said[0], said[1]) if said else asked.at("entry")],
            fix=dropped(run, asked, "remove fsdp") if argument(run, "fsdp_config") is None else None,
        )


def _by_trainer(run: Run) -> tuple[bool, Location | None]:
    """Whether the training arguments checkpoint activations, and where they say so."""
    for name in _CHECKPOINTING:
        asked = value(run, name)
        if asked is not None:
            return asked is True, written(run, name)[0] if asked is True else None
    return run.consumer == "trl" and run.recipe is not None, None


@rule(
    "ZC630",
    "fsdp-checkpointing-twice",
    Severity.ERROR,
    bad=(
        recipe_example(
            "fsdp: true\nfsdp_config:\n  activation_checkpointing: true\ngradient_checkpointing: true\n"
        ).finds(
            "error", "recipe.yaml: gradient_checkpointing: true", also=("recipe.yaml: activation_checkpointing: true",)
        ),
        launched(
            WRAPPED % 2 + "  fsdp_activation_checkpointing: true\n  fsdp_state_dict_type: FULL_STATE_DICT\n",
            "gradient_checkpointing: true\n",
        ).finds(
            "error",
            "recipe.yaml: gradient_checkpointing: true",
            also=("accelerate.yaml: fsdp_activation_checkpointing: true",),
        ),
        Example(
            {"recipe.yaml": RECIPE + "max_length: 64\nfsdp: true\nfsdp_config:\n  activation_checkpointing: true\n"},
            consumer="trl",
        ).finds("error", "recipe.yaml: activation_checkpointing: true"),
    ),
    good=recipe_example("fsdp: true\nfsdp_config:\n  activation_checkpointing: true\n"),
    proof=crashes("arguments", "can't both be set to True"),
    consumers=TRAINERS,
    fixable=True,
    references=("transformers/trainer.py@5.23.0",),
)
def fsdp_checkpointing_twice(run: Run) -> Iterator[Finding]:
    """FSDP and the training arguments both checkpoint activations.

    Each would wrap the layers that the other has wrapped already.

    What happens: `ValueError: fsdp_config['activation_checkpointing'] (FSDP's own activation checkpointing) and the
    activation_checkpointing training argument can't both be set to True.`, in every process, when the Trainer is
    made. `gradient_checkpointing` is the older name of the argument; TRL switches it on by itself.

    Fix: the training argument is set to false, as transformers advises.
    """
    found = _own_checkpointing(run)
    twice, place = _by_trainer(run)
    if found is None or not on(found[2]) or not twice:
        return
    why = "write gradient_checkpointing: false"
    name = next((name for name in _CHECKPOINTING if given(run, name) is not None), _CHECKPOINTING[0])
    fix = set_argument(run, name, "false", "write false" if place is not None else why, safe=True)
    yield Finding(
        place or Location(found[0], found[1]),
        "activations are checkpointed by FSDP and by the training arguments"
        + ("" if place else " (TRL's default)")
        + ": the Trainer stops",
        why,
        [Location(found[0], found[1])] if place else [],
        fix=fix,
        versions=releases(run),
    )


def _own_checkpointing(run: Run) -> tuple[SourceFile, Path, object] | None:
    """FSDP's own checkpointing where it counts: the accelerate config fills what the recipe leaves open."""
    if argument_version(run) is not None:
        return argument_key(run, "activation_checkpointing") or (
            fsdp_key(run, "activation_checkpointing") if "ACCELERATE_USE_FSDP" in run.effective.environment else None
        )
    return fsdp_key(run, "activation_checkpointing") if fsdp_version(run) is not None else None


@rule(
    "ZC631",
    "fsdp-checkpointing-by-trainer",
    Severity.WARNING,
    bad=recipe_example(
        "fsdp: true\nfsdp_config:\n  state_dict_type: FULL_STATE_DICT\ngradient_checkpointing: true\n"
    ).finds("warning", "recipe.yaml: gradient_checkpointing: true"),
    good=recipe_example(
        "fsdp: true\nfsdp_config:\n  state_dict_type: FULL_STATE_DICT\n  activation_checkpointing: true\n"
    ),
    proof=shows("arguments", {"log": logged("introduces a redundant AllGather")}),
    consumers=TRAINERS,
    fixable=True,
    references=("transformers/training_args.py@5.23.0", "huggingface/transformers#30404"),
)
def fsdp_checkpointing_by_trainer(run: Run) -> Iterator[Finding]:
    """The training argument checkpoints activations under FSDP, where FSDP can do it itself.

    Each layer is gathered once more in the backward pass: the bytes on the wire grow by about half.

    What happens: a warning when the training arguments are made: `prefer fsdp_config['activation_checkpointing']
    (FSDP's own activation checkpointing) over the activation_checkpointing training argument; the latter introduces a
    redundant AllGather in the backward pass`. Said only where the recipe asks for it, not for TRL's default, and not
    where the project admits only releases of transformers before 4.33, which hand no such key on.

    Fix: the argument becomes false, and the section that configures FSDP gets `activation_checkpointing: true`; that
    is a choice, because other modules may be checkpointed.

    When to ignore: the model needs checkpointing options that FSDP does not have.
    """
    by_trainer, place = _by_trainer(run)
    own = _own_checkpointing(run)
    if not by_trainer or place is None or (own is not None and on(own[2])):
        return
    if argument_version(run) is None or only_below(run.versions.get("transformers"), "4.33"):
        return
    name = next(name for name in _CHECKPOINTING if value(run, name) is not None)
    yield Finding(
        place,
        f"under FSDP `{name}` gathers every layer once more in the backward pass",
        "use FSDP's own: `activation_checkpointing: true` in `fsdp_config`",
        fix=_checkpoint_by_fsdp(run, place),
    )


def _checkpoint_by_fsdp(run: Run, place: Location) -> Fix | None:
    file, config = run.recipe, recipe_data(run).get("fsdp_config")
    if file is None or file.document is None or place.file is not file or _own_checkpointing(run) is not None:
        return None
    try:
        edits = replace_value(file.document, place.path, "false")
        if isinstance(config, dict) and config:
            edits += insert_entry(file.document, ("fsdp_config",), "activation_checkpointing", "true")
        elif config is None and "fsdp_config" not in recipe_data(run):
            edits += insert_entry(file.document, (), "fsdp_config", "{activation_checkpointing: true}")
        else:
            return None
    except ValueError:
        return None
    return Fix("let FSDP checkpoint the activations", tuple((file, edit) for edit in edits), safe=False)


RULES = (
    fsdp_sharded_weights,
    fsdp_shards_without_states,
    fsdp_best_of_models_only,
    fsdp_told_twice,
    fsdp_checkpointing_twice,
    fsdp_checkpointing_by_trainer,
)
