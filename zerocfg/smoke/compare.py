"""The same run under several ZeRO stages, and without: memory, throughput, the largest micro batch, the loss."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from zerocfg.models.model_facts import from_config
from zerocfg.smoke.judge.measured import peak_in, size
from zerocfg.smoke.launch import warm
from zerocfg.smoke.max_batch import Found, find, no_memory
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.prepare.folder import RunFolder
from zerocfg.smoke.prepare.reduce import reduce
from zerocfg.smoke.prepare.strategies import label, with_strategy
from zerocfg.source import boundary
from zerocfg.terminal.table import Column, folded, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerocfg.smoke.judge.verdict import Verdict
    from zerocfg.smoke.max_batch import Try
    from zerocfg.smoke.model.reduction import Reduced
    from zerocfg.smoke.smoke import Options

    Launch = Callable[[RunFolder, Options], Verdict]

SAME = 0.02
"""Relative difference allowed between the losses of two setups, whose 16-bit sums differ in order and rounding."""


@dataclass
class Row:
    """One strategy. ``dropped``: settings of the config set that it does not have. ``batches``: where searched.

    ``verdict`` None: it was not tried, and ``problem`` says why.
    """

    strategy: str
    dropped: list[str] = field(default_factory=list)
    verdict: Verdict | None = None
    batches: Found | None = None
    problem: str = ""

    @property
    def ended(self) -> bool:
        """Whether it trained to the end; failed checks of the configs do not matter here."""
        return self.verdict is not None and self.verdict.outcome.failure is None

    def data(self) -> dict[str, object]:
        """As JSON."""
        found: dict[str, object] = {
            "way": self.strategy,
            "dropped": self.dropped,
            "ended": self.ended,
            "problem": self.problem,
        }
        if self.verdict is not None:
            seen, expected = self.verdict.figures, self.verdict.expected
            found |= {
                **seen.measured().figures(),
                "peak_memory_bytes": seen.peaks(seen.counter),
                "training_memory_bytes": seen.grown() if not seen.on_card else seen.peaks("allocated"),
                "loss": seen.loss,
                "predicted": {"unknown": expected} if isinstance(expected, str) else expected.data(),
                "failed_checks": [check.name for check in self.verdict.checks if check.ok is False],
            }
        found["max_batch"] = self.batches.data() if self.batches is not None else None
        return found


@dataclass
class Comparison:
    """All strategies of one run, on the same model and samples."""

    run: RunFolder
    rows: list[Row] = field(default_factory=list)

    @property
    def first(self) -> Verdict | None:
        return next((row.verdict for row in self.rows if row.verdict is not None), None)

    @property
    def interrupted(self) -> bool:
        return any(row.verdict is not None and row.verdict.outcome.interrupted for row in self.rows)

    @property
    def losses_agree(self) -> bool | None:
        """Of the setups with the same start, see `unlike`. None: fewer than two are known."""
        alike = [row.verdict for row in self.rows if row.ended and row.verdict is not None and not unlike(row)]
        known = [item.figures.loss for item in alike if item.figures.loss is not None]
        if len(known) < 2:
            return None
        return max(known) - min(known) <= SAME * max(abs(item) for item in known)

    @property
    def good(self) -> bool:
        """Every strategy trained to its end, with the same loss."""
        return all(row.ended for row in self.rows) and self.losses_agree is not False

    def data(self) -> dict[str, object]:
        """As JSON."""
        first = self.first
        return {
            "version": 1,
            "run": self.run.name,
            "device": None if first is None else {"kind": first.device.kind, "name": first.device.name},
            "ranks": None if first is None else first.reduced.ranks,
            "reductions": [] if first is None else first.reduced.descriptions,
            "losses_agree": self.losses_agree,
            "rows": [row.data() for row in self.rows],
        }


def unlike(row: Row) -> str:
    """Why the losses of this setup legitimately differ from the others; empty where they should agree."""
    if row.strategy == "3":
        return "ZeRO-3 makes the model in shards, and so its random weights in another order"
    reports = row.verdict.outcome.reports if row.verdict is not None else []
    if row.strategy == "0" and reports and (reports[0].get("seen") or {}).get("dtype") != "fp32":
        return "ZeRO-0 in 16 bit begins with an optimizer step of empty gradients, which moves Adam's bias correction"
    return ""


def compare(
    run: RunFolder,
    strategies: list[str],
    options: Options,
    launch: Launch,
    pin: Callable[[RunFolder, Options], Reduced],
    *,
    search: dict[str, int | None] | None = None,
    on_try: Callable[[str, Try | None], None] | None = None,
) -> Comparison:
    """Launch every strategy. ``pin`` reduces a run without launching it; ``search``: the bounds of `max_batch.find`,
    None for no search. Raises SmokeError when the run cannot be tried at all.
    """
    if run.handwritten is not None:
        raise SmokeError("stages are compared only in runs that `zerocfg build` wrote")
    if str((run.accelerate or {}).get("distributed_type")) == "FSDP":
        raise SmokeError("--compare changes ZeRO stages; this run is one of FSDP")
    found = Comparison(run)
    changed = {strategy: with_strategy(run, strategy) for strategy in strategies}
    pinned = smallest([pin(item, options) for item, _ in changed.values()])
    with warm.shared_imports():
        for strategy, (one, dropped) in changed.items():
            row = Row(strategy, dropped)
            found.rows.append(row)
            if on_try is not None:
                on_try(strategy, None)
            one = replace(one, pinned=pinned)
            if search is not None:
                each = None if on_try is None else partial(on_try, strategy)
                row.batches = find(one, options, launch, **search, on_try=each)
            row.verdict = _already(row) or launch(one, options)
            row.problem = no_memory(row.verdict.outcome) or row.verdict.outcome.failure or ""
            if found.interrupted:
                break
    return found


def _already(row: Row) -> Verdict | None:
    """The launch with the planned micro batch, where the search made it."""
    if row.batches is None or row.batches.first is None:
        return None
    planned = row.batches.run.plan.get("train_micro_batch_size_per_gpu")
    return row.batches.first if row.batches.tries[0].batch == planned else None


def pin_with(run: RunFolder, options: Options) -> Reduced:
    """What a launch of ``run`` would train here. Raises SmokeError as a launch does."""
    from zerocfg.smoke.smoke import device_for, ranks_for

    device = device_for(options)
    with TemporaryDirectory(prefix="zerocfg-smoke-") as scratch, boundary.lent(scratch):
        return reduce(
            run, device, ranks_for(run, device, options.ranks), Path(scratch), options.limit, parts=options.parts
        )


def smallest(reduced: list[Reduced]) -> Reduced:
    """The reduction with the fewest parameters, and of these the shortest samples: one that fits every strategy."""
    return min(reduced, key=lambda item: (from_config(item.model).parameters or 0, item.sequence))


def render(found: Comparison, width: int | None = None) -> str:
    """One table, a row a strategy; reductions before it, dropped settings and failures after it.

    ``width``: columns of a terminal.
    """
    first = found.first
    lines = [title(found)]
    if first is not None:
        lines += [f"  reduced  {words}" for words in first.reduced.descriptions]
    card = first is not None and first.device.kind == "cuda"
    what = "peak allocated" if card else "peak RSS"
    heads = [what, "predicted" if card else "for training", "tokens/s", "ms/step", "loss"]
    searched = any(row.batches is not None for row in found.rows)
    heads += ["largest batch"] if searched else []
    rows = [_cells(row, card) + ([_batch(row)] if searched else []) for row in found.rows]
    columns = [Column(least=12), *(Column(head, right=True) for head in heads)]
    lines += ["", *table(columns, rows, width, ""), ""]
    for row in found.rows:
        lines += [f"{label(row.strategy)}: {words}" for words in row.dropped]
        lines += [f"{label(row.strategy)} failed: {row.problem}"] if row.problem else []
    lines += _about_losses(found)
    if not card:
        lines.append("A processor counts no tensors: RSS is all of the process, the second column what it grew by.")
    return folded("\n".join(lines) + "\n", width)


def title(found: Comparison) -> str:
    """The run and its device."""
    first = found.first
    if first is None:
        return found.run.name
    ranks, where = first.reduced.ranks, first.device.name if first.device.kind == "cuda" else "CPU"
    seen = (first.outcome.reports[0] if first.outcome.reports else {}).get("seen") or {}
    model = first.reduced.model.get("model_type", "model")
    parameters = from_config(first.reduced.model).parameters
    sized = f"{model} of {_count(parameters)} parameters" if parameters else str(model)
    batch = f", micro batch {seen['micro_batch']}" if seen.get("micro_batch") else ""
    tokens = f" x {first.reduced.sequence} tokens" if batch else ""
    return f"{found.run.name}: {sized}{batch}{tokens}, {ranks} rank{'s' if ranks != 1 else ''} on {where}"


def _count(parameters: int) -> str:
    for unit, name in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if parameters >= unit:
            return f"{parameters / unit:.3g}{name}"
    return str(parameters)


def _cells(row: Row, card: bool) -> list[str]:
    if row.verdict is None:
        return [label(row.strategy), *["-"] * 5]
    seen, expected = row.verdict.figures, row.verdict.expected
    grown = max((item for item in seen.grown() if item is not None), default=None)
    second = size(grown)
    if card:
        known = None if isinstance(expected, str) else expected
        low = "" if known is None or known.prediction.complete else "at least "
        second = "-" if known is None else low + size(known.allocated.expected)
    rate, seconds = seen.tokens_per_second, seen.seconds
    return [
        label(row.strategy),
        size(peak_in(seen)),
        second,
        f"{rate:,.0f}" if rate else "-",
        f"{seconds * 1000:,.0f}" if seconds else "-",
        f"{seen.loss:.4f}" if seen.loss is not None else "-",
    ]


def _batch(row: Row) -> str:
    found = row.batches
    if found is None or found.largest is None:
        return "-"
    return f"{found.largest}" if found.certain and found.largest < found.upper else f"{found.largest} or more"


def _about_losses(found: Comparison) -> list[str]:
    agree = found.losses_agree
    words = [f"Another loss is expected: {unlike(row)}." for row in found.rows if row.ended and unlike(row)]
    names = " and ".join(label(row.strategy) for row in found.rows if row.ended and not unlike(row))
    if agree:
        words.append(f"The losses of {names} after the last step agree within {SAME:.0%}.")
    elif agree is False:
        words.append(f"The losses of {names} do NOT agree within {SAME:.0%}: one of these trains something else.")
    return words
