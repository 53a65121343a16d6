"""What a search for the largest micro batch found, as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.smoke.judge.measured import size
from zerocfg.smoke.worker.values import whole
from zerocfg.terminal.table import Column, folded, table

if TYPE_CHECKING:
    from zerocfg.smoke.max_batch import Found

_TRIES = (
    *(Column(name, right=True) for name in ("micro batch", "fits", "peak", "tokens/s", "launch")),
    Column(least=24),
)


def render(found: Found, width: int | None = None) -> str:
    """The table of launches, the largest that fits, the fastest, and what to write.

    ``width``: columns of a terminal.
    """
    rows = []
    for item in sorted(found.tries, key=lambda entry: entry.batch):
        rate = f"{item.tokens_per_second:,.0f}" if item.tokens_per_second else "-"
        fits = "yes" if item.fits else "no"
        rows.append((str(item.batch), fits, size(item.peak), rate, f"{item.seconds:.0f} s", item.why[:120]))
    lines = [heading(found), "", *table(_TRIES, rows, width, "")]
    return folded("\n".join([*lines, "", *conclusion(found)]) + "\n", width)


def heading(found: Found) -> str:
    verdict = found.verdict
    where = ""
    if verdict is not None:
        ranks = verdict.reduced.ranks
        device = verdict.device.name if verdict.device.kind == "cuda" else "CPU"
        where = f"{ranks} rank{'s' if ranks != 1 else ''} on {device}"
    limit = f", {size(found.limit)} for each rank" if found.limit else ""
    guess = f"predicted {found.predicted}" if found.predicted else "nothing predicted"
    return f"{found.run.name}: {where}{limit}; {guess}, {len(found.tries)} launches"


def conclusion(found: Found) -> list[str]:
    """The conclusions, as sentences."""
    if found.problem is not None:
        return [f"The search ended early: {found.problem}"]
    largest = found.largest
    if largest is None:
        return ["Not even a micro batch of 1 fits."]
    bracket = found.bracket
    if bracket is not None and bracket.low >= found.upper:
        lines = [f"Micro batch {largest} fits; the search ends there (--batch-limit)."]
    elif found.certain:
        lines = [f"The largest micro batch that fits is {largest}."]
    else:
        more = f"; {bracket.high} does not" if bracket is not None and bracket.high is not None else ""
        lines = [f"Micro batch {largest} fits{more}; what lies between was not tried (--max-launches)."]
    fastest = found.fastest
    if fastest is not None and fastest.batch != largest:
        lines.append(f"As many tokens a second, or more, come from {fastest.batch}.")
    lines += advice(found, fastest.batch if fastest is not None else largest)
    return lines


def advice(found: Found, batch: int) -> list[str]:
    """What to write into the config, where the figure holds for the job itself."""
    verdict = found.verdict
    if verdict is None:
        return []
    if not found.faithful:
        return [
            "That is the micro batch of the run as it was reduced here, not of the planned job:",
            *(f"  {words}" for words in verdict.reduced.descriptions),
        ]
    steps = whole(found.run.plan.get("gradient_accumulation_steps"), 1)
    ranks = verdict.reduced.ranks
    total = batch * steps * ranks
    keys = f"train_micro_batch_size_per_gpu: {batch}"
    if found.run.consumer in ("transformers", "trl"):
        keys = f"per_device_train_batch_size: {batch}"
    planned = found.run.plan.get("train_micro_batch_size_per_gpu")
    before = planned * steps * ranks if isinstance(planned, int) else None
    changed = f"With {steps} accumulation steps the global batch becomes {total}"
    if before is not None and before != total:
        changed += f" instead of {before}"
        if before % (batch * ranks) == 0:
            changed += f"; gradient_accumulation_steps: {before // (batch * ranks)} would keep it"
    return [f"Write {keys}. {changed}."]
