"""ZC401, ZC402, ZC466 and ZC468: model weights that are not saved after all, and a key that is not needed."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.arguments import given, word
from zerocfg.rules.effects import changed_before, effective_value, stage_of, under_trainer
from zerocfg.rules.key import Key, accelerate, deepspeed, from_origin, setting
from zerocfg.rules.subjects import given_by, in_accelerate
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.run.stages.engine import truth

_ACCELERATE = "zero3_save_16bit_model"
GATHER = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
_NAMES = (
    "stage3_gather_16bit_weights_on_model_save",
    "gather_16bit_weights_on_model_save",
    "stage3_gather_fp16_weights_on_model_save",
)


_TRAINING = frozenset("train fit step backward train_batch training_step learn push_to_hub".split())
"""Methods that train or keep a model, of a Trainer, an engine or an optimizer; beside those called save."""

_GATHERING = frozenset("get_state_dict save_model save_16bit_model GatheredParameters save_checkpoint".split())
"""Methods that gather weights, or save them as they are sharded."""
_ADAPTERS = ("use_peft", "use_lora", "lora_enable", "enable_lora")
"""Arguments of TRL and of many scripts that put an adapter on the model."""
_WEIGHTS = frozenset("get_state_dict save_model save_pretrained save_16bit_model push_to_hub state_dict save".split())
"""Methods that keep the weights by themselves."""


def _quoted_stage(run: Run) -> Key | None:
    """The ZeRO stage of a DeepSpeed JSON when it is a text of digits."""
    key = deepspeed(run, "zero_optimization", "stage")
    return key if isinstance(key.value, str) and key.value.strip().isdigit() else None


def misplaced_gather(run: Run) -> Key | None:
    """DeepSpeed's own key inside the accelerate config, where nobody reads it."""
    section = accelerate(run, "deepspeed_config")
    return next((section[name] for name in _NAMES if section.get(name) is True and _ACCELERATE not in section), None)


@rule("ZC401", "weights-not-saved", Severity.ERROR, WHOLE_RUN)
def weights_not_saved(run: Run) -> Iterator[Finding]:
    stage, gather = effective_value(run, "zero_optimization.stage"), effective_value(run, GATHER)
    if _quoted_stage(run) or stage is UNKNOWN or stage != 3 or gather is UNKNOWN or truth(gather):
        return
    if any(deepspeed(run, "zero_optimization", name).on for name in _NAMES):
        return  # DeepSpeed knows all three, whoever hands it the config
    if changed_before(run) or _never_saves(run) or _saves_sharded(run):
        return
    if run.consumer is None and (run.elsewhere.keeps_shards or run.elsewhere.lightning):
        return
    lost, chosen = misplaced_gather(run), setting(run, "zero_optimization.stage")
    key = lost or _gather_key(run)
    place = key if key else chosen  # a key that is absent is at the stage that needs it
    why = "gather the weights on save"
    if lost:
        fix = lost.rename(_ACCELERATE, "write accelerate's name of the key")
    else:
        fix = key.set("true", why) if key is not None else None
    yield place.finding(
        f"{_cause(place, lost)}: {_consequence(run)}",
        _remedy(run) + _way_to_save(run),
        [chosen.at(label="stage 3 is chosen here")] if key and chosen.origin.file is not None else [],
        fix,
        severity=None
        if lost or under_trainer(run)
        else Severity.NOTE
        if run.consumer == "deepspeed"
        else Severity.WARNING,
        versions="transformers<5.0.0" if _trains_adapter(run) else "",
    )


def _never_saves(run: Run) -> bool:
    """Whether the run trains nothing that is known: its script does not, or lets another framework do it, or the config
    of which nobody knows who reads it says by its name that it is there for inference."""
    script = run.script
    if script is not None and script.foreign:
        return True
    if script is not None and script.whole and script.methods:
        saves = any(name.startswith("save") or name == "push_to_hub" for name in script.methods)
        if under_trainer(run) and word(run, "save_strategy") == "no":
            return not saves
        if not saves and not any(name in _TRAINING for name in script.methods):
            return True
        # `save_state` alone writes what is sharded as it is, and resumes from it
        return run.consumer == "accelerate" and "save_state" in script.methods and not script.methods & _WEIGHTS
    file = run.deepspeed or run.accelerate
    return run.consumer is None and file is not None and "infer" in file.name.lower()


def _trains_adapter(run: Run) -> bool:
    """Whether an argument says that an adapter is trained, of which the Trainer saves all weights since transformers
    5.0. Of a config without a known reader the scripts of its project show it."""
    if run.consumer is None:
        return run.elsewhere.adapters
    if not under_trainer(run):
        return False
    written = (argument for name in _ADAPTERS if (argument := given(run, name)) is not None)
    return any(argument.value is True or str(argument.value).lower() in ("true", "1") for argument in written)


def _saves_sharded(run: Run) -> bool:
    """Whether ZC468 says how the script has to save, and which key that needs."""
    return run.consumer == "accelerate" and run.script is not None and run.script.saves_sharded is not None


def _gather_key(run: Run) -> Key | None:
    """The key that should say true, under the name that is written."""
    if run.deepspeed is not None:
        zero = deepspeed(run, "zero_optimization")
        return next((zero[name] for name in _NAMES if name in zero), zero[_NAMES[0]])
    section = accelerate(run, "deepspeed_config")
    return section[_ACCELERATE] if section.section else None


def _cause(place: Key, lost: Key | None) -> str:
    if lost:
        return f"ZeRO stage 3, and accelerate does not read `{lost.name}`"
    name = place.name if place.path else ""
    if not ("gather" in name or name == _ACCELERATE) or isinstance(place.value, (dict, list)):
        return "ZeRO stage 3 without gathering the weights on save"
    if place.value is False:
        return f"ZeRO stage 3 with `{name}: false`"
    if place.value == "auto":
        return f'ZeRO stage 3, and `{name}: "auto"` becomes false'
    return f"ZeRO stage 3, and `{name}: {show(place.value)}` does not count as true"


def _consequence(run: Run) -> str:
    if under_trainer(run):
        return "the Trainer writes sharded states but no model weights, not even at the end"
    if run.consumer == "accelerate":
        return "accelerator.get_state_dict() and save_model() raise, save_pretrained() alone writes empty tensors"
    if run.consumer == "deepspeed":
        return "engine.save_16bit_model() writes nothing"
    return (
        "a Trainer writes no model weights, accelerator.save_model() raises, engine.save_16bit_model() writes nothing"
    )


def _remedy(run: Run) -> str:
    if run.deepspeed is None and run.accelerate is not None:
        return "write `zero3_save_16bit_model: true` in `deepspeed_config`"
    return f'write "{_NAMES[0]}": true in zero_optimization'


def _way_to_save(run: Run) -> str:
    """What else has to change in a script that saves by `save_pretrained` alone: of a sharded model it writes empty
    tensors, whatever the config says."""
    methods = run.script.methods if run.script is not None and run.script.whole else frozenset[str]()
    if run.consumer != "accelerate" or "save_pretrained" not in methods or methods & _GATHERING:
        return ""
    return ", and call save_pretrained(..., state_dict=accelerator.get_state_dict(model)): it gathers nothing by itself"


@rule("ZC468", "saved-without-gathering", Severity.ERROR, WHOLE_RUN, consumers={"accelerate", "transformers"})
def saved_without_gathering(run: Run) -> Iterator[Finding]:
    saved = run.script.saves_sharded if run.script is not None else None
    gather = effective_value(run, GATHER)
    if saved is None or stage_of(run) != 3 or gather is UNKNOWN or effective_value(run, "engine") != "deepspeed":
        return
    trainer = run.consumer == "transformers"
    if trainer and not truth(gather):
        return  # ZC401 says that nothing at all is saved
    needed = "" if truth(gather) else f", and {_remedy(run)}, which get_state_dict needs"
    instead = f"give it state_dict=accelerator.get_state_dict(model), called on every process{needed}"
    chosen = setting(run, "zero_optimization.stage")
    yield from_origin(run, saved).finding(
        "at ZeRO stage 3 every process holds a part of the model, and `save_pretrained` gathers nothing: it writes "
        "tensors without elements, and says nothing",
        "call save_model of the Trainer instead, on every process" if trainer else instead,
        [chosen.at(label="stage 3 is chosen here")] if chosen.origin.file is not None else [],
    )


@rule("ZC402", "quoted-stage", Severity.ERROR, given_by(_quoted_stage))
def stage_in_quotes(key: Key) -> Iterator[Finding]:
    if key.run.consumer == "deepspeed":
        return
    stage = key.value.strip()
    cost = "saved weights are empty" if stage == "3" else "comparisons with the number fail"
    who = "" if key.run.consumer else "under transformers or accelerate, which compare it with a number, "
    yield key.finding(
        f"the stage is the text {show(key.value)}, not the number {stage}: {who}{cost}",
        "write the number without quotes",
        fix=key.replace(stage, "write the number"),
        where="value",
        severity=None if stage == "3" else Severity.WARNING,
    )


@rule("ZC466", "gather-key-without-stage-3", Severity.NOTE, in_accelerate("deepspeed_config", _ACCELERATE))
def gather_key_without_stage_3(key: Key) -> Iterator[Finding]:
    stage = stage_of(key.run)
    if key.value is not True or stage not in (0, 1, 2) or key.run.deepspeed is not None:
        return
    if effective_value(key.run, "engine") == "deepspeed":
        yield key.finding(
            f"`{key.name}` has no effect at stage {stage}, where every process holds all weights",
            "leave it out",
            fix=key.delete("remove the key without effect"),
        )
