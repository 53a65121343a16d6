"""Chooses the precision of a run where no source sets one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from zerocfg.resolve.engine.open_engines import TRAINERS
from zerocfg.resolve.plan import Decision
from zerocfg.resolve.search.apply_choice import apply_to_recipe, in_engine, with_chosen
from zerocfg.resolve.search.candidates import is_set
from zerocfg.run.model import Origin, Setting
from zerocfg.run.resolve_settings import resolve_settings

if TYPE_CHECKING:
    from zerocfg.resolve.inputs import Inputs

HALVES = ("bf16", "fp16")


def with_precision(inputs: Inputs) -> Inputs:
    """bf16 where the device supports it, else fp16; only where no source sets either."""
    profile, run = inputs.profile, inputs.run
    if profile is None or profile.accelerator.vendor == "cpu" or profile.accelerator.bf16 is None:
        return inputs
    before = resolve_settings(run)
    recipe = run.recipe.data() if run.recipe else None
    said = {**(recipe if isinstance(recipe, dict) else {}), **run.arguments}
    names = ("mixed_precision", "bf16.enabled", "fp16.enabled")
    if any(name in said for name in HALVES):
        return inputs
    if any(is_set(before.get(name)) for name in names):
        for half in HALVES:
            if run.consumer in TRAINERS and run.recipe is not None and before.value(f"{half}.enabled") is True:
                # The Trainer compares its own argument with the engine's key.
                inputs = apply_to_recipe(inputs, half, Decision(True, f"as {half}.enabled of the engine", "computed"))
        return inputs
    device = profile.accelerator
    half = "bf16" if device.bf16 else "fp16"
    how = "computes in" if device.bf16 else "cannot compute in bf16, but in"
    one = Decision(True, f"zerocfg's choice: {device.name} {how} {half}", "chosen", inputs={"accelerator": device.name})
    if run.consumer in TRAINERS:
        if run.recipe is None:
            return inputs
        inputs = apply_to_recipe(inputs, half, one)
        if run.consumer == "trl" and half == "fp16":
            inputs = apply_to_recipe(inputs, "bf16", Decision(False, "fp16 is on", "computed"))
        if run.deepspeed is not None:
            inputs = in_engine(inputs, {f"{half}.enabled": one})
        return with_chosen(inputs, {f"{half}.enabled": one}) if inputs.engine == "deepspeed" else inputs
    if run.consumer == "deepspeed":
        return with_chosen(in_engine(inputs, {f"{half}.enabled": one}), {f"{half}.enabled": one})
    flags = {**run.flags, "mixed_precision": Setting(half, Origin("computed", one.reason))}
    inputs = replace(inputs, run=replace(run, flags=flags))
    return in_engine(inputs, {f"{half}.enabled": one}) if run.deepspeed is not None else inputs
