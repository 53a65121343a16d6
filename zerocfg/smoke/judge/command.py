"""What the user's own training command proves: that its training runs, and, of a run folder, that the live engine has
what was planned. Whether it saves is a statement of its own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.emit.lock import Lock
from zerocfg.run.model import UNKNOWN
from zerocfg.smoke.judge import settings
from zerocfg.smoke.judge.verdict import run_checks
from zerocfg.smoke.launch.command import WRITTEN, launch
from zerocfg.smoke.model.certificate import WORLD_SIZE, Check, Command
from zerocfg.smoke.model.reduction import Kind, Reduced, Reduction
from zerocfg.smoke.prepare.folder import RunFolder
from zerocfg.smoke.prepare.line import run_of_command

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from zerocfg.run.model import Run
    from zerocfg.smoke.launch.command import Launched
    from zerocfg.smoke.launch.process import Outcome
    from zerocfg.smoke.prepare.device import Device
    from zerocfg.smoke.worker.report_schema import RankReport

LOOPS = {
    "Trainer": "the Trainer",
    "accelerate": "a loop around accelerate",
    "deepspeed": "a loop around DeepSpeed",
    "torch": "a loop of torch alone",
}
LINES, SHOWN = 12, 8


@dataclass(frozen=True)
class CommandRun:
    """The result of a command; ``reduced`` holds the expected settings."""

    command: Command
    reduced: Reduced
    outcome: Outcome
    checks: list[Check]


def without_plan(line: str | None = None) -> RunFolder:
    """A run without a plan, for a command without a run; ``line``: the command."""
    return RunFolder(Path.cwd(), Lock("own command"), None, None, line=run_of_command(line) if line else None)


_SETTINGS = {name: setting for setting, name in settings.SHOWN.items()} | {
    "engine": "engine",
    "world size": "num_processes",
}
"""The setting of a row, by the row's name."""


def _of_line(check: Check, line: Run | None) -> Check:
    """A row with the value that the launch line and its files give, where they tell it. A script may mean to have
    another, so that no difference fails."""
    value = _value(check.name, line)
    if value is UNKNOWN or check.seen == "-":
        return (
            replace(check, planned="-", ok=None)
            if value is UNKNOWN
            else replace(check, planned=settings.show(value), ok=None)
        )
    planned = settings.show(value)
    return replace(check, planned=planned, ok=True if planned == check.seen else None)


def _value(row: str, line: Run | None) -> object:
    if line is None:
        return UNKNOWN
    if row != "precision":
        return line.effective.value(_SETTINGS.get(row, row), UNKNOWN)
    on = [name for name in ("bf16", "fp16") if line.effective.value(f"{name}.enabled") is True]
    word = line.effective.value("mixed_precision", UNKNOWN)
    return on[0] if on else "fp32" if word == "no" else word


def run_command(
    line: str,
    run: RunFolder,
    device: Device,
    steps: int,
    ranks: int | None,
    limit: float,
    scratch: Path,
    progress: Callable[[str], None] | None = None,
) -> CommandRun:
    """Run the command in the current folder, and check what it trained against ``run``.

    ``ranks``: how many are expected, when not as many as planned. Raises SmokeError without a shell.
    """
    launched = launch(line, run, device, steps, limit, scratch, progress)
    outcome = launched.outcome
    command = Command(line, _loop(outcome.reports))
    _judge(launched, command, limit, _tail(scratch))
    reduced = _expected(run, outcome.reports, ranks)
    checks = _checks(run, reduced, outcome, steps)
    if command.loop is not None and outcome.failure is None:
        checks += _reads(launched.configs, scratch / "reports")
        command.notes = _notes(outcome.reports, steps, scratch / WRITTEN, device)
        reduced.changes += [Reduction(Kind.SAVING, why=why) for why in [_unsaved(outcome.reports)] if why]
    return CommandRun(command, reduced, outcome, checks)


def _expected(run: RunFolder, reports: list[RankReport], ranks: int | None) -> Reduced:
    """The expected settings: the plan as it is, on the requested ranks."""
    planned = run.plan.get("num_processes")
    started = next((report["command"]["world_size"] for report in reports if "command" in report), len(reports))
    reduced = Reduced(
        ranks=ranks or (planned if isinstance(planned, int) else started),
        model={},
        accelerate=run.accelerate,
        deepspeed=run.deepspeed,
        arguments=dict(run.lock.recipe),
        plan=dict(run.plan),
    )
    if ranks is not None and isinstance(planned, int) and ranks != planned:
        reduced.changes.append(Reduction(Kind.WORLD_SIZE, planned, ranks, ("num_processes",)))
        reduced.plan["num_processes"] = ranks
    return reduced


def _checks(run: RunFolder, reduced: Reduced, outcome: Outcome, steps: int) -> list[Check]:
    """The usual checks; without a plan the engine's settings are noted only."""
    reports = outcome.reports
    if not reports or not all("world_size" in report.get("seen", {}) for report in reports):
        return []
    if not run.plan and any(report["seen"].get("engine") == "deepspeed" for report in reports):
        reduced = replace(reduced, deepspeed={})
    # A training that ends by itself before is none that failed.
    done = min(len(report.get("step_seconds", [])) for report in reports)
    by_itself = not any((report.get("command") or {}).get("stopped") for report in reports)
    checks = run_checks(run, reduced, outcome, min(steps, done) if by_itself and done else steps)
    # The script's own batches differ from step to step, and so may their losses.
    checks = [
        replace(check, ok=None) if check.name == "loss falls" and check.ok is False else check for check in checks
    ]
    if run.plan:
        return checks
    noted = {item.name for item in settings.check(run, reduced, reports)} - {WORLD_SIZE}
    return [_of_line(check, run.line) if check.name in noted else check for check in checks]


def _reads(files: list[Path], reports: Path) -> list[Check]:
    """Whether the command read the configs of the run."""
    checks = []
    for number, file in enumerate(files):
        read = (reports / f"read-{number}").exists()
        checks.append(Check(f"{file.name} of the run", "read", "read" if read else "not read by the command", read))
    return checks


def _loop(reports: list[RankReport]) -> str | None:
    return next((loop for report in reports if (loop := (report.get("command") or {}).get("loop"))), None)


def _unsaved(reports: list[RankReport]) -> str | None:
    """Why saving was not proven; None when it was."""
    if "weights" in reports[0]:
        return None
    command = reports[0].get("command") or {}
    if command.get("saved"):
        return str(command["saved"])
    if command.get("left"):
        return f"not reached, zerocfg ended the script after {len(reports[0].get('step_seconds', []))} optimizer steps"
    return "the script saved no model after its training"


def _notes(reports: list[RankReport], steps: int, written: Path, device: Device) -> list[str]:
    first, command = reports[0], reports[0].get("command") or {}
    done = len(first.get("step_seconds", []))
    loop = LOOPS[command["loop"] or ""]
    if command.get("stopped"):
        notes = [f"training: {loop}, stopped by zerocfg after {done} optimizer step{'s' * (done != 1)}"]
    else:
        notes = [f"training: {loop}, ended by itself after {done} optimizer step{'s' * (done != 1)}"]
    if _unsaved(reports) is None:
        notes.append("saving: the script's own, checked")
    if device.kind == "cpu" and command["loop"] == "Trainer":
        notes.append("use_cpu: true was added to its TrainingArguments; else each rank would train alone")
    redirected = _reported_paths(reports, "redirected")
    outer = [path for path in redirected if not any(path.startswith(other + os.sep) for other in redirected)]
    notes += [f"redirected: {_shown(path)}, to a temporary folder" for path in outer[:SHOWN]]
    wrote = [path for path in _reported_paths(reports, "wrote") if Path(path).exists()]
    notes += [f"written by the script itself: {_shown(path)}" for path in wrote[:SHOWN]]
    removed = [path for path in _reported_paths(reports, "removed") if not Path(path).exists()]
    notes += [f"removed by the script itself: {_shown(path)}" for path in removed[:SHOWN]]
    again = sum(1 for folder in written.parent.joinpath("reports").iterdir() if folder.is_dir())
    if again:
        notes.append(f"the command trained {again + 1} times; the first training is checked")
    return notes


def _reported_paths(reports: list[RankReport], what: Literal["redirected", "wrote", "removed"]) -> list[str]:
    """The paths that any rank reported."""
    return sorted({path for report in reports for path in (report.get("command") or {}).get(what, [])})


def _shown(path: str) -> str:
    """A path as the user would write it."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path


def _judge(launched: Launched, command: Command, limit: float, tail: list[str]) -> None:
    """State why the command proves nothing."""
    outcome = launched.outcome
    if outcome.interrupted:
        return
    late = outcome.seconds >= limit
    if launched.unwatched is not None:
        outcome.failure, outcome.kind, outcome.detail, outcome.rank = launched.unwatched, "launcher", [], None
        return
    if command.loop is None and late:
        outcome.failure, outcome.kind = f"no training that zerocfg can watch began within {limit:g} s", "time"
        outcome.detail = outcome.detail or tail
        return
    if outcome.failure is not None:
        if command.loop is None and not any("error" in report for report in outcome.reports):
            outcome.failure += ", before any training that zerocfg can watch began"
        outcome.detail = outcome.detail or tail
        return
    steps = [len(report.get("step_seconds", [])) for report in outcome.reports]
    if command.loop is None:
        known = "the Trainer, accelerate, DeepSpeed or an optimizer of torch"
        outcome.failure = f"the command ended without an error, but none of its processes trained with {known}"
        outcome.detail = tail
    elif not all(steps):
        outcome.failure = "the command ended without an error, but before its first optimizer step"
        outcome.detail = tail


def _tail(scratch: Path) -> list[str]:
    try:
        text = (scratch / "log.txt").read_text(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-LINES:]
