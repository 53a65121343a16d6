"""The loop of a script that calls accelerate itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model import initial, join_deepspeed, make_model, repeat_chance, tokens
from ..readback.collect import DTYPES
from ..values import real, whole

if TYPE_CHECKING:
    import accelerate
    import torch

    from ..job import Job
    from ..record import Record
    from ..trial import Trial
    from ..watch import Watch


def train(job: Job, watch: Watch | Record, trial: Trial) -> torch.nn.Module:
    """Train and save; the bare model."""
    import torch
    from accelerate.utils import DummyOptim, DummyScheduler

    watch.phase("arguments")
    arguments = job.arguments
    accelerator = _accelerator(job, trial.deepspeed)
    plugin = accelerator.state.deepspeed_plugin
    config = plugin.deepspeed_config if plugin else {}
    # The launcher's variable beats the script's argument, and a number of the DeepSpeed config both.
    stated = config.get("gradient_accumulation_steps")
    accumulation = stated if isinstance(stated, int) else int(accelerator.gradient_accumulation_steps)
    watch.phase("model")
    model = make_model(job, trial.weights)
    if job.arguments.get("gradient_checkpointing"):
        model.gradient_checkpointing_enable()
    rate = real(arguments.get("learning_rate"), 1e-4)
    optimizer = (DummyOptim if "optimizer" in config else torch.optim.AdamW)(model.parameters(), lr=rate)
    batch = whole(arguments.get("per_device_train_batch_size"), 1)
    micro_steps = trial.steps * accumulation
    data = [tokens(job, watch.report.rank)] * (batch * micro_steps * accelerator.num_processes)
    loader = torch.utils.data.DataLoader(data, batch_size=batch)
    parts = [model, optimizer, loader]
    if "scheduler" in config:
        parts.append(DummyScheduler(optimizer, total_num_steps=1000, warmup_num_steps=10))
    watch.phase("init")
    engine, optimizer, loader, *rest = accelerator.prepare(*parts)
    watch.prepared(
        engine,
        optimizer,
        {
            "micro_batch": batch,
            "gradient_accumulation_steps": accelerator.gradient_accumulation_steps,
            "gradient_clipping": arguments.get("max_grad_norm"),
            "dtype": DTYPES[accelerator.mixed_precision],
        },
    )
    if trial.resumed:
        accelerator.load_state(str(trial.folder))
    for content in loader:
        repeat_chance()
        with accelerator.accumulate(engine):
            loss = engine(**content).loss
            watch.forward()
            accelerator.backward(loss)
            watch.backward(loss)
            if accelerator.sync_gradients and arguments.get("max_grad_norm"):
                accelerator.clip_grad_norm_(engine.parameters(), arguments["max_grad_norm"])
            optimizer.step()
            for scheduler in rest:
                scheduler.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            watch.step()
    if trial.checkpoint:
        watch.phase("checkpoint")
        accelerator.save_state(str(trial.folder))
    bare = accelerator.unwrap_model(engine)
    if not trial.save:
        return bare
    watch.phase("save")
    state = accelerator.get_state_dict(engine)
    bare.save_pretrained(job.saved, is_main_process=accelerator.is_main_process, state_dict=state)
    accelerator.wait_for_everyone()
    return bare


def initial_weights(job: Job) -> dict[str, torch.Tensor]:
    """The weights with which the planned training begins."""
    accelerator = _accelerator(job)  # as long as it lives the model is made in shards
    weights = initial(job)
    del accelerator
    return weights


def _accelerator(job: Job, deepspeed: dict[str, object] | None = None) -> accelerate.Accelerator:
    from accelerate import Accelerator, DeepSpeedPlugin, PartialState
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()  # there may have been another training in this process
    if job.device == "cpu":
        PartialState(cpu=True)
    join_deepspeed()
    plugin = DeepSpeedPlugin(hf_ds_config=deepspeed) if deepspeed is not None else None
    accumulation = whole(job.arguments.get("gradient_accumulation_steps"), 1)
    return Accelerator(gradient_accumulation_steps=accumulation, deepspeed_plugin=plugin)
