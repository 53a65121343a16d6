"""ZC8xx: how the Trainer loads, compiles and checkpoints the model."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.argument_reader import reader, values_arrive
from zerocfg.rules.arguments import called, drop_argument, given, set_argument, under_deepspeed, value, word, written
from zerocfg.rules.effects import stage_of
from zerocfg.rules.fixes import together
from zerocfg.run.model import Loading, Run

_CHECKPOINTING = ("gradient_checkpointing", "activation_checkpointing")
"""The former name of the switch and its present one."""


@rule("ZC814", "compiled-all-the-same", Severity.ERROR)
def compiled_all_the_same(run: Run) -> Iterator[Finding]:
    names = [name for name in ("torch_compile_backend", "torch_compile_mode") if word(run, name)]
    if values_arrive(run) and value(run, "torch_compile") is False and names:
        gone = "remove " + " and ".join(called(run, name) for name in names)
        yield written(run, "torch_compile", *names).finding(
            f"`{called(run, 'torch_compile')}: false`, but `{called(run, names[0])}` is written, which turns "
            "compilation on again",
            gone,
            together(gone, *(drop_argument(run, name, "") for name in names)),
        )


@rule("ZC815", "checkpointing-two-names", Severity.ERROR, versions="transformers>=5.23")
def checkpointing_two_names(run: Run) -> Iterator[Finding]:
    old, new = (value(run, name) for name in _CHECKPOINTING)
    if reader(run) is None or not isinstance(old, bool) or not isinstance(new, bool) or old is new:
        return
    fixes = [drop_argument(run, "gradient_checkpointing", "")]
    fixes += [] if new else [set_argument(run, "activation_checkpointing", "true", "")]
    yield written(run, *_CHECKPOINTING).finding(
        f"`gradient_checkpointing: {show(old)}` is not used: `activation_checkpointing: {show(new)}` is the same "
        "setting under its new name, and it counts",
        "keep one of the two",
        together("switch it on under the new name alone", *fixes, safe=False),
    )


@rule("ZC816", "checkpointing-options-unused", Severity.WARNING, consumers={"transformers"})
def checkpointing_options_unused(run: Run) -> Iterator[Finding]:
    switch = next((name for name in _CHECKPOINTING if value(run, f"{name}_kwargs")), None)
    if reader(run) != "transformers" or switch is None or any(given(run, name) is not None for name in _CHECKPOINTING):
        return
    options = f"{switch}_kwargs"
    yield written(run, options).finding(
        f"`{options}` has no effect: checkpointing is off unless `{switch}` is true",
        f"write `{switch}: true`, or remove this",
        set_argument(run, switch, "true", "switch checkpointing on", after=options),
    )


@rule("ZC826", "device-map-with-stage-3", Severity.ERROR, consumers={"transformers"})
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


@rule("ZC871", "model-loaded-before-arguments", Severity.WARNING, consumers={"transformers", "trl"})
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
