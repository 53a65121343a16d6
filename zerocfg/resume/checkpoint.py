"""What a checkpoint is: types without behaviour, filled in by :mod:`zerocfg.resume.read`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from zerocfg.resume.weights import Weights

FULL, SHARDED = "FULL_STATE_DICT", "SHARDED_STATE_DICT"


class CheckpointError(ValueError):
    """Nothing that could be judged; the text says what was found instead."""


@dataclass(slots=True)
class DeepSpeed:
    """One tag of a DeepSpeed checkpoint.

    ``tags`` are the folders that look like tags, ``latest`` what the file of that name says. ``stage`` None: 1 or 2,
    the file did not tell. ``world_size`` counts data-parallel ranks. ``bf16`` is what the files' names say: a run in
    fp16 or fp32 leaves out the prefix. ``half``: under stage 0 the optimizer keeps fp32 copies of
    parameters in bf16 or fp16. ``universal_tag`` is what the file latest_universal says, and
    ``universal_stages`` are the ZeRO stages that can read it.
    """

    tag: str
    tags: list[str]
    latest: str | None
    stage: int | None = None
    world_size: int | None = None
    model_parallel: int = 1
    bf16: bool | None = None
    half: bool | None = None
    version: str | None = None
    steps: int | None = None
    optimizer_files: int = 0
    experts: bool = False
    universal: bool = False
    universal_tag: str | None = None
    universal_stages: tuple[int, ...] = ()
    missing: list[str] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Fsdp:
    """``model`` and ``optimizer``: FULL_STATE_DICT, SHARDED_STATE_DICT, LOCAL_STATE_DICT, or None where absent."""

    model: str | None
    optimizer: str | None
    world_size: int | None = None
    missing: list[str] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Checkpoint:
    """``step``, ``steps`` (at which it logs, evaluates and saves, by argument) and ``trainer`` are of
    trainer_state.json; ``random_ranks`` is None where no generator was saved."""

    path: Path
    notes: list[str] = field(default_factory=list)
    trainer: bool = False
    step: int | None = None
    steps: dict[str, int] = field(default_factory=dict)
    deepspeed: DeepSpeed | None = None
    fsdp: Fsdp | None = None
    weights: Weights | None = None
    optimizer: bool = False
    scheduler: bool = False
    random_ranks: int | None = None
    converter: bool = False
    damaged: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        if self.deepspeed:
            return "deepspeed"
        if self.fsdp:
            return "fsdp"
        return "trainer" if self.trainer else "weights"
