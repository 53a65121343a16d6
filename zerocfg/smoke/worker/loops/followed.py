"""Any of the Trainers, followed step by step. It stops by a callback, so that ``max_steps`` and the schedule stay as
planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import group
from ..model import repeat_chance
from ..trainer import prepared

if TYPE_CHECKING:
    import torch
    import transformers

    from ..job import Job
    from ..record import Record
    from ..trial import Trial
    from ..watch import Watch


def train(
    kind: type[transformers.Trainer],
    job: Job,
    watch: Watch | Record,
    trial: Trial,
    own: tuple[str, ...] = (),
    chance: bool = False,
    **parts: object,
) -> torch.nn.Module:
    """Train and save with a trainer of this kind, made of ``parts``; the bare model.

    ``own``: arguments that only this kind has, and reads back. ``chance``: its random numbers go on from step to step,
    because it samples; else every step draws the same.
    """
    import transformers

    class Told(transformers.TrainerCallback):  # type: ignore[misc]
        def on_train_begin(
            self, args: object, state: transformers.TrainerState, control: transformers.TrainerControl, **_: object
        ) -> None:
            prepared(watch, run)
            watch.trainer(kind.__name__, run, own)

        def on_step_end(
            self, args: object, state: transformers.TrainerState, control: transformers.TrainerControl, **_: object
        ) -> None:
            watch.step()
            if state.global_step >= trial.last:
                control.should_training_stop, control.should_save = True, trial.checkpoint

    class Run(kind):  # type: ignore[misc]
        def compute_loss(self, *args: object, **named: object) -> object:
            loss = super().compute_loss(*args, **named)
            watch.forward()
            if trial.deepspeed is not None:
                # DeepSpeed 0.19.8 divides the gradients by the accumulation once more where the loss is the engine's
                # very output and no optimizer of ZeRO scales it: at stage 0, which only the reference is here.
                loss = loss * 1
            return loss

        def training_step(self, *args: object, **named: object) -> torch.Tensor:
            if not chance:
                repeat_chance()
            loss = super().training_step(*args, **named)
            watch.backward(loss, self.args.gradient_accumulation_steps)
            return loss

    run = Run(callbacks=[Told()], **parts)
    watch.phase("init")
    run.train(resume_from_checkpoint=str(trial.folder / f"checkpoint-{trial.resumed}") if trial.resumed else None)
    if trial.resumed and run.state.global_step - trial.resumed != trial.steps:
        raise RuntimeError(f"the Trainer began at another step than that of the checkpoint, {trial.resumed}")
    if trial.save:
        watch.phase("save")
        run.save_model(job.saved)
        group.barrier()
    return run.accelerator.unwrap_model(run.model)


def arguments(
    kind: type[transformers.TrainingArguments], job: Job, trial: Trial, **more: object
) -> transformers.TrainingArguments:
    """The arguments of the job, for a trainer that neither logs nor saves by itself. ``more`` count over them."""
    given = {"max_steps": 1_000_000, **job.arguments, **more}
    given.update(output_dir=str(trial.folder), report_to=[], save_strategy="no", logging_strategy="no")
    if job.device == "cpu":
        given["use_cpu"] = True  # else accelerate starts no process group and each rank trains alone
    if job.deepspeed_config and not job.by_accelerate:
        given["deepspeed"] = job.deepspeed_config
    if trial.deepspeed is not None:
        given["deepspeed"] = trial.deepspeed
    return kind(disable_tqdm=True, **given)
