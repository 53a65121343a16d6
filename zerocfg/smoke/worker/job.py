"""What the ranks are told to do."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class Job:
    """Written by the parent, read by every rank.

    ``reports``, ``saved``: folders of the ranks' reports and of the saved weights. ``by_accelerate``: accelerate's
    launcher set the engine up. ``device`` "cpu" or "cuda". ``steps``: optimizer steps. ``model``: the content of a
    config.json. ``arguments``: those of TrainingArguments that shape the engine. ``sequence``: tokens of a sample.
    ``deepspeed_config``: path of the config, None without DeepSpeed. ``memory_limit``: bytes that a rank may have.
    """

    reports: str
    saved: str
    consumer: str
    by_accelerate: bool
    device: str
    steps: int
    model: dict[str, Any]
    arguments: dict[str, Any]
    sequence: int
    deepspeed_config: str | None
    memory_limit: int | None = None

    @classmethod
    def read(cls, path: Path) -> Job:
        return cls(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self), indent=2))
