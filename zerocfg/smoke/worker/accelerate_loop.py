"""The loop of a script that calls accelerate itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .model import join_deepspeed, make_model, tokens
from .readback import DTYPES

if TYPE_CHECKING:
    from .job import Job
    from .watch import Watch


def train(job: Job, watch: Watch) -> Any:
    """Train and save; the bare model."""
    import torch
    from accelerate import Accelerator, PartialState
    from accelerate.utils import DummyOptim, DummyScheduler

    watch.phase("arguments")
    if job.device == "cpu":
        PartialState(cpu=True)
    arguments = job.arguments
    accumulation = int(arguments.get("gradient_accumulation_steps") or 1)
    join_deepspeed()
    accelerator = Accelerator(gradient_accumulation_steps=accumulation)
    plugin = accelerator.state.deepspeed_plugin
    config = plugin.deepspeed_config if plugin else {}
    watch.phase("model")
    model = make_model(job)
    rate = float(arguments.get("learning_rate") or 1e-4)
    optimizer = (DummyOptim if "optimizer" in config else torch.optim.AdamW)(model.parameters(), lr=rate)
    batch = int(arguments.get("per_device_train_batch_size") or 1)
    micro_steps = job.steps * accumulation
    data: Any = [tokens(job, 0)] * (batch * micro_steps * accelerator.num_processes)
    loader = torch.utils.data.DataLoader(data, batch_size=batch)
    parts = [model, optimizer, loader]
    if "scheduler" in config:
        parts.append(DummyScheduler(optimizer, total_num_steps=1000, warmup_num_steps=10))
    watch.phase("init")
    engine, optimizer, loader, *rest = accelerator.prepare(*parts)
    watch.prepared(
        engine,
        optimizer,
        micro_batch=batch,
        gradient_accumulation_steps=accelerator.gradient_accumulation_steps,
        gradient_clipping=arguments.get("max_grad_norm"),
        dtype=DTYPES[accelerator.mixed_precision],
    )
    for content in loader:
        with accelerator.accumulate(engine):
            loss = engine(**content).loss
            watch.forward()
            accelerator.backward(loss)
            watch.backward(float(loss))
            if accelerator.sync_gradients and arguments.get("max_grad_norm"):
                accelerator.clip_grad_norm_(engine.parameters(), arguments["max_grad_norm"])
            optimizer.step()
            for scheduler in rest:
                scheduler.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            watch.step()
    watch.phase("save")
    bare = accelerator.unwrap_model(engine)
    state = accelerator.get_state_dict(engine)
    bare.save_pretrained(job.saved, is_main_process=accelerator.is_main_process, state_dict=state)
    accelerator.wait_for_everyone()
    return bare
