"""What the ranks are told to do."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Job:
    """Written by the parent, read by every rank.

    ``reports``, ``saved``: folders of the ranks' reports and of the saved weights. ``by_accelerate``: accelerate's
    launcher set the engine up. ``device`` "cpu" or "cuda". ``steps``: optimizer steps. ``model``: the content of a
    config.json. ``arguments``: those of TrainingArguments that shape the engine. ``sequence``: tokens of a sample.
    ``deepspeed_config``: path of the config, None without DeepSpeed. ``memory_limit``: bytes that a rank may have.
    ``parts``: of "train", "resume" and "reference", what is done; training always is. ``no_resume``: why no checkpoint
    of this run can be resumed from, None when one should. ``share``: the mode in which all ranks use one card
    (`sharing.MODES`), None where each has its own. ``nodes``: machines whose ranks train together.
    """

    reports: str
    saved: str
    consumer: str
    by_accelerate: bool
    device: str
    steps: int
    model: dict[str, object]
    arguments: dict[str, object]
    sequence: int
    deepspeed_config: str | None
    memory_limit: int | None = None
    parts: Sequence[str] = ("train",)
    no_resume: str | None = None
    share: str | None = None
    nodes: int = 1

    @classmethod
    def read(cls, path: Path) -> Job:
        return cls(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self), indent=2))
