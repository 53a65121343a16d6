"""What a smoke-run changed of a run: each reduction, as data and as text, and the reduced run."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerocfg.smoke.model.size import Size

SEQUENCE = 32  # tokens of a sample on a processor


class Kind(enum.Enum):
    """What was changed. The value is its name in ``allow-reduced`` of the gate's policy, and in ``smoke.json``."""

    WORLD_SIZE = "world size"
    NODES = "nodes"
    SEQUENCE = "sequence length"
    MODEL = "model"
    LAYERS = "layers"
    TRAIN_BATCH = "train_batch_size"
    HPZ_PARTITION = "zero_hpz_partition_size"
    PERSISTENCE = "stage3_param_persistence_threshold"
    REDUCE_BUCKET = "reduce_bucket_size"
    ALLGATHER_BUCKET = "allgather_bucket_size"
    OFFLOAD_OPTIMIZER = "offload_optimizer"
    OFFLOAD_PARAM = "offload_param"
    OPTIMIZER_DRIVE = "offload_optimizer.nvme_path"
    PARAM_DRIVE = "offload_param.nvme_path"
    OPTIM = "optim"
    PRECISION = "precision"
    SHARED_CARD = "shared card"
    SAVING = "saving"
    FSDP_LOADING = "fsdp_sync_module_states"
    FSDP_OFFLOAD = "fsdp_offload_params"
    LAUNCH = "launch"
    GENERATION = "use_vllm"
    GENERATION_BATCH = "generation_batch_size"
    GENERATION_STEPS = "steps_per_generation"


@dataclass(frozen=True, slots=True)
class Cut:
    """One number of a model's config.json, by its dotted key."""

    key: str
    planned: object
    run: object

    def __str__(self) -> str:
        return f"{self.key} {self.planned} to {self.run}"


@dataclass(frozen=True, slots=True)
class Reduction:
    """``planned``: the value of the run, None where not stated; ``run``: what was run in its place.

    ``keys``: of the configs, where some say it. Of a model that was cut ``planned`` is its number of parameters, and
    ``cuts`` are what became smaller; of an unknown model ``run`` is the one that runs instead. Of a shared card and of
    several nodes ``run`` is a mapping. ``why``: what asked for it, in words, where the kind alone does not tell.
    """

    kind: Kind
    planned: object = None
    run: object = None
    keys: tuple[str, ...] = ()
    cuts: tuple[Cut, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        return _DESCRIPTIONS.get(self.kind, _change)(self)

    def data(self) -> dict[str, object]:
        """As JSON: "kind", "keys", "planned" and "run", and of a model that was cut "cuts"."""
        found: dict[str, object] = {"kind": self.kind.value, "keys": list(self.keys)}
        found |= {"planned": _json(self.planned), "run": _json(self.run)}
        if self.cuts:
            found["cuts"] = [{"key": one.key, "planned": one.planned, "run": one.run} for one in self.cuts]
        return found


@dataclass
class Reduced:
    """A run as it is launched here.

    ``model``, ``accelerate``, ``deepspeed``, ``arguments``: what is run; ``plan``: what must be seen then.

    ``changes``: what became smaller, or different.
    ``sequence``: tokens of a sample. ``layers``: of the planned model and of the one that is run, where known.
    ``narrow``: the model's widths were cut as well, or another model runs instead. ``size``: what the model that is run
    takes at most by prediction, on a card. ``in_memory``: checkpoint and saved weights are kept in the host's memory
    while the run lasts. ``nodes``: machines that the ranks are spread over. ``trainer``: the class
    of TRL that trains, None where the consumer's own loop does; ``own``: those ``arguments``, by name, that only this
    class has. ``no_trainer``: why a class of TRL that was meant does not train here. ``copy``: a narrow copy of the
    model, which is resumed and compared with ZeRO-0 in its place; None where the model itself is.
    """

    ranks: int
    model: dict[str, object]
    accelerate: dict[str, object] | None
    deepspeed: dict[str, object] | None
    arguments: dict[str, object]
    plan: dict[str, object]
    sequence: int = SEQUENCE
    changes: list[Reduction] = field(default_factory=list)
    layers: tuple[int, int] | None = None
    narrow: bool = False
    size: Size | None = None
    nodes: int = 1
    trainer: str | None = None
    own: tuple[str, ...] = ()
    no_trainer: str = ""
    in_memory: bool = False
    copy: dict[str, object] | None = None

    def has(self, *kinds: Kind) -> bool:
        """Whether one of these was changed."""
        return any(one.kind in kinds for one in self.changes)

    @property
    def descriptions(self) -> list[str]:
        """The changes as text."""
        return [str(one) for one in self.changes]


def _change(one: Reduction) -> str:
    """Both values, and the reason for the change."""
    reason = f", {one.why}" if one.why else ""
    return f"{one.kind.value}: {one.planned} to {one.run}{_SUFFIXES.get(one.kind, '')}{reason}"


_SUFFIXES = {
    Kind.SEQUENCE: " tokens",
    Kind.TRAIN_BATCH: ", with the world size",
    Kind.HPZ_PARTITION: ", with the world size",
    Kind.PERSISTENCE: " elements, so that the small model is partitioned",
    Kind.OFFLOAD_OPTIMIZER: ", because libaio, which NVMe offload needs, is not installed",
    Kind.OFFLOAD_PARAM: ", because libaio, which NVMe offload needs, is not installed",
    Kind.OPTIM: ", because it needs a card",
    Kind.GENERATION: ": transformers generates in the training's own processes",
    Kind.GENERATION_BATCH: ", with the world size",
    Kind.GENERATION_STEPS: ", so that fewer ranks hold whole groups of num_generations",
    Kind.FSDP_OFFLOAD: ": host and device are one memory on a processor",
    Kind.FSDP_LOADING: ", with fsdp_cpu_ram_efficient_loading: FSDP 1 sends weights between cards only",
}


def _world(one: Reduction) -> str:
    return _change(one) if one.planned is not None else f"{one.kind.value}: not in the files; {one.run}"


def _nodes(one: Reduction) -> str:
    own = _mapping(one.run)
    ranks = f"{own['each']} rank{'s' if own['each'] != 1 else ''} each"
    place = f"this is node {own['rank']}, rendezvous at {own['address']}:{own['port']}"
    return f"{one.kind.value}: {own['count']} with {ranks}; {place}"


def _sequence(one: Reduction) -> str:
    return _change(one) if one.planned is not None else f"{one.kind.value}: not stated; {one.run} tokens"


def _model(one: Reduction) -> str:
    if one.run is not None:
        return f"{one.kind.value}: {one.why}; {one.run} runs instead"
    size = f"{one.planned:,} parameters" if isinstance(one.planned, int) else "an unknown number of parameters"
    return f"{one.kind.value}: {size} {one.why}; {', '.join(map(str, one.cuts)) or 'nothing to cut'}"


def _layers(one: Reduction) -> str:
    more = one.run + 1 if isinstance(one.run, int) else "more"
    return f"{one.kind.value}: {one.planned} to {one.run}, all widths as planned; {more} would take {one.why}"


def _bucket(one: Reduction) -> str:
    planned = f"{one.planned:.0f}" if isinstance(one.planned, float) else one.planned
    return f"{one.kind.value}: {planned} to {one.run} elements, allocated in full"


def _drive(one: Reduction) -> str:
    return f"{one.kind.value}: {one.planned} does not exist; a temporary folder instead"


def _card(one: Reduction) -> str:
    own = _mapping(one.run)
    how = "gloo, through the host's memory" if own["collectives"] == "gloo" else own["collectives"]
    return (
        f"{one.kind.value}: {own['ranks']} ranks on one {own['card']}, collectives by {how}; times are not meaningful"
    )


def _saving(one: Reduction) -> str:
    return f"{one.kind.value}: {one.why}"


def _launch(one: Reduction) -> str:
    """Of a handwritten launch line: what it leaves open, under its own name."""
    if one.keys:
        return f"{' '.join(one.keys)}: its value is not in the files; left out"
    return f"{one.kind.value}: the files do not say how it is started; {one.run}"


_DESCRIPTIONS: dict[Kind, Callable[[Reduction], str]] = {
    Kind.WORLD_SIZE: _world,
    Kind.NODES: _nodes,
    Kind.SEQUENCE: _sequence,
    Kind.MODEL: _model,
    Kind.LAYERS: _layers,
    Kind.REDUCE_BUCKET: _bucket,
    Kind.ALLGATHER_BUCKET: _bucket,
    Kind.OPTIMIZER_DRIVE: _drive,
    Kind.PARAM_DRIVE: _drive,
    Kind.SHARED_CARD: _card,
    Kind.SAVING: _saving,
    Kind.LAUNCH: _launch,
}


def _mapping(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value


def _json(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _json(one) for key, one in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)
