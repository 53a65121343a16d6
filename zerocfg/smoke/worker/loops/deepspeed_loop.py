"""The loop of a script that calls ``deepspeed.initialize`` itself."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from .. import group
from ..model import make_model, repeat_chance, tokens
from ..values import mapping, real

if TYPE_CHECKING:
    import torch

    from ..job import Job
    from ..record import Record
    from ..trial import Trial
    from ..watch import Watch


def train(job: Job, watch: Watch | Record, trial: Trial) -> torch.nn.Module:
    """Train and save; the bare model."""
    import deepspeed
    import torch

    watch.phase("model")
    model = make_model(job, trial.weights)
    if job.arguments.get("gradient_checkpointing"):
        model.gradient_checkpointing_enable()
    config = trial.deepspeed or _config(job)
    offload = mapping(mapping(config.get("zero_optimization")).get("offload_optimizer"))
    optimizer = None
    if not config.get("optimizer"):
        on_host = offload.get("device") in ("cpu", "nvme")
        kind = deepspeed.ops.adam.DeepSpeedCPUAdam if on_host else torch.optim.AdamW
        optimizer = kind(model.parameters(), lr=real(job.arguments.get("learning_rate"), 1e-4))
    watch.phase("init")
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=list(model.parameters()),
        optimizer=optimizer,
        config=trial.deepspeed or job.deepspeed_config,
    )
    watch.prepared(engine, engine.optimizer)
    if trial.resumed:
        found, _ = engine.load_checkpoint(str(trial.folder))
        if found is None:
            raise RuntimeError("engine.load_checkpoint found no checkpoint to load")
    row = tokens(job, watch.report.rank // max(1, engine.autotp_size()))
    content = {name: value.repeat(engine.train_micro_batch_size_per_gpu(), 1) for name, value in row.items()}
    content = {name: value.to(engine.device) for name, value in content.items()}
    for _ in range(trial.steps):
        for _ in range(engine.gradient_accumulation_steps()):
            repeat_chance()
            loss = engine(**content).loss
            watch.forward()
            engine.backward(loss)
            watch.backward(loss)
            engine.step()
        watch.step()
    if trial.checkpoint:
        watch.phase("checkpoint")
        engine.save_checkpoint(str(trial.folder))
    if not trial.save:
        return engine.module
    watch.phase("save")
    engine.save_16bit_model(job.saved, "pytorch_model.bin")
    engine.module.config.save_pretrained(job.saved)
    group.barrier()
    return engine.module


def initial_weights(job: Job) -> dict[str, torch.Tensor] | None:
    """None: here the model is made whole whatever the stage, with the same random numbers."""
    return None


def _config(job: Job) -> dict[str, object]:
    """The config for a look at it, read as DeepSpeed reads it; one that it will refuse is empty here."""
    hjson = importlib.import_module("hjson")  # which DeepSpeed depends on
    try:
        content = hjson.loads(Path(str(job.deepspeed_config)).read_text())
    except Exception:
        return {}
    return mapping(json.loads(json.dumps(content)))
