"""What the program that measures is asked, and what it answers: JSON both, in these forms."""

from __future__ import annotations

from typing import TypedDict


class Request(TypedDict, total=False):
    """``task`` is "devices" (describe the devices that torch.xpu sees) or "ranks"; what follows is for ranks."""

    task: str
    measure: bool  # else only gather
    profile: dict[str, object] | None  # what this rank's node found
    node: str  # a name that the ranks of a node share
    patience: float  # seconds to wait for the other ranks
    cpus: int  # that this node's measurements may use


class Rates(TypedDict, total=False):
    """An all-reduce."""

    ranks: int
    busbw_gb_s: float
    latency_us: float


class Report(TypedDict, total=False):
    """What one rank found; from ``device`` on only where it measured, and what it could measure."""

    node: str
    host: str
    local_rank: int
    profile: dict[str, object] | None
    notes: list[str]
    device: str  # cuda, xpu or cpu
    threads: int
    torch: str
    matrix_products: dict[str, float]  # TFLOP/s by precision
    memory_of_the_device: float  # GB/s, as those below
    memory_of_the_host: float
    copies_from_and_to_the_host: float
    launch_of_a_kernel: float  # microseconds
    links: dict[str, Rates]


class XpuDevice(TypedDict):
    """A device as torch.xpu describes it; ``total`` in bytes."""

    name: str
    total: int
    driver: str
    bf16: bool | None


class Answer(TypedDict, total=False):
    """``devices``, or ``ranks`` (one report each, in their order), or ``error`` (one line)."""

    devices: list[XpuDevice]
    ranks: list[Report]
    error: str
