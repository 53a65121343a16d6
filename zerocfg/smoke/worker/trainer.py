"""Reports the Trainer of transformers to the watch, whoever created it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .readback.collect import DTYPES

if TYPE_CHECKING:
    import transformers

    from .record import Record
    from .report_schema import Seen
    from .watch import Watch


def prepared(watch: Watch | Record, trainer: transformers.Trainer) -> None:
    """The training begins: engine, optimizer and schedule are ready."""
    settings: Seen = watch.fence.measure("read-back of the Trainer's arguments", _settings, trainer, otherwise={})
    watch.prepared(trainer.model_wrapped, trainer.optimizer, settings, trainer.lr_scheduler)


def _settings(trainer: transformers.Trainer) -> Seen:
    """What only the Trainer knows, of engines that keep no settings of their own."""
    return {
        "micro_batch": trainer._train_batch_size,
        "gradient_accumulation_steps": trainer.args.gradient_accumulation_steps,
        "gradient_clipping": trainer.args.max_grad_norm,
        "dtype": DTYPES[trainer.accelerator.mixed_precision],
    }
