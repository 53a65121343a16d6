"""Starts the user's own training command under a hook that stops it after some optimizer steps.

The script knows nothing of the hook, and nothing is made smaller: model, data and arguments are the script's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.smoke.launch import process
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.prepare.folder import ACCELERATE, DEEPSPEED, RunFolder
from zerocfg.smoke.worker.hooks import audit, import_hook
from zerocfg.smoke.worker.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerocfg.smoke.launch.process import Outcome
    from zerocfg.smoke.prepare.device import Device

SHELL = "bash"
WRITTEN = "written"
QUIET = {"WANDB_MODE": "disabled", "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True)
class Launched:
    """The result of a launch. ``configs``: the run's files, which the command has to read.

    ``unwatched``: why the training could not be watched, None when it could.
    """

    outcome: Outcome
    configs: list[Path]
    unwatched: str | None


def launch(
    line: str,
    run: RunFolder,
    device: Device,
    steps: int,
    limit: float,
    scratch: Path,
    progress: Callable[[str], None] | None = None,
) -> Launched:
    """Run the command in the current folder. Raises SmokeError without a shell."""
    shell = shutil.which(SHELL)
    if shell is None:
        raise SmokeError(f"a command needs {SHELL}, which is not installed here")
    files = _configs(run)
    environment = _prepare(scratch, device, steps, files)
    watch = _Unwatched(environment[import_hook.JOB], scratch / "reports")
    with watch:
        outcome = process.run(
            [shell, "-c", line], scratch, None, device.kind, limit, progress, environment, place=Path.cwd()
        )
    return Launched(outcome, files, watch.found)


def _prepare(scratch: Path, device: Device, steps: int, files: list[Path]) -> dict[str, str]:
    """Write the job and the hook into ``scratch``; the variables by which the command's processes find them."""
    (scratch / WRITTEN).mkdir()
    (scratch / "reports").mkdir()
    program = process.program(scratch)
    shutil.copy2(program / process.PROGRAM / "hooks" / "sitecustomize.py", program)
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
        import_hook.JOB: str(scratch / "job.json"),
        import_hook.REPORTS: str(scratch / "reports"),
        audit.FILES: os.pathsep.join(str(file.resolve()) for file in files),
    }


def _configs(run: RunFolder) -> list[Path]:
    """The configs of a run; the command has to read them to prove anything about it."""
    return [run.path / name for name in (ACCELERATE, DEEPSPEED) if name in run.hashes and (run.path / name).is_file()]


class _Unwatched:
    """Ends Python processes of the command that cannot find the hook: they would train on, unobserved.

    Looks every half second while it is entered; on systems without /proc it sees nothing. ``found``: what was wrong.
    """

    def __init__(self, job: str, reports: Path) -> None:
        self.found: str | None = None
        self._job = f"{import_hook.JOB}={job}".encode()
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
                        "the command overwrites PYTHONPATH, so that zerocfg cannot watch its training; "
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
        paths = next(
            (variable.partition(b"=")[2] for variable in variables if variable.startswith(b"PYTHONPATH=")), b""
        )
        return self._program not in paths.split(os.fsencode(os.pathsep))

    @staticmethod
    def _end(member: int) -> None:
        with contextlib.suppress(OSError):
            os.kill(member, signal.SIGKILL)
