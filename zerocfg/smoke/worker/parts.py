"""The trainings after the planned one, in the same processes: a resumed one and one under ZeRO-0.

Neither may spoil what the planned training showed: an exception ends the part, is told in the report, and leaves the
other results as they are.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import time
from typing import TYPE_CHECKING

from . import reference, resume
from .trial import checkpoints
from .values import mapping

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from .job import Job
    from .report import Report
    from .report_schema import Part
    from .watch import Watch

PATIENCE = 30  # seconds that the other ranks have to come to the end of a part in which one failed


class OutOfStepError(RuntimeError):
    """One rank failed where the others did not; they wait for it in a collective operation."""


def run(job: Job, report: Report, loop: ModuleType, watch: Watch) -> None:
    """Run the wanted parts after the planned training.

    ``loop``: the consumer's module. ``watch``: that of the planned training, whose engine is let go of.
    """
    watch.close()
    release()
    try:
        for name, part in (("resume", resume.run), ("reference", reference.run)):
            if name in job.parts:
                _one(name, part, job, report, loop, watch)
    finally:
        if report.rank == 0:
            shutil.rmtree(checkpoints(job), ignore_errors=True)


def _one(
    name: str,
    part: Callable[[Job, Report, ModuleType, Watch], Part],
    job: Job,
    report: Report,
    loop: ModuleType,
    watch: Watch,
) -> None:
    environment = dict(os.environ)
    parts = report.content.setdefault("parts", {})
    parts[name] = {"state": "running"}
    report.phase(name)
    try:
        done: Part = {"state": "done"}
        done.update(part(job, report, loop, watch))
        parts[name] = done
    except Exception as error:
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:1000]}"
        parts[name] = {"state": "failed", "why": text, "memory": _memory(text)}
    os.environ.clear()
    os.environ.update(environment)
    release()
    report.write()
    _together(name, report)


def release() -> None:
    """Free what the last engine held; nothing may refer to it any more."""
    gc.collect()
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _memory(text: str) -> bool:
    """Whether memory ran out: two engines one after another may need more than the run itself."""
    return any(words in text for words in ("OutOfMemory", "out of memory", "MemoryError", "can't allocate memory"))


def _together(name: str, report: Report) -> None:
    """Wait until every rank has ended the part. Raises OutOfStepError when one cannot, because another failed."""
    patience = None
    while True:
        states = [_state(path, name) for path in sorted(report.path.parent.glob("rank*.json"))]
        if all(state not in ("running", None) for state in states):
            return
        if "failed" in states:
            patience = patience or time.monotonic() + PATIENCE
            if time.monotonic() > patience:
                why = report.content["parts"][name].get("why") or "another rank failed"
                raise OutOfStepError(f"the ranks are out of step in the part '{name}': {why}")
        time.sleep(0.02)


def _state(path: Path, name: str) -> str | None:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    state = mapping(mapping(mapping(content).get("parts")).get(name)).get("state")
    return state if isinstance(state, str) else None
