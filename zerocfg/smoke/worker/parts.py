"""The trainings after the planned one, in the same processes: a resumed one and one under ZeRO-0.

They only compare, so they come when the planned training is over and its weights are read back, and can take nothing
away from it: an exception ends the part and is recorded in the report. Of a large model they train a narrow copy, which
takes seconds in place of minutes; the planned training is then done with that copy first.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from . import fence, memory_errors, reference, resume_point
from .baseline import Baseline
from .record import Record
from .report_schema import ABSENT, NARROW
from .trial import Trial, checkpoints
from .values import mapping
from .votes import Vote

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from .job import Job
    from .report import Report
    from .report_schema import Part
    from .watch import Watch

MEETING = 1800.0
"""Seconds that ranks wait for the one that reads back the weights, at most: the time limit of the run comes first."""
PATIENCE = 30  # seconds that the other ranks have to come to the end of a part in which one failed


def run(job: Job, report: Report, loop: ModuleType, watch: Watch) -> None:
    """Run the wanted parts after the planned training, each on all ranks or on none.

    ``loop``: the consumer's module. ``watch``: that of the planned training, whose engine is released. No part follows
    one in which the ranks came apart.
    """
    watch.close()
    report.fence.measure("release of memory", release)
    wanted = {name: part for name, part in PARTS.items() if name in job.parts}
    base = Baseline.planned(job, report)
    if job.narrow is not None and wanted:
        base = Baseline.of_copy(job, job.narrow, report)
        wanted = {NARROW: _Part(lambda *_: None, _train_copy), **wanted}
    try:
        for name, part in wanted.items():
            if "apart" not in report.content:
                _run_part(name, part, base, report, loop, watch)
    finally:
        if report.rank == 0:
            shutil.rmtree(checkpoints(job), ignore_errors=True)


def _train_copy(base: Baseline, report: Report, loop: ModuleType, watch: Watch) -> Part:
    """The planned training, with the narrow copy."""
    record = Record(report, NARROW, base.job.steps, rate=base.rate)
    loop.train(base.job, record, Trial(checkpoints(base.job), base.job.steps))
    record.close()
    base.parameters, base.sums = record.parameters, record.sums
    found = record.data()
    if record.parameters is not None:
        found["parameters"] = record.parameters
    return found


def _resume(base: Baseline, report: Report, loop: ModuleType, watch: Watch) -> Part:
    """Train the first steps again up to a checkpoint, and from the checkpoint the steps after it.

    "differing" counts parameters with other bits than after the planned training.
    """
    job = base.job
    behind = resume_point.last_before(job.steps)
    first = Record(report, "checkpoint", behind, compared=False, rate=base.rate)
    loop.train(job, first, Trial(checkpoints(job), behind, checkpoint=True))
    first.close()
    release()
    record = Record(report, "resume", job.steps, behind, rate=base.rate)
    loop.train(job, record, Trial(checkpoints(job), job.steps, resumed=behind))
    record.close()
    found: Part = {"from": behind, "before": first.losses}
    found.update(record.data())
    if base.sums and record.sums:
        differing = sum(1 for name, value in record.sums.items() if base.sums.get(name) != value)
        found.update({"differing": differing, "of": len(base.sums)})
    return found


def _resume_obstacle(base: Baseline, report: Report, watch: Watch) -> str | None:
    return resume_point.obstacle(base.job, base.parameters)


class _Part(NamedTuple):
    """``obstacle``: why this rank cannot do it, by itself and without collectives; ``train``: does it, on all ranks."""

    obstacle: Callable[[Baseline, Report, Watch], str | None]
    train: Callable[[Baseline, Report, ModuleType, Watch], Part]


PARTS = {"resume": _Part(_resume_obstacle, _resume), "reference": _Part(reference.obstacle, reference.run)}


def _run_part(
    name: str,
    part: _Part,
    base: Baseline,
    report: Report,
    loop: ModuleType,
    watch: Watch,
) -> None:
    environment = dict(os.environ)
    parts = report.content.setdefault("parts", {})
    parts[name] = {"state": "running"}
    report.phase(name)
    try:
        why = _why_not(name, part, base, report, watch)
        if why is None:
            done: Part = {"state": "done"}
            done.update(part.train(base, report, loop, watch))
            parts[name] = done
        else:
            parts[name] = {"state": "skipped", "why": why}
    except Exception as error:
        parts[name] = {"state": "failed", "why": fence.reason(error), "memory": _ran_out(error), "time": time.time()}
    os.environ.clear()
    os.environ.update(environment)
    report.fence.measure("release of memory", release)
    report.write()
    if not _all_ended(name, report):
        # The others wait for this rank in a collective operation. Their processes are ended from outside.
        report.content["apart"] = name


def _why_not(name: str, part: _Part, base: Baseline, report: Report, watch: Watch) -> str | None:
    """Why the part is not done, the same decision on all ranks; None when it is."""
    vote = Vote(f"part {name}", MEETING)
    try:
        copied = mapping(report.content.get("parts", {}).get(NARROW, {"state": "done"}))
        if name != NARROW and copied.get("state") != "done":
            why: str | None = f"not tried: a narrow copy did not train: {copied.get('why')}"
        else:
            why = part.obstacle(base, report, watch)
        if why is None and not vote.all_ready():
            why = ABSENT
    finally:
        vote.decline()
    return why


def release() -> None:
    """Free what the last engine held; nothing may refer to it any more."""
    gc.collect()
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _ran_out(error: Exception) -> bool:
    """Whether memory ran out: two engines one after another may need more than the run itself."""
    frames = traceback.format_tb(error.__traceback__)
    return memory_errors.place(type(error).__name__, fence.reason(error), frames) is not None


def _all_ended(name: str, report: Report) -> bool:
    """Wait until every rank of this machine has ended the part; False when one cannot, because another failed."""
    patience = None
    while True:
        reports = map(_read, sorted(report.path.parent.glob("rank*.json")))
        # Those of other machines have no process here.
        states = [_state(content, name) for content in reports if not content or "pid" in content]
        if all(state not in ("running", None) for state in states):
            return True
        if "failed" in states:
            patience = patience or time.monotonic() + PATIENCE
            if time.monotonic() > patience:
                return False
        time.sleep(0.02)


def _read(path: Path) -> dict[str, object]:
    """A report; empty while it cannot be read."""
    try:
        return mapping(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {}


def _state(content: dict[str, object], name: str) -> object:
    return mapping(mapping(content.get("parts")).get(name)).get("state")
