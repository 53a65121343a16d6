"""ZC6xx: FSDP together with the training arguments and the model."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.catalog.versions import only_below
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Location, Severity, rule
from zerocfg.rules.arguments import argument, dropped, given, set_argument, value, written
from zerocfg.rules.effects import TRAINERS, recipe_data
from zerocfg.rules.fsdp.plugin import (
    ARGUMENTS,
    argument_key,
    argument_version,
    fsdp_argument,
    fsdp_key,
    fsdp_setting,
    fsdp_version,
    on,
    releases,
    whole_states,
)
from zerocfg.rules.key import Key, accelerate, recipe
from zerocfg.rules.line import is_page
from zerocfg.rules.release_scope import among
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.source.edit import insert_entry, replace_value

_STATES = "state_dict_type"
_GATHERING = frozenset(("set_state_dict_type", "summon_full_params"))


@rule("ZC607", "fsdp-sharded-weights", Severity.WARNING, WHOLE_RUN, consumers=TRAINERS)
def fsdp_sharded_weights(run: Run) -> Iterator[Finding]:
    if value(run, "save_only_model") is True:
        return  # ZC627
    script = run.script
    if script is not None and (_GATHERING & script.methods or "state_dict_type" in script.assigned):
        return
    if script is None and run.launch_file is not None and is_page(run.launch_file):
        return
    version, by_argument = fsdp_version(run), argument_version(run)
    if by_argument is None and version is None:
        return
    key = argument_key(run, _STATES) if by_argument is not None else fsdp_key(run, _STATES)
    why, word = "write FULL_STATE_DICT", str(key.value).upper() if key is not None else ""
    whole, merge = whole_states(run, by_argument or version), "run `accelerate merge-weights` afterwards"
    if key is not None and word == "SHARDED_STATE_DICT":
        yield key.finding(
            "with SHARDED_STATE_DICT the Trainer writes shards but no model.safetensors",
            f"{why}, or {merge}" if whole else merge,
            fix=key.replace("FULL_STATE_DICT", why, safe=False) if whole else None,
            where="value",
        )
    elif key is not None and word == "LOCAL_STATE_DICT" and (by_argument or version) == "1":
        yield key.finding(
            "with LOCAL_STATE_DICT the Trainer writes each process's piece into checkpoints and no model.safetensors",
            why,
            fix=key.replace("FULL_STATE_DICT", why, safe=False),
            where="value",
        )
    elif key is None and version == "2" and by_argument is None and run.accelerate is not None and _from_file(run):
        section = accelerate(run, "fsdp_config")
        yield section.finding(
            "FSDP 2 saves with SHARDED_STATE_DICT unless told otherwise: the Trainer writes shards but no "
            "model.safetensors",
            "write `fsdp_state_dict_type: FULL_STATE_DICT`" if whole else merge,
            fix=section[f"fsdp_{_STATES}"].set("FULL_STATE_DICT", why, safe=False) if whole else None,
            where="key",
        )


def _from_file(run: Run) -> bool:
    """Whether nothing but the accelerate config speaks of the state dict."""
    return "FSDP_STATE_DICT_TYPE" not in run.effective.environment


def _saves_shards(run: Run) -> bool:
    """Whether FSDP runs and saves its states as shards."""
    found = fsdp_setting(run, _STATES)
    if found is not None:
        return str(found[1].value).upper() == "SHARDED_STATE_DICT"
    return argument_version(run) is None and fsdp_version(run) == "2" and _from_file(run)


@rule("ZC627", "fsdp-shards-without-states", Severity.ERROR, WHOLE_RUN, consumers=TRAINERS)
def fsdp_shards_without_states(run: Run) -> Iterator[Finding]:
    if value(run, "save_only_model") is not True or not _saves_shards(run):
        return
    found = fsdp_setting(run, _STATES)
    by_argument = argument_version(run) is not None
    if found is None and (run.recipe if by_argument else run.accelerate) is None:
        return
    key = found[1] if found else (recipe if by_argument else accelerate)(run, "fsdp_config")
    states = found[1] if found else accelerate(run, "fsdp_config", f"fsdp_{_STATES}")
    whole = whole_states(run, found[0] if found else "2")
    yield key.finding(
        "FSDP saves shards"
        + ("" if found else " (the default of FSDP 2)")
        + ", and `save_only_model: true` refuses them: the Trainer stops",
        "write FULL_STATE_DICT" if whole else "remove `save_only_model`",
        [written(run, "save_only_model")[0]],
        states.set("FULL_STATE_DICT", "write FULL_STATE_DICT", safe=False) if whole else None,
        where="entry" if found else "key",
        versions=releases(run),
    )


_CHECKPOINTING = ("gradient_checkpointing", "activation_checkpointing")
_TRL_CHECKPOINTS = "trl>=0.22"
"""From then on TRL's arguments checkpoint activations unless they say otherwise."""


@rule("ZC628", "fsdp-best-of-models-only", Severity.ERROR, WHOLE_RUN, consumers=TRAINERS)
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


@rule("ZC629", "fsdp-told-twice", Severity.ERROR, WHOLE_RUN, consumers=TRAINERS, versions=ARGUMENTS)
def fsdp_told_twice(run: Run) -> Iterator[Finding]:
    version, asked = argument_version(run), argument(run, "fsdp")
    if version is None or asked is None or "ACCELERATE_USE_FSDP" not in run.effective.environment:
        return
    for name, default in _COMPARED.items():
        key, said = fsdp_key(run, name), argument_key(run, name)
        if key is None or key.value is None:
            continue
        here, there = said.value if said is not None else default, str(key.value).lower()
        if name == "reshard_after_forward" and (version != "2" or there not in ("true", "false")):
            continue
        if str(here).lower() == there:
            continue
        yield key.finding(
            f"`{key.name}: {show(key.value)}` is replaced by {show(here)}, which the training argument `fsdp` "
            + ("says" if said else "stands for"),
            "say it in one place",
            [said or asked.at("entry")],
            dropped(run, asked, "remove fsdp") if argument(run, "fsdp_config") is None else None,
        )


def _by_trainer(run: Run) -> tuple[bool, Location | None]:
    """Whether the training arguments checkpoint activations, and where they say so."""
    for name in _CHECKPOINTING:
        asked = value(run, name)
        if asked is not None:
            return asked is True, written(run, name)[0] if asked is True else None
    return run.consumer == "trl" and run.recipe is not None and among(_TRL_CHECKPOINTS, run) is not None, None


@rule("ZC630", "fsdp-checkpointing-twice", Severity.ERROR, WHOLE_RUN, consumers=TRAINERS)
def fsdp_checkpointing_twice(run: Run) -> Iterator[Finding]:
    key, (twice, place) = _own_checkpointing(run), _by_trainer(run)
    if key is None or not on(key.value) or not twice:
        return
    why = "write gradient_checkpointing: false"
    name = next((name for name in _CHECKPOINTING if given(run, name) is not None), _CHECKPOINTING[0])
    yield Finding(
        place or key.at(),
        "activations are checkpointed by FSDP and by the training arguments"
        + ("" if place else " (TRL's default)")
        + ": the Trainer stops",
        why,
        [key.at()] if place else [],
        set_argument(run, name, "false", "write false" if place is not None else why, safe=True),
        versions=_TRL_CHECKPOINTS if place is None else releases(run) if key.file is run.accelerate else "",
    )


def _own_checkpointing(run: Run) -> Key | None:
    """FSDP's own checkpointing where it counts: the accelerate config fills what the recipe leaves open."""
    name, config = "activation_checkpointing", argument(run, "fsdp_config")
    if argument_version(run) is not None:
        return argument_key(run, name) or (
            fsdp_key(run, name) if "ACCELERATE_USE_FSDP" in run.effective.environment else None
        )
    if among(ARGUMENTS, run) is None and fsdp_argument(run) not in (None, UNKNOWN, "", False):
        return argument_key(run, name) if config is not None and config.origin.path else None
    return fsdp_key(run, name) if fsdp_version(run) is not None else None


@rule("ZC631", "fsdp-checkpointing-by-trainer", Severity.WARNING, WHOLE_RUN, consumers=TRAINERS)
def fsdp_checkpointing_by_trainer(run: Run) -> Iterator[Finding]:
    by_trainer, place = _by_trainer(run)
    own = _own_checkpointing(run)
    if not by_trainer or place is None or (own is not None and on(own.value)):
        return
    if argument_version(run) is None or only_below(run.declared("transformers"), "4.33"):
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
