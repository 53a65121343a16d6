"""Measurements beside predictions. Noted, not judged, except for memory that ran out.

A prediction that is wrong is zerocfg's fault and not the config's: the formulas hold for the classes and releases that
they were compared with, and an allocator's reserve or a busy machine belong to no config. So no difference fails a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.smoke.judge.figures import GIB, TRAINING
from zerocfg.smoke.launch import out_of_memory
from zerocfg.smoke.model.certificate import Check
from zerocfg.smoke.worker.report_schema import FLAGS

if TYPE_CHECKING:
    from zerocfg.memory.overhead import Band
    from zerocfg.smoke.judge.figures import Figures
    from zerocfg.smoke.judge.prediction import Expected
    from zerocfg.smoke.launch.process import Outcome
    from zerocfg.smoke.worker.report_schema import Counter

MIB = 1 << 20
KINDS = ("all_gather", "reduce_scatter", "all_reduce", "reduce", "all_to_all")
"""Kinds of collectives that are predicted, in the order of a step."""


def check(figures: Figures, expected: Expected | str, outcome: Outcome) -> list[Check]:
    """Memory, time and rates, as far as the run came."""
    known = None if isinstance(expected, str) else expected
    checks = _ran_out(figures, known, outcome)
    if figures.on_card:
        checks += _card(figures, known)
    checks += _host(figures)
    return [*checks, *_time(figures, known), *_communication(figures, known), *_compiled(outcome)]


def _communication(figures: Figures, expected: Expected | None) -> list[Check]:
    """What a rank sent in the last step, by kind of collective, and how long its collectives took."""
    if not figures.collectives:
        return []
    own, checks = figures.collectives[0], []
    predicted = expected.collectives() if expected is not None else {}
    for kind in (*KINDS, *(item for item in own if item not in (*KINDS, FLAGS))):
        seen, planned = own.get(kind), predicted.get(kind)
        if seen is None and planned is None:
            continue
        measured = "nothing"
        if seen is not None:
            calls = f"{seen['calls']} call{'s' if seen['calls'] != 1 else ''}"
            share = ""
            if planned is not None and planned.sent != seen["sent"]:
                share = f" ({seen['sent'] - planned.sent:+,}, {seen['sent'] / planned.sent - 1:+.1%})"
            measured = f"{_exact(seen['sent'])}{share} in {calls}, {_brief(seen['seconds'])} s"
        words = "-" if expected is None else f"predicted {_exact(planned.sent if planned is not None else 0)}"
        checks.append(Check(f"bytes sent by {kind}", words, measured, None))
    total = max(sum(item["seconds"] for item in rank.values()) for rank in figures.collectives)
    of = f" of {_brief(figures.last)}, in the step that was counted" if figures.last is not None else ""
    checks.append(Check("seconds in collectives", "-", f"{_brief(total)}{of}", None))
    return checks


def _exact(count: int) -> str:
    """Bytes to the last one, which a prediction has to meet."""
    return f"{count:,}"


def _compiled(outcome: Outcome) -> list[Check]:
    if outcome.compiled < 1:
        return []
    return [Check("seconds of compiling operators", "-", f"{outcome.compiled:.0f}, outside the time limit", None)]


def ran_out(outcome: Outcome) -> tuple[int, str] | None:
    """The first rank that ran out of memory, and which memory ("card", "host"); None when none did."""
    failures = []
    for rank, report in enumerate(outcome.reports):
        error = report.get("error") or {}
        kind, text, frames = str(error.get("type", "")), str(error.get("text", "")), error.get("traceback", [])
        place = out_of_memory.place(kind, text, frames) if error else None
        if place is not None:
            failures.append((float(error.get("time", 0.0)), rank, place))
    return min(failures)[1:] if failures else None


def _ran_out(figures: Figures, expected: Expected | None, outcome: Outcome) -> list[Check]:
    found = ran_out(outcome)
    if found is None:
        return []
    rank, place = found
    memory = figures.memory[rank] if rank < len(figures.memory) else {}
    last = next(reversed(memory), None)
    counter: Counter = figures.counter if place == "card" else "rss"
    peak = figures.peaks(counter)[rank] if rank < len(figures.memory) else None
    where = f" in {last}" if last else ""
    holding = f", when it held {size(peak)}" if peak is not None else ""
    planned = "-"
    if expected is not None and place == "card":
        planned = f"{'' if expected.prediction.complete else 'at least '}{size(expected.allocated.expected)} predicted"
    words = f"rank {rank} ran out of the {place}'s memory{where}{holding}"
    return [Check("memory is enough", planned, words, False)]


def _card(figures: Figures, expected: Expected | None) -> list[Check]:
    checks = []
    names: dict[Counter, str] = {
        "allocated": "peak allocated",
        "reserved": "peak reserved",
        "device": "peak of the card, by its driver",
    }
    for counter, name in names.items():
        seen = figures.peaks(counter)
        if all(item is None for item in seen):
            continue
        band = getattr(expected.prediction, counter) if expected is not None else None
        low = expected is not None and not expected.prediction.complete
        checks.append(Check(name, _band(band, counter, low), _sizes(seen, band if not low else None), None))
    pinned = figures.peaks("pinned")
    if any(pinned):
        checks.append(Check("pinned host memory", "-", _sizes(pinned, None), None))
    return checks


def _band(band: Band | None, counter: str, low: bool) -> str:
    if band is None:
        return "-"
    if low:
        return f"predicted at least {size(band.low)}"
    if counter == "allocated":
        return f"predicted {size(band.expected)}"
    return f"predicted {size(band.low)} to {size(band.high)}"


def _host(figures: Figures) -> list[Check]:
    """Resident memory. Its growth is what training took; the rest are the libraries themselves."""
    peaks, grown = figures.peaks("rss"), figures.grown()
    if all(peak is None for peak in peaks):
        return []
    seen = _sizes(peaks, None)
    if any(item is not None for item in grown):
        seen += f"; {_sizes(grown, None)} since the model was made"
    return [Check("host memory of a rank (RSS)", "-", seen, None)]


def _time(figures: Figures, expected: Expected | None) -> list[Check]:
    checks = []
    time = expected.time if expected is not None else None
    if figures.seconds is not None:
        planned = "-"
        if time is not None:
            planned = f"predicted {_brief(time.seconds.low)} to {_brief(time.seconds.high)}"
        first = f" (the first one {_brief(figures.first)})" if figures.first else ""
        checks.append(Check("seconds of a step", planned, _brief(figures.seconds) + first, None))
    if figures.tokens_per_second is not None:
        planned = f"predicted {time.tokens_per_second:,.0f}" if time is not None else "-"
        checks.append(Check("tokens a second, all ranks", planned, f"{figures.tokens_per_second:,.0f}", None))
    if figures.tflops is not None and figures.on_card:
        planned = f"predicted {_brief(time.tflops)}" if time is not None else "-"
        checks.append(Check("TFLOP/s of a rank", planned, _brief(figures.tflops), None))
    return checks


def peak_in(figures: Figures) -> int | None:
    """The highest that any rank held while it trained, or at all when it did not come so far."""
    sizes = [size for size in figures.peaks(figures.counter, TRAINING) if size is not None]
    return max(sizes, default=figures.peak())


def size(count: int | None) -> str:
    """Bytes as text."""
    if count is None:
        return "-"
    if abs(count) < GIB / 10:
        return f"{count / MIB:.1f} MiB"
    return f"{count / GIB:.2f} GiB"


def _sizes(counts: list[int | None], band: Band | None) -> str:
    """One size, or from the least to the most of the ranks that counted, of which there is one at least; how far the
    highest is from what was expected."""
    known = [count for count in counts if count is not None]
    least, most = size(min(known)), size(max(known))
    shown = most if least == most else f"{least} to {most}"
    if band is None or band.expected <= 0:
        return shown
    apart = max(known) / band.expected - 1
    outside = "" if band.low <= max(known) <= band.high else ", outside what was expected"
    return f"{shown} ({apart:+.1%}{outside})"


def _brief(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
