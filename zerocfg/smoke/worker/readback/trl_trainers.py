"""What a live trainer of TRL runs with, of the arguments that it has beyond those of every Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..report_schema import REFERENCE
from ..values import plain

if TYPE_CHECKING:
    import transformers

SAID = {"loss_type": "loss_types", "epsilon": "epsilon_low"}
"""Attributes of a trainer that are not called as the argument."""


def settings(trainer: transformers.Trainer, own: tuple[str, ...]) -> tuple[dict[str, object], dict[str, object]]:
    """By argument: the values that the trainer works with, and those that only its arguments hold."""
    acting: dict[str, object] = {}
    parsed: dict[str, object] = {}
    for name in own:
        values = [getattr(trainer, item) for item in (SAID.get(name, name), name) if hasattr(trainer, item)]
        # A tensor holds a number in fp32, another one than was written.
        if values and not hasattr(values[0], "tolist"):
            acting[name] = plain(values[0])
        else:
            parsed[name] = plain(getattr(trainer.args, name))
    if hasattr(trainer, "ref_model"):
        acting[REFERENCE] = "none" if trainer.ref_model is None else "loaded"
    return acting, parsed
