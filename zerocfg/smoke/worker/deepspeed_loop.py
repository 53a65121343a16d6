"""The loop of a script that calls ``deepspeed.initialize`` itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .model import make_model, tokens

if TYPE_CHECKING:
    from .job import Job
    from .watch import Watch


def train(job: Job, watch: Watch) -> Any:
    """Train and save; the bare model."""
    import deepspeed
    import torch

    watch.phase("model")
    model = make_model(job)
    config = json.loads(Path(str(job.deepspeed_config)).read_text())
    offload = (config.get("zero_optimization") or {}).get("offload_optimizer") or {}
    optimizer = None
    if not config.get("optimizer"):
        on_host = offload.get("device") in ("cpu", "nvme")
        kind = deepspeed.ops.adam.DeepSpeedCPUAdam if on_host else torch.optim.AdamW
        optimizer = kind(model.parameters(), lr=float(job.arguments.get("learning_rate") or 1e-4))
    watch.phase("init")
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=list(model.parameters()), optimizer=optimizer, config=job.deepspeed_config
    )
    watch.prepared(engine, engine.optimizer)
    row = tokens(job, 0)
    content = {name: value.repeat(engine.train_micro_batch_size_per_gpu(), 1) for name, value in row.items()}
    content = {name: value.to(engine.device) for name, value in content.items()}
    for _ in range(job.steps):
        for _ in range(engine.gradient_accumulation_steps()):
            loss = engine(**content).loss
            watch.forward()
            engine.backward(loss)
            watch.backward(float(loss))
            engine.step()
        watch.step()
    watch.phase("save")
    engine.save_16bit_model(job.saved, "pytorch_model.bin")
    engine.module.config.save_pretrained(job.saved)
    torch.distributed.barrier()
    return engine.module
