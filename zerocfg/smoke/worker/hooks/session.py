"""The state of one process of the user's command: whether it is a rank, which loop is observed, how it ended."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .. import failure, fence, group, releases, weights
from ..job import Job
from ..report import Report
from ..votes import Vote
from ..watch import Watch
from . import audit

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, Literal

    import transformers

    from ..report_schema import Command, Weights

AGAIN = 16
"""How often a command may train one after the other."""


class Places:
    """Maps paths to their redirected place: below ``root``, under their own absolute path."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def of(self, path: str | os.PathLike[str]) -> str:
        """The redirected path; one that is redirected already stays."""
        absolute = Path(os.path.abspath(Path(path).expanduser()))  # noqa: PTH100 - links are not followed
        if self.root.parent in (absolute, *absolute.parents):
            return str(absolute)
        return str(self.root.joinpath(*absolute.parts[1:]))

    def origin(self, path: str | os.PathLike[str]) -> str:
        """The original of a redirected path; any other path as it is."""
        absolute = Path(path)
        if self.root in absolute.parents:
            return str(Path(absolute.anchor, *absolute.relative_to(self.root).parts))
        return str(path)


class Session:
    """One process. ``loop`` "Trainer", "accelerate", "deepspeed", "torch"; None as long as no training was reached."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.places = Places(Path(job.saved))
        self.loop: str | None = None
        self.saving = False
        self.over = False
        self._owner = ""
        self._watch: Watch | None = None
        self._steps = 0
        self.report: Report | None = None
        self._leaving = False
        self._stays = False

    @property
    def active(self) -> bool:
        """Whether this process is, or belongs to, a rank; a program that only prepares data is left alone."""
        return bool(self._owner) or "RANK" in os.environ

    def enlist(self) -> None:
        """Begin the report of a process that the launcher made a rank; its children find it and write none."""
        folder = Path(self.job.reports)
        if not (folder / f"rank{os.environ['RANK']}.json").exists():
            self._begin(folder)

    def claim(self, owner: str) -> bool:
        """Whether ``owner`` is the loop to be watched: the Trainer uses accelerate, and that uses DeepSpeed."""
        if not self._owner or (owner == "Trainer" and self.loop is None):
            self._owner = owner
        return self._owner == owner

    def take(self, owner: str) -> bool:
        """The same when ``owner`` really trains: a Trainer whose own loop was replaced never does."""
        if self.loop is None:
            self._owner = owner
        return self._owner == owner

    def become(self, owner: str) -> None:
        """``owner`` trains now, whatever was prepared before."""
        self._owner = self.loop = owner
        if self._watch is not None:
            self._record({"loop": owner})

    def free(self, owner: str) -> bool:
        """Whether ``owner`` is the loop that is watched, or may become it."""
        return not self.over and self._owner in ("", owner)

    @property
    def watch(self) -> Watch:
        """The training run of this process, begun on first use."""
        if self._watch is None:
            self.loop = self._owner
            if self.report is None:
                self._begin(self._folder())
            assert self.report is not None
            self._watch = Watch(self.job, self.report)
            self._record({"loop": self.loop})
        return self._watch

    @property
    def enough(self) -> bool:
        """Whether the optimizer steps are done."""
        return self._steps >= self.job.steps

    def step(self) -> None:
        """An optimizer step of the watched training is done; it counts for `enough` even if the watch breaks."""
        if self.over:
            return
        self._steps += 1
        quietly(lambda: self.watch.step())

    def redirected(self, path: str | os.PathLike[str]) -> None:
        """Record a path that was redirected."""
        original = self.places.origin(os.path.abspath(path))  # noqa: PTH100
        if self.report is not None and not original.startswith(str(self.places.root.parent)):
            known = self.report.content["command"].setdefault("redirected", [])
            if original not in known and len(known) < AGAIN:
                known.append(original)
                self.report.write()

    def measure(self, name: str, function: Callable[..., Any], *arguments: Any, otherwise: Any = None) -> Any:
        """`Fence.measure` of the training that is watched."""
        return self.watch.fence.measure(name, function, *arguments, otherwise=otherwise)

    def trained(self) -> None:
        """The training loop is over, by us or by the script."""
        self.over = True
        if self._watch is not None:
            self._watch.stop()
        self._record({"stopped": self.enough})

    def saved(self, folder: str, model: object) -> None:
        """The script saved the trained model: check it as the usual smoke-run does."""
        if self.report is None or self._watch is None or self.report.rank != 0:
            return
        if not self.over or "weights" in self.report.content:
            return
        import transformers

        if not isinstance(model, transformers.PreTrainedModel):
            names = sorted(file.name for file in Path(folder).glob("*") if file.suffix in (".safetensors", ".bin"))
            files = ", ".join(names) or "no file of weights"
            self._record({"saved": f"{files} (a {type(model).__name__}, not checked)"})
            return
        found = self._watch.read_weights(_read_weights, Path(folder), model)
        if found is not None:
            self.report.content["weights"] = found
        self.report.write()

    def leave(self) -> None:
        """End this rank, so that its launcher sees success. All ranks come here after the same step.

        Where one does not come, because its hooks broke, none leaves: its next collective would wait for the others.
        A script that catches even SystemExit, or has a thread that does not end, is ended at once.
        """
        if self._stays:
            return
        if self._leaving:
            os._exit(0)
        if not quietly(Vote("leave").all_ready, otherwise=False):
            self._stays = True
            self.trained()
            return
        self._leaving = True
        quietly(self.trained)
        quietly(lambda: self._record({"left": True}))
        quietly(group.barrier)
        threading.Thread(target=_end_soon, daemon=True).start()
        quietly(self._done)
        raise SystemExit(0)

    def _folder(self) -> Path:
        """A folder for the reports of this training: a command may train several times in a row."""
        rank = os.environ.get("RANK", "0")
        base = Path(self.job.reports)
        for number in range(1, AGAIN):
            folder = base if number == 1 else base / str(number)
            if not (folder / f"rank{rank}.json").exists():
                folder.mkdir(parents=True, exist_ok=True)
                return folder
        return base / str(AGAIN)

    def _begin(self, folder: Path) -> None:
        self.report = report = Report(folder)
        report.content["versions"] = report.fence.measure("versions", releases.installed_versions, otherwise={})
        ranks = int(os.environ.get("WORLD_SIZE", "1"))
        self._record({"loop": None, "world_size": ranks, "program": sys.argv[:1]})
        atexit.register(quietly, self._end, os.getpid())
        previous = sys.excepthook

        def failed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            quietly(self._fail, error)
            previous(kind, error, trace)

        sys.excepthook = failed
        process, scratch = os.getpid(), str(self.places.root.parent)

        def note_path(what: Literal["wrote", "removed"], path: str) -> None:
            known = report.content["command"].setdefault(what, [])
            if os.getpid() == process and len(known) < AGAIN:
                known.append(path)

        audit.report_writes(note_path, scratch)

    def _record(self, values: Command) -> None:
        assert self.report is not None
        self.report.content.setdefault("command", {}).update(values)
        self.report.write()

    def _fail(self, error: BaseException) -> None:
        assert self.report is not None
        self.report.content["error"] = failure.describe(error)
        self.report.write()

    def _end(self, process: int) -> None:
        if self.report is not None and os.getpid() == process and "error" not in self.report.content:
            self._done()

    def _done(self) -> None:
        assert self.report is not None
        self.report.content["done"] = True
        self.report.phase("done")


def _read_weights(folder: Path, model: transformers.PreTrainedModel, sums: dict[str, int] | None) -> Weights:
    """`weights.read` makes transformers forget the config of DeepSpeed; the script goes on with it."""
    from transformers.integrations import deepspeed as integration

    config = integration._hf_deepspeed_config_weak_ref
    try:
        return weights.read(folder, model, sums)
    finally:
        integration._hf_deepspeed_config_weak_ref = config


def _end_soon() -> None:
    time.sleep(20)
    os._exit(0)


_sessions: list[Session] = []
HOOKS = "hooks"
"""The instrument: what is called around the user's own calls, and only watches."""


def quietly(watch: Callable[..., Any], *arguments: Any, otherwise: Any = None) -> Any:
    """What ``watch`` returns, else ``otherwise``: whatever breaks in it is no matter of the script's.

    SystemExit passes: it ends the rank after its steps. Nothing is off for good here: what breaks in one call may still
    stop the training in another.
    """
    try:
        return watch(*arguments)
    except Exception as error:
        for session in _sessions:
            if session.report is not None:
                session.report.fence.instruments[HOOKS] = fence.reason(error)
        return otherwise


def current() -> Session:
    """The session of this process."""
    if not _sessions:
        _sessions.append(Session(Job.read(Path(os.environ["ZEROCFG_SMOKE_JOB"]))))
    return _sessions[0]
