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
            found["cuts"] = [{"key": item.key, "planned": item.planned, "run": item.run} for item in self.cuts]
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
        return any(change.kind in kinds for change in self.changes)

    @property
    def descriptions(self) -> list[str]:
        """The changes as text."""
        return [str(change) for change in self.changes]


def _change(reduction: Reduction) -> str:
    """Both values, and the reason for the change."""
    reason = f", {reduction.why}" if reduction.why else ""
    return f"{reduction.kind.value}: {reduction.planned} to {reduction.run}{_SUFFIXES.get(reduction.kind, '')}{reason}"


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


def _world(reduction: Reduction) -> str:
    return (
        _change(reduction)
        if reduction.planned is not None
        else f"{reduction.kind.value}: not in the files; {reduction.run}"
    )


def _nodes(reduction: Reduction) -> str:
    own = _mapping(reduction.run)
    ranks = f"{own['each']} rank{'s' if own['each'] != 1 else ''} each"
    place = f"this is node {own['rank']}, rendezvous at {own['address']}:{own['port']}"
    return f"{reduction.kind.value}: {own['count']} with {ranks}; {place}"


def _sequence(reduction: Reduction) -> str:
    return (
        _change(reduction)
        if reduction.planned is not None
        else f"{reduction.kind.value}: not stated; {reduction.run} tokens"
    )


def _model(reduction: Reduction) -> str:
    if reduction.run is not None:
        return f"{reduction.kind.value}: {reduction.why}; {reduction.run} runs instead"
    size = (
        f"{reduction.planned:,} parameters" if isinstance(reduction.planned, int) else "an unknown number of parameters"
    )
    return f"{reduction.kind.value}: {size} {reduction.why}; {', '.join(map(str, reduction.cuts)) or 'nothing to cut'}"


def _layers(reduction: Reduction) -> str:
    more = reduction.run + 1 if isinstance(reduction.run, int) else "more"
    kept = f"{reduction.planned} to {reduction.run}, all widths as planned"
    return f"{reduction.kind.value}: {kept}; {more} would take {reduction.why}"


def _bucket(reduction: Reduction) -> str:
    planned = f"{reduction.planned:.0f}" if isinstance(reduction.planned, float) else reduction.planned
    return f"{reduction.kind.value}: {planned} to {reduction.run} elements, allocated in full"


def _drive(reduction: Reduction) -> str:
    return f"{reduction.kind.value}: {reduction.planned} does not exist; a temporary folder instead"


def _card(reduction: Reduction) -> str:
    own = _mapping(reduction.run)
    how = "gloo, through the host's memory" if own["collectives"] == "gloo" else own["collectives"]
    shared = f"{own['ranks']} ranks on one {own['card']}, collectives by {how}"
    return f"{reduction.kind.value}: {shared}; times are not meaningful"


def _saving(reduction: Reduction) -> str:
    return f"{reduction.kind.value}: {reduction.why}"


def _launch(reduction: Reduction) -> str:
    """Of a handwritten launch line: what it leaves open, under its own name."""
    if reduction.keys:
        return f"{' '.join(reduction.keys)}: its value is not in the files; left out"
    return f"{reduction.kind.value}: the files do not say how it is started; {reduction.run}"


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
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)
