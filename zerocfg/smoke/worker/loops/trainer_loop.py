"""A run of the Trainer. It stops by a callback, so that ``max_steps`` and the schedule stay as planned."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..model import initial, join_deepspeed, make_model, repeat_chance, tokens
from ..trainer import prepared
from ..trial import Trial

if TYPE_CHECKING:
    import torch
    import transformers

    from ..job import Job
    from ..record import Record
    from ..watch import Watch


def train(job: Job, watch: Watch | Record, trial: Trial) -> torch.nn.Module:
    """Train and save; the bare model."""
    import torch
    import transformers

    watch.phase("arguments")
    args = _arguments(job, trial)
    join_deepspeed()
    watch.phase("model")
    model = make_model(job, trial.weights)
    batch = args.per_device_train_batch_size
    row = tokens(job, watch.report.rank)
    data = [row] * (batch * args.gradient_accumulation_steps * max(1, args.world_size) * job.steps)

    class Told(transformers.TrainerCallback):  # type: ignore[misc]
        def on_train_begin(
            self, args: object, state: transformers.TrainerState, control: transformers.TrainerControl, **_: object
        ) -> None:
            prepared(watch, run)

        def on_step_end(
            self, args: object, state: transformers.TrainerState, control: transformers.TrainerControl, **_: object
        ) -> None:
            watch.step()
            control.should_save = watch.checkpoint_due()
            control.should_training_stop = state.global_step >= job.steps

        def on_save(
            self, args: object, state: transformers.TrainerState, control: transformers.TrainerControl, **_: object
        ) -> None:
            watch.checkpointed()

    class Run(transformers.Trainer):  # type: ignore[misc]
        def compute_loss(self, *args: object, **named: object) -> object:
            loss = super().compute_loss(*args, **named)
            watch.forward()
            if trial.deepspeed is not None:
                # DeepSpeed 0.19.8 divides the gradients by the accumulation once more where the loss is the engine's
                # very output and no optimizer of ZeRO scales it: at stage 0, which only the reference is here.
                loss = loss * 1
            return loss

        def training_step(self, *args: object, **named: object) -> torch.Tensor:
            repeat_chance()
            loss = super().training_step(*args, **named)
            watch.backward(float(loss) * self.args.gradient_accumulation_steps)
            return loss

    run = Run(model=model, args=args, train_dataset=data, callbacks=[Told()])
    watch.phase("init")
    run.train(resume_from_checkpoint=str(trial.folder / f"checkpoint-{trial.resumed}") if trial.resumed else None)
    if trial.resumed and run.state.global_step - trial.resumed != trial.steps(job):
        raise RuntimeError(f"the Trainer began at another step than that of the checkpoint, {trial.resumed}")
    if trial.save:
        watch.phase("save")
        run.save_model(str(Path(job.saved)))
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
    return run.accelerator.unwrap_model(run.model)


def initial_weights(job: Job) -> dict[str, torch.Tensor]:
    """The weights with which the planned training begins."""
    arguments = _arguments(job, Trial.planned(job))  # as long as they live the model is made in shards
    join_deepspeed()
    weights = initial(job)
    del arguments
    return weights


def _arguments(job: Job, trial: Trial) -> transformers.TrainingArguments:
    import transformers

    arguments = {"max_steps": 1_000_000, **job.arguments}
    arguments.update(output_dir=str(trial.folder), report_to=[], save_strategy="no", logging_strategy="no")
    if job.device == "cpu":
        arguments["use_cpu"] = True  # else accelerate starts no process group and each rank trains alone
    if job.deepspeed_config and not job.by_accelerate:
        arguments["deepspeed"] = job.deepspeed_config
    if trial.deepspeed is not None:
        arguments["deepspeed"] = trial.deepspeed
    return transformers.TrainingArguments(disable_tqdm=True, **arguments)
