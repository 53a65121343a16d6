"""Whether training went as it should: losses, synchronous ranks, the same as ZeRO-0, resumed from a checkpoint."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.smoke.judge import instruments
from zerocfg.smoke.model.certificate import CHANGE, STEPS, Check
from zerocfg.smoke.worker.report_schema import ABSENT, CHECKSUMS, LOSS, NARROW, RATE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zerocfg.smoke.worker.report_schema import Part, RankReport

RESOLUTION = {"fp32": 2**-23, "fp16": 2**-10, "bf16": 2**-7}
"""Relative distance of neighbouring numbers of a dtype, at most."""
ALIKE = {"fp32": 0.0005, "fp16": 0.01, "bf16": 0.01}
"""Relative tolerance of a loss against that of ZeRO-0, by dtype.

Seen on processors: at most 0.06 % in bf16 (ZeRO-3 of a loop that makes its model in fp32: the master weights of ZeRO-0
are rounded to bf16 first), 0.00001 % in fp32. A high learning rate makes rounding grow from step to step.
"""
GRADIENTS = {"fp32": 0.002, "fp16": 0.02, "bf16": 0.02}
"""The same of the norm of what the optimizer was given. Seen: at most 0.01 % in bf16, 0.00001 % in fp32."""
SMALL_RATE = 1e-5
"""Learning rate up to which parameters of 16 bit, whose values are about 0.01, may all stay as they are."""
RESUMED = {"fp32": 0.0001, "fp16": 0.005, "bf16": 0.005}
"""Relative tolerance of a resumed training against the uninterrupted one: in its losses and in that norm."""

SAMPLING = ("GRPOTrainer",)
"""Trainers whose batches are sampled from the model: one token that rounding chooses otherwise changes all that follow.
What is apart then proves nothing. Their loss is no measure of progress either: it begins near 0 at every step."""


@dataclass(frozen=True)
class _Course:
    """One rank's training. ``losses``: one a micro step; ``rates``: learning rates, one an optimizer step."""

    losses: list[float]
    rates: list[float | None]
    momentum: float | None

    @classmethod
    def of(cls, report: RankReport | Part) -> _Course:
        return cls(report.get("losses") or [], report.get("rates") or [], report.get("momentum"))

    @classmethod
    def compared(cls, report: RankReport) -> _Course:
        """That with which the parts are compared: the planned training, or that of a narrow copy."""
        return cls.of(report.get("parts", {}).get(NARROW) or report)


def check(reports: list[RankReport], steps: int, cut: str | None = None) -> list[Check]:
    """Losses and steps of every rank, the parameters, and the parts after the training. ``cut``: what ended these."""
    losses = [loss for report in reports for loss in report.get("losses", [])]
    done = min(len(report.get("step_seconds", [])) for report in reports)
    finite = bool(losses) and all(math.isfinite(loss) for loss in losses)
    own = reports[0].get("losses", [])
    seen = f"{done}; loss {own[0]:.4g} to {own[-1]:.4g}" if own else str(done)
    if LOSS in instruments.broken(reports):
        return [
            instruments.unmeasured(STEPS, instruments.why(reports, LOSS), str(steps)),
            *_parameters(reports, done == steps),
        ]
    checks = [Check(STEPS, str(steps), seen, finite and done == steps)]
    if finite and done == steps:
        checks += _falls(reports, done)
    checks += _parameters(reports, done == steps)
    if finite:
        checks += _reference(reports, cut)
        checks += _resumes(reports, cut)
    return _decided(checks, reports)


def _decided(checks: list[Check], reports: list[RankReport]) -> list[Check]:
    """What comparisons of ranks and trainings are worth where a rank trained with a learning rate of its own."""
    rates = [bool(report.get("instruments", {}).get(RATE)) for report in reports]
    if not any(rates):
        return checks
    why = instruments.why(reports, RATE)
    return [
        instruments.unmeasured(row.name, why, row.planned) if row.ok is False and row.name != STEPS else row
        for row in checks
    ]


def _samples(reports: list[RankReport]) -> bool:
    return reports[0]["seen"].get("trainer") in SAMPLING


def _dtype(reports: list[RankReport]) -> str:
    dtype = str(reports[0]["seen"].get("dtype"))
    return dtype if dtype in RESOLUTION else "bf16"  # fp8 and what is not known: the coarsest


def _falls(reports: list[RankReport], done: int) -> list[Check]:
    """The loss of the last step against that of the first, on the batch that repeats, over all ranks."""
    if done < 2:
        return [Check("loss falls", "falls", "not tried: it takes 2 steps", None)]
    means = []
    for report in reports:
        size = len(report["losses"]) // done
        means.append((_mean(report["losses"][:size]), _mean(report["losses"][-size:])))
    first, last = _mean([pair[0] for pair in means]), _mean([pair[1] for pair in means])
    seen = f"{first:.4g} to {last:.4g}"
    if _samples(reports):
        return [Check("loss falls", "-", f"{seen}; its samples are other ones in each step", None)]
    planned, used = _highest(reports[0].get("rates") or []), _highest(_rates(reports[0]))
    if planned is not None and used is not None and planned < used:
        seen += f", with a learning rate of {used:.3g}: that of the plan is {planned:.3g} at most in these steps"
    if last < first:
        return [Check("loss falls", "falls", seen, True)]
    why = _idle(reports, done - 1)
    if why is None and abs(last - first) <= RESOLUTION[_dtype(reports)] * abs(first):
        rate = used
        small = f", learning rate {rate:.3g}" if rate is not None else ""
        why = f"the change is below what {_dtype(reports)} resolves{small}"
    return [
        Check("loss falls", "falls", f"{seen}; {why}" if why else f"{seen}: it does not fall", None if why else False)
    ]


def _rates(report: RankReport) -> list[float | None]:
    """The learning rates with which the steps were done: those of the schedule, or the higher one of the smoke-run."""
    least = report.get("trial_rate", 0.0)
    return [rate if rate is None else max(rate, least) for rate in report.get("rates") or []]


def _highest(rates: list[float | None]) -> float | None:
    return max((rate for rate in rates if rate is not None), default=None)


def _idle(reports: list[RankReport], steps: int) -> str | None:
    """Why the first ``steps`` optimizer steps changed nothing by design; None when they should have."""
    rates = _rates(reports[0])[:steps]
    if rates and all(rate == 0 for rate in rates):
        return f"the learning rate was 0 in step {'1' if steps == 1 else f'1 to {steps}'} (warmup)"
    skipped = reports[0].get("skipped_steps") or 0
    if skipped >= steps:
        return f"{skipped} optimizer steps were skipped: fp16 looked for its loss scale"
    return None


def _too_little(reports: list[RankReport]) -> str | None:
    """Why optimizer steps of this learning rate may be lost in rounding; None when they should show."""
    rate = _highest(_rates(reports[0]))
    if rate is None or rate > SMALL_RATE or _dtype(reports) == "fp32":
        return None
    return f"learning rate {rate:.3g} changes too little for {_dtype(reports)}"


def _parameters(reports: list[RankReport], done: bool) -> list[Check]:
    """Whether the optimizer changed them, and the same way on all ranks. ``done``: all steps were done."""
    if not all("changed" in report and "sums" in report for report in reports):
        return [instruments.unmeasured(CHANGE, instruments.why(reports, CHECKSUMS), "yes")] if done else []
    sums = [report["sums"] for report in reports]
    changed = min(report["changed"] for report in reports)
    why = None if changed else _idle(reports, len(reports[0].get("rates") or [])) or _too_little(reports)
    seen = f"{changed} of {len(sums[0])} tensors" if not why else f"no tensor; {why}"
    checks = [Check(CHANGE, "yes", seen, True if changed else None if why else False)]
    if len(reports) > 1:
        names = {name: None for item in sums for name in item}
        apart = [name for name in names if len({item.get(name) for item in sums}) > 1]
        seen = f"{len(names)} tensors on {len(reports)} ranks"
        if apart:
            seen = f"{len(apart)} of {len(names)} tensors differ, {apart[0]} first: gradients are not synchronised"
        checks.append(Check("parameters alike on all ranks", "same checksums", seen, not apart))
    return checks


def _reference(reports: list[RankReport], cut: str | None) -> list[Check]:
    name, limit = "loss as under ZeRO-0", ALIKE[_dtype(reports)]
    parts = _parts(reports, "reference")
    if not parts:
        return []
    missing = _missing(parts)
    if missing is not None:
        skipped = missing["state"] == "skipped"  # and it says so
        return [Check(name, "-", _why(missing, cut) if skipped else f"not compared: {_why(missing, cut)}", None)]
    pairs = [(_Course.compared(report), _Course.of(part)) for report, part in zip(reports, parts, strict=True)]
    half = reports[0]["seen"].get("dtype") == "fp16"
    # In fp16 the engines search their loss scales from different ends, and skip different steps meanwhile.
    upto = len(pairs[0][0].losses) // max(1, len(reports[0]["step_seconds"])) if half else None
    distance = max(_distance(ours.losses[:upto], others.losses[:upto]) for ours, others in pairs)
    seen = f"{_percent(distance)} apart at most{' in step 1' if half else ''}{_in_copy(reports)}"
    if distance > limit:
        ours, others = pairs[0]
        seen += f": {_losses(ours.losses)}, ZeRO-0 {_losses(others.losses)}"
        if _samples(reports):
            return [Check(name, "-", f"not comparable: {seen}; each sampled its own completions", None)]
    checks = [Check(name, f"within {_percent(limit)}", seen, distance <= limit)]
    norms = [(ours.momentum, others.momentum) for ours, others in pairs]
    limit = GRADIENTS[_dtype(reports)]
    known = [(a, b) for a, b in norms if a is not None and b is not None]
    if len(known) == len(norms) and not half:
        distance = max(_distance([a], [b]) for a, b in known)
        seen = f"{_percent(distance)} apart"
        if distance > limit:
            seen += f": norm {known[0][0]:.4g}, ZeRO-0 {known[0][1]:.4g}; averaging, clipping or accumulation differ"
        checks.append(Check("gradients as under ZeRO-0", f"within {_percent(limit)}", seen, distance <= limit))
    return checks


def _resumes(reports: list[RankReport], cut: str | None) -> list[Check]:
    name, limit = "resumes from a checkpoint", RESUMED[_dtype(reports)]
    parts = _parts(reports, "resume")
    if not parts:
        return []
    missing = _missing(parts)
    if missing is not None:
        broken = missing["state"] == "failed" and not missing.get("memory")
        return [Check(name, "same next loss" if broken else "-", _why(missing, cut), False if broken else None)]
    wrong: list[str] = []
    for report, part in zip(reports, parts, strict=True):
        ours, others = _Course.compared(report), _Course.of(part)
        if not others.losses:
            wrong.append("no step was done after the checkpoint")
            continue
        later = ours.losses[-len(others.losses) :]
        if _distance(later, others.losses) > limit:
            wrong.append(f"loss {_losses(others.losses)}, without the break {_losses(later)}")
        rates = ours.rates[-len(others.rates) :]
        if _distance([rate or 0 for rate in rates], [rate or 0 for rate in others.rates]) > 1e-6:
            wrong.append(f"learning rate {_losses(others.rates)}, without the break {_losses(rates)}")
        before, after = ours.momentum, others.momentum
        if before is not None and after is not None and _distance([before], [after]) > limit:
            wrong.append(f"the optimizer's states are others: norm {after:.4g}, without the break {before:.4g}")
    compared = [_Course.compared(report).losses for report in reports]
    planned = f"loss {compared[0][-1]:.4g}"
    again = [(losses[: len(part.get("before", []))], part.get("before", []))
             for losses, part in zip(compared, parts, strict=True)]  # fmt: skip
    if wrong and any(_distance(ours, others) > limit for ours, others in again):
        first, second = again[0]
        apart = f"the steps up to the checkpoint, done again, gave loss {_losses(second)} and not {_losses(first)}"
        return [Check(name, "-", f"not comparable: {apart}", None)]
    if wrong and _samples(reports):
        behind = f"from step {parts[0]['from']}; other completions are sampled then: {wrong[0]}"
        return [Check(name, "-", behind, None)]
    if wrong:
        return [Check(name, planned, wrong[0], False)]
    counts = [part.get("differing") for part in parts]
    if None in counts:
        same = "parameters not compared"
    else:
        differing = max(count for count in counts if count is not None)
        same = "same parameters" if not differing else f"{differing} of {parts[0]['of']} parameters by rounding apart"
    behind = f"from step {parts[0]['from']}: loss {parts[0]['losses'][-1]:.4g}, {same}{_in_copy(reports)}"
    return [Check(name, planned, behind, True)]


def _in_copy(reports: list[RankReport]) -> str:
    copy = reports[0].get("parts", {}).get(NARROW)
    return f", in a narrow copy of {copy['parameters']:,} parameters" if copy and "parameters" in copy else ""


def _parts(reports: list[RankReport], name: str) -> list[Part]:
    """Every rank's report of a part; empty where one is missing."""
    parts = [part for report in reports if (part := report.get("parts", {}).get(name)) is not None]
    return parts if len(parts) == len(reports) else []


def _missing(parts: list[Part]) -> Part | None:
    """The one that says why there is no result; None when every rank has one."""
    for state in ("failed", "skipped", "running"):
        found = [part for part in parts if part.get("state") == state]
        if found and state == "failed":  # the others then fail because they lost a partner
            return min(found, key=lambda part: part.get("time", math.inf))
        if found:  # a rank that only went without another one has no reason of its own
            return next((part for part in found if part.get("why") != ABSENT), found[0])
    return None


def _why(part: Part, cut: str | None) -> str:
    return part.get("why") or f"it did not come to its end{f': {cut}' if cut else ''}"


def _distance(ours: list[float], others: list[float]) -> float:
    """The largest relative difference of two lists of numbers; infinite when their lengths differ."""
    if len(ours) != len(others):
        return math.inf
    worst = 0.0
    for a, b in zip(ours, others, strict=True):
        scale = max(abs(a), abs(b))
        distance = abs(a - b) / scale if scale else 0.0
        worst = max(worst, distance if math.isfinite(distance) else math.inf)
    return worst


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _percent(share: float) -> str:
    if not math.isfinite(share):
        return "infinitely far"
    return f"{100 * share:.2g} %" if share == 0 or share >= 1e-4 else "under 0.01 %"


def _losses(values: Sequence[float | None]) -> str:
    """The different ones among neighbours, as a short text."""
    kept = [value for at, value in enumerate(values) if at == 0 or value != values[at - 1]]
    return " ".join("-" if value is None else f"{value:.4g}" for value in kept[:4])
