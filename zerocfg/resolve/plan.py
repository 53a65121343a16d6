"""The result of resolution: every value of a run with its provenance."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.models.spec import Targets
    from zerocfg.run.model import Consumer, Failure
    from zerocfg.source.text import Where

Kind = Literal["", "file", "flag", "environment", "default", "computed", "hardware", "chosen"]
Engine = Literal["deepspeed", "ddp", "fsdp"]
Launcher = Literal["accelerate", "torchrun", "deepspeed"]


@dataclass(frozen=True, slots=True)
class Decision:
    """One resolved value.

    ``kind`` is the kind of its origin as in `zerocfg.run.model.Origin`, or "hardware" (read off it) or
    "chosen" (zerocfg decided, because nobody else would or because what would happen otherwise is worse); empty where a
    lock does not record it.
    ``reason`` explains the value. ``place`` is where it is written (the file relative to the spec's
    folder), None when no file says it. ``inputs`` are the named facts that a computed value follows from
    ({"hidden_size": 4096}); when the value changes, they tell why.
    """

    value: Any
    reason: str = ""
    kind: Kind = ""
    place: Where | None = None
    inputs: dict[str, Any] = field(default_factory=dict)


def kind_of(word: object) -> Kind:
    """The kind that a lock names; empty for an unknown one."""
    return next((kind for kind in get_args(Kind) if kind == word), "")


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a spec or a run of it cannot be built: the key, what is wrong with it, and what to add or change.

    ``place`` is where the key is written; the run's place in the spec where nobody wrote it. ``failure``: what a
    library would refuse, where that is it. ``missing``: the key that is; ``meant``: the one that was misspelt.
    """

    key: str
    message: str
    help: str = ""
    place: Where | None = None
    failure: Failure | None = field(default=None, compare=False)  # holds values of configs, which need not be hashable
    missing: str = ""
    meant: str = ""

    def __str__(self) -> str:
        text = f"{self.place}: {self.message}" if self.place is not None else self.message
        return f"{text}\n  {self.help}" if self.help else text


@dataclass(frozen=True, slots=True)
class Considered:
    """One of the plans that were compared.

    ``settings`` are what tells it from the others, by name. ``verdict`` is the word of its memory ("fits", "likely",
    "unlikely", "does not fit"), ``device_gib`` the upper end of what a driver will show, ``seconds_per_token`` the
    expected time of the whole job for one token; None where it is not known. ``excluded`` says why it was not taken;
    empty for the one that was.
    """

    settings: dict[str, Any]
    verdict: str
    device_gib: float | None
    seconds_per_token: float | None
    excluded: str = ""


@dataclass(slots=True)
class Plan:
    """A fully resolved run.

    ``settings``   every value by its dotted name, as in `zerocfg.run.model.Effective`
    ``deepspeed``  the dotted names of the DeepSpeed JSON, empty when the engine is not DeepSpeed
    ``empty``      the dotted names of sections of that JSON that hold nothing; DeepSpeed asks for some of them
    ``dropped``    dotted names that the sources state there and that have no effect
    ``accelerate`` the keys of the accelerate YAML, empty when accelerate does not launch the run
    ``module``     the name by which the script is started as a module; empty where it is started as a file
    ``launcher``   what launch.sh starts the job with; ``hosts`` names its nodes, where the spec does
    ``targets``    what is emitted beside the configs and launch.sh
    ``recipe``     the trainer's arguments with their values as the trainer reads them
    ``changes``    the trainer's arguments that have to differ from the recipe on disk; a changed copy is emitted
    ``considered`` the plans that were compared, the best first, when zerocfg chose among several
    ``inputs``     the source files by role
    ``profile``    the hardware, None where only the sources tell how many processes there are
    ``folder``     the folder that the script, the recipe and the emitted paths are relative to (the spec's)
    """

    name: str
    consumer: Consumer
    engine: Engine
    folder: Path
    script: str
    arguments: list[str]
    hardware: str
    num_processes: int
    num_machines: int
    settings: dict[str, Decision] = field(default_factory=dict)
    deepspeed: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    accelerate: dict[str, Decision] = field(default_factory=dict)
    launcher: Launcher = "accelerate"
    module: str = ""
    hosts: list[str] = field(default_factory=list)
    targets: Targets | None = None
    recipe: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, Decision] = field(default_factory=dict)
    considered: list[Considered] = field(default_factory=list)
    profile: HardwareProfile | None = None
    model_config: dict[str, Any] | None = None
    model_facts: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, Path] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def vendor(self) -> str | None:
        """nvidia, amd, intel, habana (Gaudi) or cpu; None where only the sources describe the hardware."""
        if self.profile is None:
            return None
        device = self.profile.accelerator
        return "habana" if device.name.startswith("Gaudi") else device.vendor

    @property
    def cpus_per_node(self) -> int | None:
        """None unless a probe counted them."""
        host = self.profile.host if self.profile is not None else None
        return host.cpus if host is not None else None
