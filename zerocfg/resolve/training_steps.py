"""Counts the optimizer steps of a training whose recipe gives epochs and whose spec gives the number of samples."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocfg.resolve.plan import Problem
from zerocfg.run.model import Origin, Setting
from zerocfg.run.stages.arguments import arguments_of
from zerocfg.run.stages.process_counts import launch_of

if TYPE_CHECKING:
    from zerocfg.resolve.inputs import Inputs


def with_steps(inputs: Inputs) -> Inputs:
    """The inputs with max_steps as the Trainer computes it.

    To be called once batch and ranks are chosen: the count follows from both. The Trainer's arithmetic:
    transformers/trainer.py, `set_initial_training_values`.
    """
    run, samples = inputs.run, inputs.spec.train_samples
    ranks = launch_of(run).num_processes.value
    if run.consumer not in ("transformers", "trl") or samples is None or not isinstance(ranks, int) or ranks < 1:
        return inputs
    arguments = arguments_of(run)
    given: dict[str, Any] = {
        name: arguments.get(name)
        for name in (
            "max_steps",
            "num_train_epochs",
            "per_device_train_batch_size",
            "gradient_accumulation_steps",
        )
    }
    if not all(isinstance(value, (int, float)) and math.isfinite(value) for value in given.values()):
        return inputs  # not known, or no number of steps
    if given["max_steps"] >= 0 or min(given["per_device_train_batch_size"], given["gradient_accumulation_steps"]) <= 0:
        return inputs
    recipe = run.recipe.data() if run.recipe else None
    recipe = recipe if isinstance(recipe, dict) else {}
    if run.consumer == "trl" and (recipe.get("packing") or "num_generations" in recipe):
        return inputs
    launched = run.accelerate.data() if run.accelerate else None
    if isinstance(launched, dict) and launched.get("parallelism_config"):
        return inputs  # ranks may share their samples
    micro = given["per_device_train_batch_size"]
    each = samples // (ranks * micro) if recipe.get("dataloader_drop_last") else math.ceil(samples / (ranks * micro))
    if each == 0:
        message = (
            f"no step: {samples} samples make no batch of {micro} for each of {ranks} ranks, and the rest is dropped"
        )
        problem = Problem("train_samples", message, "Set `dataloader_drop_last: false`, or `max_steps:`.")
        return replace(inputs, problems=(*inputs.problems, problem))
    epoch = max(math.ceil(each / given["gradient_accumulation_steps"]), 1)
    total = math.ceil(given["num_train_epochs"] * epoch)
    note = f"{given['num_train_epochs']:g} epochs of {epoch} steps (train_samples {samples} over {ranks} ranks)"
    counted = {**run.arguments, "max_steps": Setting(total, Origin("computed", note))}
    return replace(inputs, run=replace(run, arguments=counted))
