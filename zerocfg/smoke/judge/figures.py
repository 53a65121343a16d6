"""What the ranks measured, put together: memory by phase, time, tokens, operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from zerocfg.smoke.model.certificate import Measured
from zerocfg.smoke.worker.report_schema import COUNTED, COUNTER, COUNTERS, MEMORY

if TYPE_CHECKING:
    from zerocfg.smoke.judge.prediction import Expected
    from zerocfg.smoke.model.reduction import Reduced
    from zerocfg.smoke.prepare.device import Device
    from zerocfg.smoke.worker.report_schema import Collectives, Counter, Phase, RankReport

PHASES = ("init", "forward", "backward", "step", "save")
TRAINING = ("forward", "backward", "step")
GIB = 1 << 30


@dataclass(frozen=True)
class Figures:
    """Sizes are bytes, by rank. ``seconds``: of an optimizer step, the median of those after the first, which warms up,
    and before the last, in which collectives are counted, where there are such; ``first``, ``last``: of those two.
    ``collectives``: of each rank, by kind. ``tokens``: of all ranks in one step. ``tflops``: of one rank. None: not
    counted.
    """

    ranks: int
    memory: list[dict[str, Phase]] = field(default_factory=list)
    start: list[Phase] = field(default_factory=list)
    timeline: list[tuple[float, int, str]] = field(default_factory=list)
    on_card: bool = False
    device_memory: int | None = None
    seconds: float | None = None
    first: float | None = None
    last: float | None = None
    collectives: list[dict[str, Collectives]] = field(default_factory=list)
    tokens: int | None = None
    flops: float | None = None
    loss: float | None = None

    @property
    def tokens_per_second(self) -> float | None:
        return self.tokens / self.seconds if self.tokens and self.seconds else None

    @property
    def tflops(self) -> float | None:
        return self.flops / self.seconds / 1e12 if self.flops and self.seconds else None

    @property
    def counter(self) -> Counter:
        """The counter for a rank's memory: torch's allocator on a card, else resident memory of the host."""
        return "allocated" if self.on_card else "rss"

    def peaks(self, counter: Counter, phases: tuple[str, ...] = PHASES) -> list[int | None]:
        """The highest of each rank over these phases."""
        found: list[int | None] = []
        for memory in self.memory:
            sizes = [memory[phase].get(counter) for phase in phases if phase in memory]
            found.append(max((size for size in sizes if size is not None), default=None))
        return found

    def peak(self, counter: Counter | None = None) -> int | None:
        """The highest of all ranks."""
        return max((size for size in self.peaks(counter or self.counter) if size is not None), default=None)

    def grown(self) -> list[int | None]:
        """Resident memory of each rank at its highest, less what its libraries took before the model was made."""
        before = [item.get("rss") for item in self.start]
        peaks = self.peaks("rss")
        return [None if most is None or old is None else most - old for most, old in zip(peaks, before, strict=False)]

    def measured(self) -> Measured:
        """As a certificate holds it."""
        return Measured(
            peaks=tuple(self.peaks(self.counter)),
            memory=tuple(
                {
                    phase: {"seconds": item.get("seconds"), **_sizes(item)}
                    for phase, item in rank.items()
                    if phase in PHASES
                }
                for rank in self.memory
            ),
            start=tuple(map(_sizes, self.start)),
            device_memory=self.device_memory,
            of=self.counter,
            points=tuple(self.timeline),
            median=self.seconds,
            first=self.first,
            collectives=tuple(
                {kind: {name: item[name] for name in COUNTED} for kind, item in rank.items()}
                for rank in self.collectives
            ),
            tokens=self.tokens,
            tokens_per_second=None if self.tokens_per_second is None else round(self.tokens_per_second, 2),
            tflops=None if self.tflops is None else round(self.tflops, 6),
        )


def figures(
    reduced: Reduced, device: Device, reports: list[RankReport], expected: Expected | str | None = None
) -> Figures:
    """What the reports hold; a rank that reported nothing has empty places."""
    times = _slowest([report.get("step_seconds") or [] for report in reports])
    seen = [report.get("seen") or {} for report in reports]
    first = seen[0] if seen else {}
    micro, accumulation = first.get("micro_batch"), first.get("gradient_accumulation_steps") or 1
    tokens = None
    if isinstance(micro, int) and isinstance(accumulation, int) and reduced.trainer is None:
        tokens = micro * accumulation * reduced.sequence * len(reports)
    losses = reports[0].get("losses") if reports else None
    collectives = [report.get("collectives") or {} if _counted(report, COUNTER) else {} for report in reports]
    return Figures(
        ranks=reduced.ranks,
        memory=[report.get("memory") or {} if _counted(report, MEMORY) else {} for report in reports],
        start=[report.get("memory_start") or {} for report in reports],
        timeline=_timeline(reports[0]) if reports and _counted(reports[0], MEMORY) else [],
        on_card=device.kind == "cuda",
        device_memory=next((report["device_memory"] for report in reports if "device_memory" in report), None),
        seconds=_usual(times, counted=any(collectives)),
        first=times[0] if times else None,
        last=times[-1] if times else None,
        collectives=collectives if any(collectives) else [],
        tokens=tokens,
        flops=None if expected is None or isinstance(expected, str) else expected.flops,
        loss=losses[-1] if losses else None,
    )


def _counted(report: RankReport, instrument: str) -> bool:
    """Whether the instrument measured to its end: the peaks of a part of a run would be too small."""
    return not report.get("instruments", {}).get(instrument)


def _usual(times: list[float], counted: bool) -> float | None:
    """The median without the first step, and without the one in which collectives were counted."""
    warm = times[1:-1] if counted and len(times) > 2 else times[1:]
    return round(median(warm), 4) if warm else None


def _sizes(phase: Phase) -> dict[str, float | None]:
    return {name: phase.get(name) for name in COUNTERS}


def _timeline(report: RankReport) -> list[tuple[float, int, str]]:
    """(seconds, bytes, phase), in that order."""
    return [
        (seconds, size, phase)
        for seconds, size, phase in report.get("timeline") or []
        if isinstance(seconds, (int, float)) and isinstance(size, int) and isinstance(phase, str)
    ]


def _slowest(by_rank: list[list[float]]) -> list[float]:
    """Seconds of each step that all ranks ended: a step is over when the last rank is through."""
    if not by_rank:
        return []
    return [max(times) for times in zip(*by_rank, strict=False)]
