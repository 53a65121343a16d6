"""Reports the Trainer of transformers to the watch, whoever created it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .readback.collect import DTYPES

if TYPE_CHECKING:
    import transformers

    from .record import Record
    from .watch import Watch


def prepared(watch: Watch | Record, trainer: transformers.Trainer) -> None:
    """The training begins: engine, optimizer and schedule are ready."""
    watch.prepared(
        trainer.model_wrapped,
        trainer.optimizer,
        {
            "micro_batch": trainer._train_batch_size,
            "gradient_accumulation_steps": trainer.args.gradient_accumulation_steps,
            "gradient_clipping": trainer.args.max_grad_norm,
            "dtype": DTYPES[trainer.accelerator.mixed_precision],
        },
        trainer.lr_scheduler,
    )
