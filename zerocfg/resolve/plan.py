"""What a build decides: every value of a run with the reason for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.run.model import Consumer

Kind = Literal["file", "flag", "environment", "default", "computed", "hardware", "chosen"]


@dataclass(frozen=True, slots=True)
class Decision:
    """One resolved value.

    ``kind`` is the kind of its origin as in `zerocfg.run.model.Origin`, or "hardware" (read off it) or
    "chosen" (zerocfg decided, because nobody else would or because what would happen otherwise is worse).
    ``reason`` says in words why it is this value.
    """

    value: Any
    reason: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a run cannot be built: the key, what is wrong with it, and what to add or change."""

    key: str
    message: str
    help: str = ""


@dataclass(slots=True)
class Plan:
    """A fully resolved run.

    ``settings``   every value by its dotted name, as in `zerocfg.run.model.Effective`
    ``deepspeed``  the dotted names of the DeepSpeed JSON, empty when the engine is not DeepSpeed
    ``accelerate`` the keys of the accelerate YAML, empty when accelerate does not launch the run
    ``recipe``     the trainer's arguments with their values as the trainer reads them
    ``inputs``     the source files by role
    ``folder``     the folder that the script, the recipe and the emitted paths are relative to (the spec's)
    """

    name: str
    consumer: Consumer
    engine: Literal["deepspeed", "ddp"]
    folder: Path
    script: str
    arguments: list[str]
    hardware: str
    num_processes: int
    num_machines: int
    settings: dict[str, Decision] = field(default_factory=dict)
    deepspeed: list[str] = field(default_factory=list)
    accelerate: dict[str, Decision] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)
    model_config: dict[str, Any] | None = None
    model_facts: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, Path] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
