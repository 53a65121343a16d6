"""Schema of a rank's report, ``rank<N>.json``. An absent field is not known yet, or not here.

Written by `report.Report` and the modules that fill it; read by the parent, which validates it against these types
(`zerocfg.smoke.launch.rank_reports`). All sizes are bytes unless they are called elements.
"""

from __future__ import annotations

from typing import Literal, TypedDict

# Typing's NotRequired is younger than Python 3.10, so every field may be absent.


Counter = Literal["allocated", "reserved", "device", "rss", "pinned"]
COUNTERS: tuple[Counter, ...] = ("allocated", "reserved", "device", "rss", "pinned")
"""The counters of memory."""
CHECKSUMS, MOMENTS, RATE, LOSS = "checksums", "optimizer moments", "learning rate", "loss"
PARAMETERS = "parameters"
MEMORY, COUNTER, WEIGHTS = "memory recorder", "collective counter", "saved weights"
READ_BACK = "read-back"
"""Names of instruments in ``instruments``; those that ask the engine begin with the last one."""
ABSENT = "another rank did not take part"
"""The reason of an instrument that broke on another rank only."""
FLAGS = "flags"
"""Among the kinds of collectives: norms, flags and counts of a few elements."""
REFERENCE = "reference model"
"""Among ``settings`` of a trainer of TRL: "loaded" or "none"."""


class Failure(TypedDict, total=False):
    """The error that ended a rank: its class, its text, seconds of the clock, and lines of the traceback."""

    type: str
    text: str
    time: float
    traceback: list[str]


class Master(TypedDict, total=False):
    """The weights that the optimizer steps on. ``elements`` of this rank."""

    elements: int
    dtypes: list[str]
    devices: list[str]
    pinned: bool


class Held(TypedDict, total=False):
    """What of a model is held where, in elements: ``parameters`` of all, ``shard`` what this rank keeps (stage 3).

    ``tensors``, ``kept_whole`` and ``groups`` are counts; ``experts``: the model has such.
    """

    ranks: int
    parameters: int
    trainable: int
    tensors: int
    experts: bool
    shard: int
    shard_devices: list[str]
    kept_whole: int
    groups: int
    master: Master


class States(TypedDict, total=False):
    """One state of the optimizer on this rank, in elements."""

    elements: int
    devices: list[str]
    dtypes: list[str]


class Seen(TypedDict, total=False):
    """Values read back from the live engine, or from the loop around it.

    ``settings``: values where they act; ``parsed``: those that the engine only holds in its config; both by the names
    of the lock or of TrainingArguments. ``trainer``: the class of a Trainer that trains. ``nccl`` and ``worked``: of a
    trial of a shared card.
    """

    world_size: int
    engine: str
    stage: int
    micro_batch: int
    gradient_accumulation_steps: int
    gradient_clipping: object
    dtype: str
    offload_optimizer: str
    offload_param: str
    optimizer: str
    partitioned: int
    device: str
    device_name: str
    held: Held
    states: States
    settings: dict[str, object]
    parsed: dict[str, object]
    trainer: str
    nccl: str
    worked: list[str]


class Weights(TypedDict, total=False):
    """The saved weights beside the live model's.

    ``expected``, ``saved``: elements; ``missing``, ``short``, ``other``: names of tensors that are not there, not
    whole, or have other values; ``compared``: how many were compared; ``dtypes``, ``live_dtypes``: elements by dtype;
    ``loadable`` None, or why `from_pretrained` does not take them.
    """

    file: str
    expected: int
    saved: int
    missing: list[str]
    short: list[str]
    other: list[str]
    compared: int
    dtypes: dict[str, int]
    live_dtypes: dict[str, int]
    loadable: str | None


Part = TypedDict(
    "Part",
    {
        "state": str,
        "why": str,
        "memory": bool,
        "time": float,
        "from": int,
        "before": list[float],
        "losses": list[float],
        "rates": "list[float | None]",
        "steps": int,
        "momentum": "float | None",
        "differing": int,
        "of": int,
        "parameters": int,
    },
    total=False,
)
"""A training after the planned one. ``state`` "running", "done", "failed" or "skipped", of the last two ``why``;
``memory``: it failed for want of memory; ``time``: when it failed, by the clock. ``from``: steps behind the checkpoint;
``before``: the losses of the training that wrote it; ``differing`` ``of`` so many parameters have other bits.
``parameters``: elements of the model, where it is a narrow copy."""
NARROW = "narrow"
"""Among the parts: the planned training of a narrow copy, with which the others are compared then."""


class Phase(TypedDict, total=False):
    """The peaks of one phase, and the ``seconds`` in all of its ``times``."""

    seconds: float
    times: int
    allocated: int | None
    reserved: int | None
    device: int | None
    rss: int | None
    pinned: int | None


Counted = Literal["calls", "payload", "sent", "seconds"]
COUNTED: tuple[Counted, ...] = ("calls", "payload", "sent", "seconds")
"""What is counted of a kind of collectives."""


class Collectives(TypedDict, total=False):
    """The collectives of one kind in one optimizer step: ``payload`` of the whole buffers, ``sent`` by this rank in a
    ring."""

    calls: int
    payload: int
    sent: int
    seconds: float


class Command(TypedDict, total=False):
    """The user's own command: the loop that is watched, whether zerocfg stopped it, and its files."""

    loop: str | None
    world_size: int
    program: list[str]
    stopped: bool
    left: bool
    saved: str
    redirected: list[str]
    wrote: list[str]
    removed: list[str]


class RankReport(TypedDict, total=False):
    """One rank. ``losses``: one a micro step; ``step_seconds``, ``rates``: one an optimizer step.

    ``parameters``: elements; ``sums``: checksums of the parameters by name; ``changed``: how many of them training
    changed. ``timeline``: [seconds, bytes, phase]. ``collectives``: by kind, in the last step. ``trial_rate``: the
    learning rate that took the place of lower planned ones. ``instruments``: as `fence.Fence.instruments`. ``trained``:
    the planned training is over, its weights are saved and read back. ``apart``: the part in which this rank failed
    while others wait for it in a collective operation.
    """

    rank: int
    pid: int
    phase: str
    done: bool
    error: Failure
    seen: Seen
    losses: list[float]
    step_seconds: list[float]
    rates: list[float | None]
    parameters: int
    sums: dict[str, int]
    changed: int
    momentum: float | None
    skipped_steps: int
    trial_rate: float
    instruments: dict[str, str]
    trained: bool
    apart: str
    parts: dict[str, Part]
    weights: Weights
    versions: dict[str, str]
    memory: dict[str, Phase]
    memory_start: Phase
    device_memory: int
    timeline: list[list[float | str]]
    collectives: dict[str, Collectives]
    command: Command
