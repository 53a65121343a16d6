"""The checks in the order by value: what tells most for its seconds comes first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from benchmarks.gpu.budget import Clock
from benchmarks.gpu.commands import Command
from benchmarks.gpu.contract import Contract
from benchmarks.gpu.host_cost import HostCost, write_cases
from benchmarks.gpu.place import ROOT, Place
from benchmarks.gpu.record import Record
from benchmarks.gpu.sharing_ways import SharingWays
from benchmarks.gpu.smoke_runs import OVER_GLOO, PICTURE, SmokeRun
from benchmarks.gpu.sweeps import Sweep

MEMORY, PLAN = ROOT / "benchmarks" / "memory" / "gpu.py", ROOT / "benchmarks" / "plan" / "gpu.py"
STAGES, TINY = "examples/stages/zerocfg.yaml", "benchmarks/gpu/tiny/zerocfg.yaml"
ONE = ("--ranks", "1")
SHARED = ("--ranks", "2", "--share-gpu")
WHOLE = ("parameters change", "saved parameters", "loaded by from_pretrained", "resumes from a checkpoint")
"""Checks of a certificate that show a whole life: trained, saved, reloaded, resumed."""
ON_PROCESSOR = 5
"""Times as many seconds for each check on a processor."""
CONTRACT = "contract"


class Playable(Protocol):
    def play(self, place: Place, record: Record, clock: Clock) -> bool: ...


@dataclass(frozen=True)
class Check:
    """``limit``: seconds after which the check is ended; with fewer than ``least`` it is not started.

    ``side_by_side``: runs at the same time as its neighbours that have this too.
    """

    name: str
    work: Playable
    least: float
    limit: float
    side_by_side: bool = False


IN_ORDER = (
    Check(CONTRACT, Contract(), 15, 60),
    Check("tiny-zero2", SmokeRun(STAGES, "stage-zero2", ONE, shows=WHOLE), 30, 90, True),
    Check("quickstart", SmokeRun("examples/quickstart/zerocfg.yaml", "quickstart", ONE, shows=WHOLE), 30, 90, True),
    Check("tiny-fsdp2", SmokeRun(TINY, "fsdp2", ONE, shows=WHOLE, on_processor=("--ranks", "2")), 30, 90, True),
    Check("tiny-cpu-offload", SmokeRun(TINY, "offload", ONE, shows=WHOLE), 30, 90, True),
    Check("tiny-ddp", SmokeRun(STAGES, "ddp", ONE, shows=WHOLE), 30, 90, True),
    Check("share-gpu", SmokeRun(STAGES, "stage-zero3", SHARED, shows=WHOLE), 30, 90, True),
    Check("sft-zero2", SmokeRun("examples/sft-zero2/zerocfg.yaml", "sft", ONE), 50, 90),
    Check("fsdp", SmokeRun("examples/fsdp/zerocfg.yaml", "fsdp", ONE), 50, 90),
    Check(
        "memory-second-round",
        Sweep("memory-second-round", MEMORY, 60, "compare_gpu.py", predictions="predictions-second-round"),
        40,
        240,
    ),
    Check(
        "two-ranks-gloo",
        SmokeRun("examples/pretrain-zero1/zerocfg.yaml", "pretrain", SHARED, program=OVER_GLOO),
        60,
        100,
    ),
    Check(
        "host-cost",
        HostCost(Sweep("host-cost", PLAN, 20, place_predictions=write_cases, reads_predictions=True)),
        30,
        75,
    ),
    Check("plan", Sweep("plan", PLAN, 60, "compare.py", by_model=60, reads_predictions=True), 40, 200),
    Check("memory", Sweep("memory", MEMORY, 75, "compare_gpu.py"), 40, 150),
    Check("probe", Command(("probe", "--measure")), 20, 90),
    Check(
        "preflight",
        Command(("preflight", "--on", "local", "--output-format", "json"), ("--device", "cpu", "--ranks", "2")),
        20,
        75,
    ),
    Check(
        "max-batch",
        SmokeRun("examples/ddp/zerocfg.yaml", "ddp", (*ONE, "--find-max-batch"), launches=4),
        200,
        300,
    ),
    Check("sharing-ways", SharingWays(), 40, 150),
    Check("zero2-cpu-offload", SmokeRun("examples/zero2-cpu-offload/zerocfg.yaml", "offload", ONE), 90, 180),
    Check("zero3-nvme", SmokeRun("examples/zero3-nvme/zerocfg.yaml", "nvme", ONE), 60, 120),
    Check(
        "compare",
        SmokeRun(
            "examples/pretrain-zero1/zerocfg.yaml",
            "pretrain",
            (*ONE, "--compare", "0,2,3", "--picture", PICTURE),
            launches=4,
        ),
        120,
        300,
    ),
)
"""Last comes what takes most seconds for what it tells: offload compiles, a comparison launches four times."""
