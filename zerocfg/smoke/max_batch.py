"""The largest micro batch that fits, found by real launches around the predicted one."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from zerocfg.smoke.judge.measured import peak_in, ran_out
from zerocfg.smoke.judge.prediction import largest_expected
from zerocfg.smoke.launch import warm
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.prepare.folder import RunFolder
from zerocfg.smoke.worker import memory_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerocfg.smoke.judge.verdict import Verdict
    from zerocfg.smoke.launch.process import Outcome
    from zerocfg.smoke.smoke import Options
    from zerocfg.smoke.worker.report_schema import Counter

    Launch = Callable[[RunFolder, Options], Verdict]

ON_PROCESSOR, ON_CARD = 64, 4096
"""Samples at which a search without a limit ends. A processor has only the machine's limit."""


@dataclass
class Bracket:
    """The state of a search: ``low`` fits (0: none known), ``high`` does not (None: none known)."""

    upper: int
    low: int = 0
    high: int | None = None

    def add(self, batch: int, fits: bool) -> None:
        if fits:
            self.low = max(self.low, batch)
        else:
            self.high = batch if self.high is None else min(self.high, batch)

    @property
    def closed(self) -> bool:
        """Whether nothing is left to try."""
        return self.low >= self.upper or (self.high is not None and self.high - self.low <= 1)


def search(
    fits: Callable[[int], bool], guess: int, upper: int, launches: int | None = None, known: Bracket | None = None
) -> Bracket:
    """Ask ``fits`` for micro batches from 1 to ``upper``, beginning with ``guess``; ``known``: what need not be asked.

    What fits is assumed to fit in smaller batches, too. The bracket is closed unless ``launches`` were not enough.
    """
    bracket = known or Bracket(upper)
    batch = min(max(1, guess, bracket.low + 1), upper)
    if bracket.high is not None:
        batch = max(1, min(batch, bracket.high - 1))
    step = max(1, batch // 8)
    done = 0
    while not bracket.closed and (launches is None or done < launches):
        bracket.add(batch, fits(batch))
        done += 1
        if bracket.high is None:
            batch = min(bracket.low + step, upper)
            step *= 2
        elif bracket.low == 0:
            batch = max(bracket.high - step, 1)
            step *= 2
        else:
            batch = (bracket.low + bracket.high) // 2
    return bracket


@dataclass(frozen=True)
class Try:
    """One launch. ``peak``: bytes of the rank that held most; ``why``: the reason of its failure."""

    batch: int
    fits: bool
    peak: int | None
    tokens_per_second: float | None
    seconds: float
    why: str = ""

    def data(self) -> dict[str, object]:
        """As JSON."""
        return {
            "micro_batch": self.batch,
            "fits": self.fits,
            "peak_memory_bytes": self.peak,
            "tokens_per_second": None if self.tokens_per_second is None else round(self.tokens_per_second, 1),
            "launch_seconds": round(self.seconds, 1),
            "why": self.why,
        }


@dataclass
class Found:
    """``largest``: None when not even one sample fits. ``verdict``: that of the largest, else of the last launch;
    ``first``: of the first launch, which has the planned micro batch unless that is above the end of the search.

    ``problem``: a launch that failed for another reason than memory, which ended the search.
    """

    run: RunFolder
    guess: int
    upper: int
    predicted: int | None
    tries: list[Try] = field(default_factory=list)
    bracket: Bracket | None = None
    verdict: Verdict | None = None
    first: Verdict | None = None
    problem: str | None = None
    limit: int | None = None

    @property
    def largest(self) -> int | None:
        return max((item.batch for item in self.tries if item.fits), default=None)

    @property
    def certain(self) -> bool:
        """Whether the next larger one is known not to fit, or the end of the search was reached."""
        return self.problem is None and self.bracket is not None and self.bracket.closed

    @property
    def interrupted(self) -> bool:
        return self.verdict is not None and self.verdict.outcome.interrupted

    @property
    def fastest(self) -> Try | None:
        """The launch with most tokens per second; of equals, within 3 percent, the smallest."""
        rated = [item for item in self.tries if item.fits and item.tokens_per_second]
        most = max((item.tokens_per_second or 0 for item in rated), default=0)
        good = [item for item in rated if (item.tokens_per_second or 0) >= 0.97 * most]
        return min(good, key=lambda item: item.batch, default=None)

    @property
    def faithful(self) -> bool:
        """Whether model, sequence and ranks were those of the plan, so that the figure holds for the job itself."""
        return self.verdict is not None and faithful(self.verdict)

    def data(self) -> dict[str, object]:
        """As JSON."""
        fastest = self.fastest
        return {
            "run": self.run.name,
            "largest": self.largest,
            "certain": self.certain,
            "fastest": fastest.batch if fastest else None,
            "planned": self.run.plan.get("train_micro_batch_size_per_gpu"),
            "predicted": self.predicted,
            "upper": self.upper,
            "memory_limit_bytes": self.limit,
            "launches": len(self.tries),
            "holds_for_the_plan": self.faithful,
            "reductions": self.verdict.reduced.descriptions if self.verdict is not None else [],
            "tries": [item.data() for item in self.tries],
            "problem": self.problem,
        }


def faithful(verdict: Verdict) -> bool:
    """Whether the ranks trained the planned model on as many ranks."""
    planned = verdict.run.lock.model_config
    return verdict.reduced.model == planned and verdict.run.plan.get("num_processes") == verdict.reduced.ranks


def with_batch(run: RunFolder, batch: int) -> RunFolder:
    """The run with this micro batch on every rank; accumulation stays, so the global batch changes."""
    changed = replace(run, lock=copy.deepcopy(run.lock), deepspeed=copy.deepcopy(run.deepspeed))
    plan, config = changed.plan, changed.deepspeed
    before = plan.get("train_micro_batch_size_per_gpu")
    plan["train_micro_batch_size_per_gpu"] = batch
    for holder in (plan, config or {}):
        whole = holder.get("train_batch_size")
        if isinstance(whole, int) and isinstance(before, int) and before > 0:
            holder["train_batch_size"] = whole // before * batch
    if config is not None and "train_micro_batch_size_per_gpu" in config:
        config["train_micro_batch_size_per_gpu"] = batch
    changed.lock.recipe["per_device_train_batch_size"] = batch
    settings = changed.lock.settings
    for name in ("train_micro_batch_size_per_gpu", "train_batch_size", "per_device_train_batch_size"):
        if name in settings and name in plan:
            settings[name] = replace(settings[name], value=plan[name])
    return changed


def find(
    run: RunFolder,
    options: Options,
    launch: Launch,
    *,
    upper: int | None = None,
    launches: int | None = None,
    on_try: Callable[[Try], None] | None = None,
) -> Found:
    """Search the largest micro batch of ``run``. ``launch`` launches once; ``on_try`` is called after every launch.

    A launch that finds no memory bounds the search; one that fails for another reason ends it. Raises SmokeError when
    nothing could be tried.
    """
    if run.handwritten is not None:
        raise SmokeError("a largest micro batch is searched only in runs that `zerocfg build` wrote")
    planned = run.plan.get("train_micro_batch_size_per_gpu")
    first = min(planned if isinstance(planned, int) and planned > 0 else 1, upper or ON_CARD)
    found = Found(run, first, upper or ON_CARD, None, limit=options.memory_limit)

    def fits(batch: int) -> bool:
        pinned = found.verdict.reduced if found.verdict is not None else run.pinned
        verdict = launch(replace(with_batch(run, batch), pinned=pinned), options)
        one = tried(batch, verdict)
        found.tries.append(one)
        found.first = found.first or verdict
        if one.fits or found.verdict is None or found.largest is None:
            found.verdict = verdict
        if on_try is not None:
            on_try(one)
        if verdict.outcome.interrupted or (not one.fits and not no_memory(verdict.outcome)):
            found.verdict = verdict
            raise _EndError(verdict.outcome.failure or "it was interrupted")
        return one.fits

    try:
        with warm.shared_imports():
            # The planned batch tells what model runs here on which device, and so what can be predicted.
            good = fits(first)
            _aim(found, first, upper)
            found.bracket = Bracket(found.upper)
            found.bracket.add(first, good)
            search(fits, found.guess, found.upper, None if launches is None else launches - 1, found.bracket)
    except _EndError as end:
        found.problem = str(end)
    return found


class _EndError(Exception):
    """The search cannot continue."""


def _aim(found: Found, first: int, upper: int | None) -> None:
    """Where the search begins and ends, by what the first launch showed."""
    verdict = found.verdict
    assert verdict is not None
    on_card = verdict.device.kind == "cuda"
    found.upper = max(upper or (ON_CARD if on_card else ON_PROCESSOR), 1)
    # A rank reports the size of its card, also where nvidia-smi does not.
    room = found.limit or ((verdict.device.memory or verdict.figures.device_memory) if on_card else None)
    # What the limit counts: torch's reserve for a fraction of a card, the driver for the whole, else resident memory.
    counter: Counter = "rss" if not on_card else "reserved" if found.limit else "device"
    peak = verdict.figures.peak(counter)
    seen = (first, peak) if peak is not None and found.largest == first else None
    if room is not None:
        found.predicted = largest_expected(verdict.reduced, verdict.device, found.run.consumer, room, seen)
    found.guess = min(found.predicted or 2 * first, found.upper)


def tried(batch: int, verdict: Verdict) -> Try:
    """The result of one launch. One that trained fits, even if checks failed."""
    outcome, seen = verdict.outcome, verdict.figures
    good = outcome.failure is None and seen.first is not None
    why = "" if good else no_memory(outcome) or outcome.failure or "no step was made"
    return Try(batch, good, peak_in(seen), seen.tokens_per_second, outcome.seconds, why)


def no_memory(outcome: Outcome) -> str:
    """How a launch ran out of memory; empty for other failures."""
    out = ran_out(outcome)
    if out is not None:
        return f"rank {out[0]} ran out of the {out[1]}'s memory"
    if outcome.kind == "memory":
        return outcome.failure or "memory ran out"
    # A process that a library aborted has no exception to report; its last words are in the log.
    aborted = outcome.kind in ("killed", "launcher")
    place = memory_errors.place("", "\n".join([outcome.failure or "", *outcome.detail])) if aborted else None
    return f"a library found no memory of the {place}" if place is not None else ""
