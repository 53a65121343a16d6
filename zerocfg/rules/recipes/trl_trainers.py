"""ZC8xx: what a script gives to TRL's trainers."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.signatures import parameters
from zerocfg.catalog.versions import only_below
from zerocfg.rules.api import WHOLE_RUN, Finding, Location, Severity, at, rule
from zerocfg.rules.arguments import given, value
from zerocfg.rules.effects import effective_value
from zerocfg.rules.release_scope import among
from zerocfg.rules.subjects import EACH_CALL, CallOfRun
from zerocfg.run.model import Call, Origin, Run

_TRAINERS = ("trl.SFTTrainer", "trl.DPOTrainer")
_CHECKPOINTING = ("gradient_checkpointing", "activation_checkpointing")
_CHECKPOINTS_BY_DEFAULT = "trl>=0.22"


@rule("ZC872", "adapter-checkpoints-reentrant", Severity.ERROR, WHOLE_RUN, consumers={"trl"})
def adapter_checkpoints_reentrant(run: Run) -> Iterator[Finding]:
    call = _adapter_trainer(run)
    if call is None or not _under_ddp(run) or not _looks_for_unused_parameters(run):
        return
    checkpointing, reentrant = _checkpointing(run), _reentrant(run)
    if checkpointing is None or reentrant is None:
        return
    places = [_location(origin) for origin in (reentrant, checkpointing, call.arguments["peft_config"].origin)]
    location, *related = [place for place in places if place is not None]
    why = "" if reentrant.kind != "default" else f", which is {reentrant.note}"
    yield Finding(
        location,
        f"an adapter under DDP with reentrant activation checkpointing{why}: the first backward pass stops "
        "(`Expected to mark a variable ready only once`), because the Trainer has DDP look for unused parameters",
        'write gradient_checkpointing_kwargs={"use_reentrant": False}, or ddp_find_unused_parameters=False',
        related,
    )


def _adapter_trainer(run: Run) -> Call | None:
    """The one call of a trainer of TRL in the script, where it certainly makes an adapter of the model."""
    calls = [call for call in run.script.calls if call.name.endswith("Trainer")] if run.script is not None else []
    if len(calls) != 1 or calls[0].name not in _TRAINERS or calls[0].derived or calls[0].guarded:
        return None
    (call,) = calls
    made = call.objects.get("peft_config", "")
    by_options = made == "trl.get_peft_config" and value(run, "use_peft") is True
    return (
        call if run.arguments_whole and (by_options or (made.startswith("peft.") and made.endswith("Config"))) else None
    )


def _under_ddp(run: Run) -> bool:
    processes = effective_value(run, "num_processes")
    return effective_value(run, "engine") == "ddp" and isinstance(processes, int) and processes > 1


def _looks_for_unused_parameters(run: Run) -> bool:
    """The Trainer lets DDP do so for every model that is no PreTrainedModel; an adapter around one is none."""
    return given(run, "ddp_static_graph") is None and value(run, "ddp_find_unused_parameters", True) in (None, True)


def _checkpointing(run: Run) -> Origin | None:
    """Where checkpointing is switched on; None where it is off, or not known."""
    for name in _CHECKPOINTING:
        setting = given(run, name)
        if setting is not None:
            return setting.origin if setting.value is True else None
    return Origin("default") if among(_CHECKPOINTS_BY_DEFAULT, run) == "" else None


def _reentrant(run: Run) -> Origin | None:
    """Where the reentrant form is chosen; None where it is not, or not known."""
    for name in _CHECKPOINTING:
        setting = given(run, f"{name}_kwargs")
        if setting is not None and setting.value is not None:
            options = setting.value
            return setting.origin if isinstance(options, dict) and options.get("use_reentrant") is True else None
    older = only_below(run.declared("transformers"), "5.0") and only_below(run.declared("trl"), "0.27")
    return Origin("default", "the default of transformers before 5.0") if older else None


def _location(origin: Origin) -> Location | None:
    return at(origin) if origin.kind != "default" else None


@rule("ZC873", "samples-cut-by-default", Severity.NOTE, EACH_CALL, consumers={"trl"}, versions="trl>=0.15")
def samples_cut_by_default(made: CallOfRun) -> Iterator[Finding]:
    call, given = made.call, made.call.objects.get("args")
    if call.name != "trl.SFTTrainer" or call.derived or call.guarded or given != "transformers.TrainingArguments":
        return
    if not call.arguments.keys() <= parameters("trl", "SFTTrainer"):
        return  # written for older releases, which ZC870 says
    place = _location(call.arguments["args"].origin)
    if place is not None:
        yield Finding(
            place,
            "SFTTrainer makes an SFTConfig of TrainingArguments, with the default length of 1024 tokens: longer "
            "samples are silently cut",
            "make an SFTConfig, and choose its max_length",
        )
