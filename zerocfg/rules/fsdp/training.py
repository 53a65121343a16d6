"""ZC6xx: FSDP together with the training arguments and the model."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.catalog.versions import only_below
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.arguments import argument, dropped, given, set_argument, value, written
from zerocfg.rules.effects import TRAINERS, recipe_data
from zerocfg.rules.fixes import edited
from zerocfg.rules.fsdp.plugin import (
    ARGUMENTS,
    argument_key,
    argument_version,
    fsdp_key,
    fsdp_setting,
    fsdp_version,
    on,
    releases,
)
from zerocfg.rules.line import is_page
from zerocfg.run.model import Run, SourceFile
from zerocfg.source.edit import insert_entry, replace_value
from zerocfg.source.node import Path

_GATHERING = frozenset(("set_state_dict_type", "summon_full_params"))


@rule("ZC607", "fsdp-sharded-weights", Severity.WARNING, consumers=TRAINERS)
def fsdp_sharded_weights(run: Run) -> Iterator[Finding]:
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


@rule("ZC627", "fsdp-shards-without-states", Severity.ERROR, consumers=TRAINERS)
def fsdp_shards_without_states(run: Run) -> Iterator[Finding]:
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


@rule("ZC628", "fsdp-best-of-models-only", Severity.ERROR, consumers=TRAINERS)
def fsdp_best_of_models_only(run: Run) -> Iterator[Finding]:
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


@rule("ZC629", "fsdp-told-twice", Severity.ERROR, consumers=TRAINERS, versions=ARGUMENTS)
def fsdp_told_twice(run: Run) -> Iterator[Finding]:
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


@rule("ZC630", "fsdp-checkpointing-twice", Severity.ERROR, consumers=TRAINERS)
def fsdp_checkpointing_twice(run: Run) -> Iterator[Finding]:
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


@rule("ZC631", "fsdp-checkpointing-by-trainer", Severity.WARNING, consumers=TRAINERS)
def fsdp_checkpointing_by_trainer(run: Run) -> Iterator[Finding]:
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
