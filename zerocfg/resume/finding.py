"""One thing that was found, and the beginnings of the libraries' own words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Effect = Literal["stops", "loses", "note"]
MOST_NAMED = 4
# How messages of torch, DeepSpeed and the Trainer begin that more than one check foretells.
ASSERTION = "AssertionError (state_dict_factory.py: assert len(self.ckpt_list) > 0)"
CUT_OFF = "OSError: [Errno 22] Invalid argument"
DISTRIBUTED = "CheckpointException: CheckpointException ranks:dict_keys(["
NO_CHECKPOINT = "ValueError: Can't find a valid checkpoint at {path}"


@dataclass(frozen=True, slots=True)
class Finding:
    """``words`` are the library's own, or how they begin; ``ways`` are commands or settings that lead out of it.

    ``lost`` names in short what a finding that "loses" costs.
    """

    effect: Effect
    kind: str
    message: str
    words: str = ""
    lost: str = ""
    ways: tuple[str, ...] = ()


def listed(names: list[str]) -> str:
    shown = ", ".join(names[:MOST_NAMED])
    return shown + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
