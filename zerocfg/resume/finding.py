"""A finding about a checkpoint, and error messages of the libraries that more than one check predicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Effect = Literal["stops", "loses", "note"]
MOST_NAMED = 4
# Beginnings of the messages of torch, DeepSpeed and the Trainer.
ASSERTION = "AssertionError (state_dict_factory.py: assert len(self.ckpt_list) > 0)"
CUT_OFF = "OSError: [Errno 22] Invalid argument"
DISTRIBUTED = "CheckpointException: CheckpointException ranks:dict_keys(["
NO_CHECKPOINT = "ValueError: Can't find a valid checkpoint at {path}"


@dataclass(frozen=True, slots=True)
class Finding:
    """``error`` is the library's message, or its beginning; ``remediations`` are commands or settings that help.

    ``lost`` names what a finding with the effect "loses" costs.
    """

    effect: Effect
    kind: str
    message: str
    error: str = ""
    lost: str = ""
    remediations: tuple[str, ...] = ()


def listed(names: list[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:MOST_NAMED])
    return shown + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
