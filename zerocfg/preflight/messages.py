"""The lines that a rank prints: ``zerocfg-preflight {"kind": ..., "rank": ...}``, one fact or figure each.

A rank that dies leaves those that it printed; anything else on its standard output is somebody else's.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from zerocfg.models.hardware import HardwareProfile

PREFIX = "zerocfg-preflight "


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    rank: int = Field(ge=0)


class Folder(BaseModel):
    """A place that a job writes to. ``free_gib`` None: it cannot be written to."""

    model_config = ConfigDict(frozen=True)

    role: str
    path: str
    free_gib: float | None = None


class Card(BaseModel):
    """Memory of a device, before this job uses any of it."""

    model_config = ConfigDict(frozen=True)

    free_gib: float
    usable_gib: float


class NodeFacts(BaseModel):
    """What the first rank of a node says of it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    profile: HardwareProfile
    releases: dict[str, str] = {}
    """By name of the package; without those that are not installed."""
    environment: dict[str, str] = {}
    """Variables that change a training; secrets are masked."""
    cards: list[Card] = []
    folders: list[Folder] = []
    open_files: int | None = None
    """Most files that a process may have open (soft limit); None: no limit, or not known."""


class Facts(_Message):
    """The first line of a rank, before it waits for any other."""

    kind: Literal["facts"] = "facts"
    local_rank: int = Field(ge=0)
    world: int = Field(ge=1)
    node: str
    """The ranks of one node share it."""
    host: str
    """As the scheduler names the node."""
    time: float
    """Its clock, in seconds since 1970 (UTC)."""
    facts: NodeFacts | None = None
    """From the rank with the local rank 0."""


class Stage(_Message):
    """What a rank begins to do, for those that never end it."""

    kind: Literal["stage"] = "stage"
    name: str
    step: int = Field(ge=0)
    """Steps that all ranks take together are counted, so that it can be told where they stopped."""


class Missing(_Message):
    """Rank 0 goes on without these, which did not come within ``seconds``."""

    kind: Literal["missing"] = "missing"
    ranks: list[int]
    seconds: float


class Clock(_Message):
    """The clock of a node against that of rank 0's."""

    kind: Literal["clock"] = "clock"
    ahead_s: float
    within_s: float = Field(ge=0)
    """Half of the shortest round trip: how exact it is."""


class Local(_Message):
    """What a rank does by itself, while all the others do the same."""

    kind: Literal["local"] = "local"
    what: str
    unit: str
    rate: float = Field(gt=0)
    attempt: int
    sweep: int
    like: str = ""
    """Only rates that are alike in this are compared."""
    cpu: float | None = None
    """CPUs that the rank's thread had meanwhile; None: it was waiting for a device."""


class Pair(_Message):
    """An exchange of ``megabytes`` in both directions with the rank ``partner``, told by the lower of the two."""

    kind: Literal["pair"] = "pair"
    partner: int
    megabytes: float
    seconds: float = Field(gt=0)
    attempt: int
    sweep: int
    like: str = ""


class Collective(_Message):
    """Of all ranks, of a node's (then ``node`` names it) or around the ring; told by the first of them."""

    kind: Literal["collective"] = "collective"
    what: str
    ranks: int
    busbw_gb_s: float = Field(gt=0)
    attempt: int
    sweep: int
    node: str = ""


class Problem(_Message):
    """Why a rank could not go on."""

    kind: Literal["problem"] = "problem"
    what: Literal["torch", "port", "meeting", "local", "exchange", "collective", "result"]
    stage: str
    step: int
    message: str
    partner: int | None = None


class Done(_Message):
    """A rank came to its end after ``seconds``, ``importing`` of them until torch was there."""

    kind: Literal["done"] = "done"
    seconds: float
    importing: float = 0.0


Message = Facts | Stage | Missing | Clock | Local | Pair | Collective | Problem | Done
_ANY: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="kind")])


def line(message: Message) -> str:
    """The message as it is printed, without the line end."""
    return PREFIX + message.model_dump_json(exclude_none=True)


def read(text: str) -> Message | None:
    """The message of a line, whatever a scheduler put before it; None for any other line, and for half of one."""
    _, found, content = text.partition(PREFIX)
    if not found:
        return None
    try:
        return _ANY.validate_json(content)
    except ValidationError:
        return None
