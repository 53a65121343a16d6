"""One import of the libraries for all launches of a command: launchers and ranks are forked from a process that did it.

Within `shared_imports` `process.run` starts its launcher by an executable that stands for Python (`zygote_process`). A
launcher that runs by it starts its ranks by it. Every program runs as from any Python: a process of its own, with the
arguments, environment, folder and open files that it was given. Where that is not possible, or the zygote dies, fresh
processes do the same; then the reason is shown as progress.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.smoke.launch.leftovers import MARK
from zerocfg.smoke.launch.scratch import scratch
from zerocfg.smoke.launch.warm import zygote_process
from zerocfg.smoke.model.error import SmokeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Progress = Callable[[str], None]

OF_A_LAUNCH = ("TMPDIR", "TEMP", "TMP", "PYTHONPATH", MARK)
"""Variables that each launch sets anew. PYTHONPATH of the zygote is the caller's."""
GRACE = 5.0
"""Seconds between the request to end and the kill."""
LOST = "lost"
"""File in the zygote's folder: it ended, or hung, while it ran a program. Written by `interpreter.py`."""
OF_FORKS = ("in forked subprocess", "CUDA error: initialization error")
"""Words of torch and of CUDA where a process was forked from one that had initialised CUDA: `zygote.initialised_cuda`
looks for that before, as far as it can."""
NVML = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""Has torch count cards without CUDA's driver, which a forked process could not use."""


@dataclass
class Imports:
    """The zygote of a `shared_imports`, started by the first launch. ``refusal``: why there is none any more."""

    folder: Path = Path()
    zygote: subprocess.Popen[bytes] | None = None
    refusal: str = ""
    shown: str = ""
    held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def executable(self) -> Path:
        return self.folder / "python"

    def start(self, environment: Mapping[str, str]) -> None:
        """Begin to import the libraries in this environment, unless that has begun."""
        if self.zygote is not None or self.refusal:
            return
        try:
            below = self.held.enter_context(scratch())
        except SmokeError as error:
            self.refusal = str(error)
            return
        self.folder = below / "warm"
        self.refusal = zygote_process.obstacle(self.folder)
        if self.refusal:
            return
        kept = {name: value for name, value in environment.items() if name not in OF_A_LAUNCH}
        own = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        try:
            self.folder.mkdir()
            self.zygote = zygote_process.start(self.folder, kept | own | NVML | {MARK: str(below)})
        except OSError as error:
            self.refusal = f"it cannot be started: {error.strerror or error}"
            return
        if not os.access(self.executable, os.X_OK):
            self.refusal = f"programs cannot be run in the temporary folder: {self.folder}"

    def problem(self) -> str:
        """Why launches take fresh processes; empty when they need not."""
        if not self.refusal and self.zygote is not None:
            with contextlib.suppress(OSError):
                self.refusal = (self.folder / zygote_process.REFUSED).read_text()
            if not self.refusal and self.zygote.poll() is not None:
                self.refusal = f"the process that imported the libraries ended with code {self.zygote.returncode}"
        return self.refusal

    def show(self, progress: Progress | None) -> None:
        """Show once why fresh processes are started."""
        if self.problem() and progress is not None and self.shown != self.refusal:
            self.shown = self.refusal
            progress(f"fresh processes for each launch: {self.refusal}")

    def end(self) -> None:
        """End the zygote, and what still runs of it."""
        with self.held:
            if self.zygote is None:
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.zygote.communicate(timeout=GRACE)  # closes its standard input first
            self.zygote.kill()
            self.zygote.communicate()


_active: list[Imports] = []


@contextlib.contextmanager
def shared_imports() -> Iterator[None]:
    """Import the libraries once for all launches within; within another one, for those of that one."""
    if _active or is_warm(sys.executable):
        yield
        return
    imports = Imports()
    _active.append(imports)
    try:
        yield
    finally:
        _active.remove(imports)
        imports.end()


def is_warm(executable: str) -> bool:
    """Whether this Python is one of a zygote already."""
    return Path(executable).with_name("socket").exists()


def prepare(
    command: list[str], environment: dict[str, str], ranks: int | None, progress: Progress | None = None
) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a launch, by the zygote where there is one."""
    if not _active or command[0] != sys.executable:
        return command, environment
    imports = _active[-1]
    # The number that both launchers set for their ranks where none is set. It is read when a library is loaded.
    if "accelerate.commands.launch" in command or (ranks or 1) > 1:
        environment = {"OMP_NUM_THREADS": "1"} | environment
    imports.start(environment)
    imports.show(progress)
    if imports.problem():
        return command, environment
    return [str(imports.executable), *command[1:]], environment


def is_to_blame(command: list[str], failure: Iterable[str]) -> bool:
    """Whether a launch failed by being forked, so that its result means nothing: the zygote was lost meanwhile, or the
    lines of the ``failure`` say that CUDA does not work in a forked process. Later launches take fresh processes.
    """
    if not _active or command[0] != str(_active[-1].executable):
        return False
    imports = _active[-1]
    if any(words in line for line in failure for words in OF_FORKS):
        imports.refusal = imports.refusal or "CUDA could not be used in a forked process"
        return True
    return (imports.folder / LOST).exists()
