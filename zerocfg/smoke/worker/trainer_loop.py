"""A run of the Trainer. It stops by a callback, so that ``max_steps`` and the schedule stay as planned."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .model import join_deepspeed, make_model, tokens
from .readback import DTYPES

if TYPE_CHECKING:
    from .job import Job
    from .watch import Watch


def train(job: Job, watch: Watch) -> Any:
    """Train and save; the bare model."""
    import torch
    import transformers

    watch.phase("arguments")
    folder = Path(job.saved)
    arguments = {"max_steps": 1_000_000, **job.arguments}
    arguments.update(output_dir=str(folder / "trainer"), report_to=[], save_strategy="no", logging_strategy="no")
    if job.device == "cpu":
        arguments["use_cpu"] = True  # else accelerate starts no process group and each rank trains alone
    if job.deepspeed_config and not job.by_accelerate:
        arguments["deepspeed"] = job.deepspeed_config
    args = transformers.TrainingArguments(disable_tqdm=True, **arguments)
    join_deepspeed()
    watch.phase("model")
    model = make_model(job)
    batch = args.per_device_train_batch_size
    row = tokens(job, watch.report.rank)
    data: Any = [row] * (batch * args.gradient_accumulation_steps * max(1, args.world_size) * job.steps)

    class Told(transformers.TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            watch.prepared(
                run.model_wrapped,
                run.optimizer,
                micro_batch=run._train_batch_size,
                gradient_accumulation_steps=args.gradient_accumulation_steps,
                gradient_clipping=args.max_grad_norm,
                dtype=DTYPES[run.accelerator.mixed_precision],
                scheduler=run.lr_scheduler,
            )

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            watch.step()
            control.should_training_stop = state.global_step >= job.steps

    class Run(transformers.Trainer):  # type: ignore[misc]
        def compute_loss(self, *args: Any, **named: Any) -> Any:
            loss = super().compute_loss(*args, **named)
            watch.forward()
            return loss

        def training_step(self, *args: Any, **named: Any) -> Any:
            loss = super().training_step(*args, **named)
            watch.backward(float(loss) * self.args.gradient_accumulation_steps)
            return loss

    run = Run(model=model, args=args, train_dataset=data, callbacks=[Told()])
    watch.phase("init")
    run.train()
    watch.phase("save")
    run.save_model(str(folder))
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
    return run.accelerator.unwrap_model(run.model)
