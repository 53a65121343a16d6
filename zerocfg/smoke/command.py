"""The user's own training command, stopped after some optimizer steps by a hook that its script knows nothing of.

Nothing is made smaller: model, data and arguments are the script's. What is proven is that its training runs, and, of a
run folder, that the live engine has what was planned; whether it saves is told apart.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.emit.lock import Lock
from zerocfg.smoke import process
from zerocfg.smoke.certificate import Command
from zerocfg.smoke.checks import Check, check, settings
from zerocfg.smoke.error import SmokeError
from zerocfg.smoke.folder import ACCELERATE, DEEPSPEED, RunFolder
from zerocfg.smoke.reduced import Reduced
from zerocfg.smoke.reduction import Kind, Reduction
from zerocfg.smoke.worker import audit, hook
from zerocfg.smoke.worker.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from zerocfg.smoke.device import Device
    from zerocfg.smoke.process import Outcome
    from zerocfg.smoke.worker.told import RankReport

SHELL = "bash"
WRITTEN = "written"
LOOPS = {
    "Trainer": "the Trainer",
    "accelerate": "a loop around accelerate",
    "deepspeed": "a loop around DeepSpeed",
    "torch": "a loop of torch alone",
}
QUIET = {"WANDB_MODE": "disabled", "PYTHONDONTWRITEBYTECODE": "1"}
LINES, SHOWN = 12, 8


@dataclass(frozen=True)
class Played:
    """What came of it; ``reduced`` is what the live engine had to show."""

    command: Command
    reduced: Reduced
    outcome: Outcome
    checks: list[Check]


def nobody() -> RunFolder:
    """A run of which nothing is planned, for a command without one."""
    return RunFolder(Path.cwd(), Lock("own command"), None, None)


def play(
    line: str,
    run: RunFolder,
    device: Device,
    steps: int,
    ranks: int | None,
    limit: float,
    scratch: Path,
    progress: Callable[[str], None] | None = None,
) -> Played:
    """Run the command in the current folder, and check what it trained against ``run``.

    ``ranks``: how many are expected, when not as many as planned. Raises SmokeError without a shell.
    """
    shell = shutil.which(SHELL)
    if shell is None:
        raise SmokeError(f"a command needs {SHELL}, which is not installed here")
    files = _configs(run)
    environment = _prepare(scratch, device, steps, files)
    watch = _Unwatched(environment[hook.JOB], scratch / "reports")
    with watch:
        outcome = process.run(
            [shell, "-c", line], scratch, None, device.kind, limit, progress, environment, place=Path.cwd()
        )
    command = Command(line, _loop(outcome.reports))
    _judge(outcome, command, watch, limit, _tail(scratch))
    reduced = _expected(run, outcome.reports, ranks)
    checks = _checks(run, reduced, outcome, steps)
    if command.loop is not None and outcome.failure is None:
        checks += _reads(files, scratch / "reports")
        command.notes = _notes(outcome.reports, steps, scratch / WRITTEN, device)
        reduced.changes += [Reduction(Kind.SAVING, why=why) for why in [_unsaved(outcome.reports)] if why]
    return Played(command, reduced, outcome, checks)


def _prepare(scratch: Path, device: Device, steps: int, files: list[Path]) -> dict[str, str]:
    """Write the job and the hook into ``scratch``; the variables by which the command's processes find them."""
    (scratch / WRITTEN).mkdir()
    (scratch / "reports").mkdir()
    program = process.program(scratch)
    shutil.copy2(program / process.PROGRAM / "sitecustomize.py", program)
    job = Job(
        reports=str(scratch / "reports"),
        saved=str(scratch / WRITTEN),
        consumer="command",
        by_accelerate=False,
        device=device.kind,
        steps=steps,
        model={},
        arguments={},
        sequence=0,
        deepspeed_config=None,
    )
    job.write(scratch / "job.json")
    # The hook has to be found first: another `sitecustomize` would hide it.
    paths = [str(program), *filter(None, [os.environ.get("PYTHONPATH")])]
    return QUIET | {
        "PYTHONPATH": os.pathsep.join(paths),
        hook.JOB: str(scratch / "job.json"),
        hook.REPORTS: str(scratch / "reports"),
        audit.FILES: os.pathsep.join(str(file.resolve()) for file in files),
    }


def _configs(run: RunFolder) -> list[Path]:
    """The configs of a run, which a command that is to prove it has to read."""
    return [run.path / name for name in (ACCELERATE, DEEPSPEED) if name in run.hashes and (run.path / name).is_file()]


def _expected(run: RunFolder, reports: list[RankReport], ranks: int | None) -> Reduced:
    """What the live engine has to show: the plan as it is, on the ranks that were asked for."""
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
    checks = check(run, reduced, outcome, min(steps, done) if by_itself and done else steps)
    # The script's own batches differ from step to step, and so may their losses.
    checks = [replace(one, ok=None) if one.name == "loss falls" and one.ok is False else one for one in checks]
    if run.plan:
        return checks
    noted = {one.name for one in settings.check(run, reduced, reports)} - {"world size"}
    return [replace(one, planned="-", ok=None) if one.name in noted else one for one in checks]


def _reads(files: list[Path], reports: Path) -> list[Check]:
    """Whether the command read the configs that it is to prove."""
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
    told = reports[0].get("command") or {}
    if told.get("saved"):
        return str(told["saved"])
    if told.get("left"):
        return f"not reached, zerocfg ended the script after {len(reports[0].get('step_seconds', []))} optimizer steps"
    return "the script saved no model after its training"


def _notes(reports: list[RankReport], steps: int, written: Path, device: Device) -> list[str]:
    first, told = reports[0], reports[0].get("command") or {}
    done = len(first.get("step_seconds", []))
    loop = LOOPS[told["loop"] or ""]
    if told.get("stopped"):
        notes = [f"training: {loop}, stopped by zerocfg after {done} optimizer step{'s' * (done != 1)}"]
    else:
        notes = [f"training: {loop}, ended by itself after {done} optimizer step{'s' * (done != 1)}"]
    if _unsaved(reports) is None:
        notes.append("saving: the script's own, checked")
    if device.kind == "cpu" and told["loop"] == "Trainer":
        notes.append("use_cpu: true was added to its TrainingArguments; else each rank would train alone")
    redirected = _told(reports, "redirected")
    outer = [path for path in redirected if not any(path.startswith(other + os.sep) for other in redirected)]
    notes += [f"redirected: {_shown(path)}, to a temporary folder" for path in outer[:SHOWN]]
    wrote = [path for path in _told(reports, "wrote") if Path(path).exists()]
    notes += [f"written by the script itself: {_shown(path)}" for path in wrote[:SHOWN]]
    removed = [path for path in _told(reports, "removed") if not Path(path).exists()]
    notes += [f"removed by the script itself: {_shown(path)}" for path in removed[:SHOWN]]
    again = sum(1 for folder in written.parent.joinpath("reports").iterdir() if folder.is_dir())
    if again:
        notes.append(f"the command trained {again + 1} times; the first training is checked")
    return notes


def _told(reports: list[RankReport], what: Literal["redirected", "wrote", "removed"]) -> list[str]:
    """The paths that any rank told of."""
    return sorted({path for report in reports for path in (report.get("command") or {}).get(what, [])})


def _shown(path: str) -> str:
    """A path as the user would write it."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path


def _judge(outcome: Outcome, command: Command, watch: _Unwatched, limit: float, tail: list[str]) -> None:
    """Say in the words of a command why it proves nothing."""
    if outcome.interrupted:
        return
    late = outcome.seconds >= limit
    if watch.found is not None:
        outcome.failure, outcome.kind, outcome.detail, outcome.rank = watch.found, "launcher", [], None
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


class _Unwatched:
    """Ends Python processes of the command that cannot find the hook: they would train to their end, unwatched.

    Looks every half second while it is entered; on systems without /proc it sees nothing. ``found``: what was wrong.
    """

    def __init__(self, job: str, reports: Path) -> None:
        self.found: str | None = None
        self._job = f"{hook.JOB}={job}".encode()
        self._program = os.fsencode(reports.parent / "program")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            for place in Path("/proc").glob("[0-9]*"):
                if self._lost(place):
                    self.found = (
                        "the command sets PYTHONPATH anew, so that zerocfg cannot watch its training; "
                        "write PYTHONPATH=FOLDER:$PYTHONPATH"
                    )
                    self._end(int(place.name))

    def _lost(self, place: Path) -> bool:
        try:
            variables = (place / "environ").read_bytes().split(b"\0")
            program = (place / "exe").readlink().name
        except OSError:
            return False
        if self._job not in variables or not program.startswith("python"):
            return False
        paths = next((one.partition(b"=")[2] for one in variables if one.startswith(b"PYTHONPATH=")), b"")
        return self._program not in paths.split(os.fsencode(os.pathsep))

    @staticmethod
    def _end(member: int) -> None:
        try:
            os.kill(member, 9)
        except OSError:
            time.sleep(0)
