"""ZC8xx: how the Trainer loads, compiles and checkpoints the model."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import WHOLE_RUN, Finding, Location, Severity, rule
from zerocfg.rules.argument_reader import reader
from zerocfg.rules.arguments import (
    ARRIVING_ARGUMENTS,
    KNOWN_ARGUMENTS,
    TRAINING_ARGUMENTS,
    ArgumentsOfRun,
    drop_argument,
    under_deepspeed,
    value,
    written,
)
from zerocfg.rules.effects import stage_of
from zerocfg.rules.fixes import together
from zerocfg.run.model import Loading, Run

_CHECKPOINTING = ("gradient_checkpointing", "activation_checkpointing")
"""The former name of the switch and its present one."""


@rule("ZC814", "compiled-all-the-same", Severity.ERROR, ARRIVING_ARGUMENTS)
def compiled_all_the_same(given: ArgumentsOfRun) -> Iterator[Finding]:
    names = [name for name in ("torch_compile_backend", "torch_compile_mode") if given.word(name)]
    if given.value("torch_compile") is False and names:
        gone = "remove " + " and ".join(map(given.called, names))
        yield given.written("torch_compile", *names).finding(
            f"`{given.called('torch_compile')}: false`, but `{given.called(names[0])}` is written, which turns "
            "compilation on again",
            gone,
            together(gone, *(given.drop(name, "") for name in names)),
        )


@rule("ZC815", "checkpointing-two-names", Severity.ERROR, KNOWN_ARGUMENTS, versions="transformers>=5.23")
def checkpointing_two_names(given: ArgumentsOfRun) -> Iterator[Finding]:
    old, new = (given.value(name) for name in _CHECKPOINTING)
    if not isinstance(old, bool) or not isinstance(new, bool) or old is new:
        return
    fixes = [given.drop("gradient_checkpointing", "")]
    fixes += [] if new else [given.set("activation_checkpointing", "true", "")]
    yield given.written(*_CHECKPOINTING).finding(
        f"`gradient_checkpointing: {show(old)}` is not used: `activation_checkpointing: {show(new)}` is the same "
        "setting under its new name, and it counts",
        "keep one of the two",
        together("switch it on under the new name alone", *fixes, safe=False),
    )


@rule("ZC816", "checkpointing-options-unused", Severity.WARNING, TRAINING_ARGUMENTS, consumers={"transformers"})
def checkpointing_options_unused(given: ArgumentsOfRun) -> Iterator[Finding]:
    switch = next((name for name in _CHECKPOINTING if given.value(f"{name}_kwargs")), None)
    if (
        given.reader != "transformers"
        or switch is None
        or any(given.given(name) is not None for name in _CHECKPOINTING)
    ):
        return
    options = f"{switch}_kwargs"
    yield given.written(options).finding(
        f"`{options}` has no effect: checkpointing is off unless `{switch}` is true",
        f"write `{switch}: true`, or remove this",
        given.set(switch, "true", "switch checkpointing on", after=options),
    )


@rule("ZC826", "device-map-with-stage-3", Severity.ERROR, WHOLE_RUN, consumers={"transformers"})
def device_map_with_stage_3(run: Run) -> Iterator[Finding]:
    yield from _device_map_in_call(run)
    placement = value(run, "device_map")
    if reader(run) != "transformers" or stage_of(run) != 3 or not under_deepspeed(run):
        return
    if isinstance(placement, (str, dict)) and placement and placement != "null":
        yield written(run, "device_map").finding(
            "`device_map` and ZeRO stage 3 exclude each other; from_pretrained stops at it",
            "remove device_map",
            drop_argument(run, "device_map", "remove device_map", safe=True),
        )


def _device_map_in_call(run: Run) -> Iterator[Finding]:
    """The same in the `from_pretrained` of a script, after the arguments that make stage 3 known to it."""
    loading = _loading_for_stage_3(run)
    placement = loading.device_map if loading is not None and not loading.first else None
    if placement is not None and placement.known and placement.value is not None and placement.origin.file is not None:
        yield Finding(
            Location(placement.origin.file, span=placement.origin.span),
            "`device_map` and ZeRO stage 3 exclude each other; from_pretrained stops at it",
            "remove device_map",
        )


@rule("ZC871", "model-loaded-before-arguments", Severity.WARNING, WHOLE_RUN, consumers={"transformers", "trl"})
def model_loaded_before_arguments(run: Run) -> Iterator[Finding]:
    loading = _loading_for_stage_3(run)
    if loading is None or not loading.first or loading.origin.file is None:
        return
    also = ", without a device_map: from_pretrained refuses it at stage 3" if loading.device_map is not None else ""
    yield Finding(
        Location(loading.origin.file, span=loading.origin.span),
        "the model is loaded before the arguments of the Trainer exist, so ZeRO stage 3 does not shard it while it "
        "loads: every process holds the whole model in its memory",
        f"make the arguments first, then load the model{also}",
    )


def _loading_for_stage_3(run: Run) -> Loading | None:
    loading = run.script.loading if run.script is not None else None
    return loading if loading is not None and stage_of(run) == 3 and under_deepspeed(run) else None
