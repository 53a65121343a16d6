"""The Trainer of transformers, and those that build on it, in the user's own script.

It stops by a callback after the steps of the job. Its folders lie in the scratch folder then; it neither logs to
services nor pushes, and evaluates two batches at most.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

from ..trainer import prepared
from .session import current, quietly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    import torch
    import transformers

    Call = Callable[..., object]

EVALUATED = 2  # batches


def patch_arguments(module: ModuleType) -> None:
    """Make TrainingArguments leave the user's files and services alone."""
    kind = module.TrainingArguments
    original = kind.__post_init__

    @functools.wraps(original)
    def __post_init__(self: transformers.TrainingArguments) -> None:  # noqa: N807
        session = current()
        if session.job.device == "cpu":
            # Else accelerate starts no process group without a card, and each rank trains alone.
            self.use_cpu = True
        original(self)
        _quiet(self)

    kind.__post_init__ = __post_init__


def _quiet(arguments: transformers.TrainingArguments) -> None:
    session = current()
    for name in ("output_dir", "logging_dir"):
        if isinstance(getattr(arguments, name, None), str):
            setattr(arguments, name, session.places.of(getattr(arguments, name)))
    arguments.report_to = []
    arguments.push_to_hub = False


def patch_trainer(module: ModuleType) -> None:
    kind = module.Trainer
    for name, wrap in (("__init__", _init), ("train", _train), ("save_model", _save_model)):
        setattr(kind, name, wrap(getattr(kind, name)))
    for name, loader in (("evaluate", "get_eval_dataloader"), ("predict", "get_test_dataloader")):
        setattr(kind, name, _short(getattr(kind, name), loader))
    kind.push_to_hub = lambda self, *_, **__: None
    kind.init_hf_repo = lambda self, *_, **__: None


def _init(original: Call) -> Call:
    @functools.wraps(original)
    def __init__(self: transformers.Trainer, *args: object, **named: object) -> None:  # noqa: N807
        quietly(current().claim, "Trainer")
        arguments = named.get("args") or (args[1] if len(args) > 1 else None)
        if arguments is not None:
            _quiet(arguments)  # they may have been changed since
        original(self, *args, **named)
        handler = self.callback_handler
        services = "transformers.integrations"
        handler.callbacks = [
            callback for callback in handler.callbacks if not type(callback).__module__.startswith(services)
        ]

    return __init__


def _train(original: Call) -> Call:
    @functools.wraps(original)
    def train(
        self: transformers.Trainer, resume_from_checkpoint: object = None, *args: object, **named: object
    ) -> object:
        session = current()
        quietly(session.become, "Trainer")
        if resume_from_checkpoint is True:
            from transformers.trainer_utils import get_last_checkpoint

            # The checkpoint lies where the script thinks that it writes. It is only read.
            resume_from_checkpoint = get_last_checkpoint(session.places.origin(self.args.output_dir)) or True
        self.args.eval_on_start = False
        quietly(_follow, self)
        self.add_callback(_callback(self))
        quietly(_phase, "init")
        result = original(self, resume_from_checkpoint, *args, **named)
        quietly(session.trained)
        quietly(_phase, "after training")
        return result

    return train


def _phase(name: str) -> None:
    current().watch.phase(name)


def _follow(trainer: transformers.Trainer) -> None:
    """Report each forward and backward pass to the watch, also those of a subclass's own methods."""
    session = current()
    if session.over or "training_step" in vars(trainer):
        return  # trains again
    compute_loss, training_step = trainer.compute_loss, trainer.training_step

    @functools.wraps(compute_loss)
    def computed(*args: object, **named: object) -> object:
        loss = compute_loss(*args, **named)
        if trainer.model.training and not session.over:
            quietly(_forward)
        return loss

    @functools.wraps(training_step)
    def stepped(*args: object, **named: object) -> torch.Tensor:
        loss = training_step(*args, **named)
        if not session.over:
            quietly(_backward, loss, trainer.args.gradient_accumulation_steps)
        return loss

    trainer.compute_loss, trainer.training_step = computed, stepped


def _forward() -> None:
    current().watch.forward()


def _backward(loss: torch.Tensor, accumulation: int) -> None:
    current().watch.backward(loss, accumulation)


def _begin(trainer: transformers.Trainer) -> None:
    watch = current().watch
    if not watch.steps:
        prepared(watch, trainer)


def _step() -> None:
    session = current()
    if not session.enough:
        session.step()


def _callback(trainer: transformers.Trainer) -> transformers.TrainerCallback:
    import transformers

    class Steps(transformers.TrainerCallback):  # type: ignore[misc]
        """Stops the training after the steps of the job. They are counted here too: a watch that broke counts none."""

        def __init__(self) -> None:
            self.left = current().job.steps

        def on_train_begin(
            self, args: object, state: object, control: transformers.TrainerControl, **_: object
        ) -> None:
            quietly(_begin, trainer)

        def on_step_end(self, args: object, state: object, control: transformers.TrainerControl, **_: object) -> None:
            quietly(_step)
            self.left -= 1
            control.should_training_stop = control.should_training_stop or self.left <= 0 or quietly(_enough)
            control.should_evaluate = control.should_save = False

        def on_epoch_end(self, args: object, state: object, control: transformers.TrainerControl, **_: object) -> None:
            control.should_evaluate = control.should_save = False

    return Steps()


def _enough() -> bool:
    return current().enough


def _save_model(original: Call) -> Call:
    @functools.wraps(original)
    def save_model(self: transformers.Trainer, output_dir: str | None = None, _internal_call: bool = False) -> object:
        session = current()
        given = output_dir if output_dir is not None else self.args.output_dir
        folder = session.places.of(given)
        quietly(session.redirected, session.places.origin(folder))
        session.saving, outer = True, session.saving
        try:
            result = original(self, folder, _internal_call)
            if not _internal_call:
                quietly(session.saved, folder, self.accelerator.unwrap_model(self.model))
            return result
        finally:
            session.saving = outer

    return save_model


def _short(original: Call, loader: str) -> Call:
    """Evaluate a few batches; the result is not used here, but the script may read it."""

    @functools.wraps(original)
    def evaluate(self: transformers.Trainer, *args: object, **named: object) -> object:
        made = getattr(self, loader)
        setattr(self, loader, lambda *words, **more: Few(made(*words, **more)))
        try:
            return original(self, *args, **named)
        finally:
            delattr(self, loader)

    return evaluate


class Few:
    """A loader that ends after its first batches."""

    def __init__(self, loader: torch.utils.data.DataLoader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return min(EVALUATED, len(self._loader))

    def __iter__(self) -> Iterator[object]:
        return itertools.islice(iter(self._loader), EVALUATED)
