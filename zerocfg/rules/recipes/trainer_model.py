"""ZC8xx: how the Trainer loads, compiles and checkpoints the model."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.arguments import (
    drop_argument,
    given,
    reader,
    set_argument,
    under_deepspeed,
    value,
    word,
    written,
)
from zerocfg.rules.effects import stage_of
from zerocfg.rules.fixes import together
from zerocfg.run.model import Run


@rule("ZC814", "compiled-all-the-same", Severity.ERROR)
def compiled_all_the_same(run: Run) -> Iterator[Finding]:
    if reader(run) is None or value(run, "torch_compile") is not False:
        return
    names = [name for name in ("torch_compile_backend", "torch_compile_mode") if word(run, name)]
    if not names:
        return
    location, related = written(run, "torch_compile", *names)
    gone = "remove " + " and ".join(names)
    yield Finding(
        location,
        f"`torch_compile: false`, but `{names[0]}` is written, which turns compilation on again",
        gone,
        related,
        together(gone, *(drop_argument(run, name, "") for name in names)),
    )


@rule("ZC815", "checkpointing-two-names", Severity.ERROR, versions="transformers>=5.23")
def checkpointing_two_names(run: Run) -> Iterator[Finding]:
    old, new = value(run, "gradient_checkpointing"), value(run, "activation_checkpointing")
    if reader(run) is None or not isinstance(old, bool) or not isinstance(new, bool) or old is new:
        return
    location, related = written(run, "gradient_checkpointing", "activation_checkpointing")
    fixes = [drop_argument(run, "gradient_checkpointing", "")]
    fixes += [] if new else [set_argument(run, "activation_checkpointing", "true", "")]
    yield Finding(
        location,
        f"`gradient_checkpointing: {_yaml(old)}` is not used: `activation_checkpointing: {_yaml(new)}` is the same "
        "setting under its new name, and it counts",
        "keep one of the two",
        related,
        together("switch it on under the new name alone", *fixes, safe=False),
    )


def _yaml(value: object) -> str:
    return str(value).lower()


@rule("ZC816", "checkpointing-options-unused", Severity.WARNING, consumers={"transformers"})
def checkpointing_options_unused(run: Run) -> Iterator[Finding]:
    if reader(run) != "transformers":
        return
    names = [name for name in ("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs") if value(run, name)]
    switches = ("gradient_checkpointing", "activation_checkpointing")
    if not names or any(given(run, name) is not None for name in switches):
        return
    location, related = written(run, names[0])
    yield Finding(
        location,
        f"`{names[0]}` has no effect: checkpointing is off unless `{names[0].removesuffix('_kwargs')}` is true",
        f"write `{names[0].removesuffix('_kwargs')}: true`, or remove this",
        related,
        set_argument(run, names[0].removesuffix("_kwargs"), "true", "switch checkpointing on", after=names[0]),
    )


@rule("ZC826", "device-map-with-stage-3", Severity.ERROR, consumers={"transformers"})
def device_map_with_stage_3(run: Run) -> Iterator[Finding]:
    held = value(run, "device_map")
    if reader(run) != "transformers" or stage_of(run) != 3 or not under_deepspeed(run):
        return
    if not isinstance(held, (str, dict)) or not held or held == "null":
        return
    location, related = written(run, "device_map")
    yield Finding(
        location,
        "`device_map` and ZeRO stage 3 exclude each other; from_pretrained stops at it",
        "remove device_map",
        related,
        drop_argument(run, "device_map", "remove device_map", safe=True),
    )
