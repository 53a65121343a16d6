"""Starts the launcher, follows the ranks' reports, and ends with an outcome within the time limit."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.smoke.launch import (
    failure_cause,
    leftovers,
    operator_cache,
    operator_locks,
    out_of_memory,
    rank_reports,
    stacks,
    warm,
)
from zerocfg.smoke.launch.compiling import Compiling
from zerocfg.smoke.launch.interrupts import Interrupts, interrupts
from zerocfg.smoke.launch.leftovers import MARK
from zerocfg.smoke.launch.scratch import temporary
from zerocfg.smoke.model.error import SmokeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerocfg.smoke.prepare.nodes import Nodes
    from zerocfg.smoke.worker.report_schema import RankReport

WORKER = Path(__file__).parents[1] / "worker"
PROGRAM = "zerocfg_worker"
# What would turn the run into another one: accelerate on this processor alone, an outer launcher's ranks, a default
# config, settings of the plugin that the files do not have.
FOREIGN = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "TORCHELASTIC_")
RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
PATIENCE = 15.0  # seconds that the others get after one rank failed
GRACE = 3.0  # seconds between the request to end and the kill
LOOK = 0.5  # seconds between two looks at what the ranks hold
LOCKED = 5.0  # seconds between two looks at the lock of a compilation
LOG = 1 << 20  # bytes of the log's end that are read


@dataclass
class Outcome:
    """``failure`` is None when every rank came to its end; ``rank`` and ``detail`` tell of the one that failed.

    ``kind`` of failure: as `cause.Cause`. ``compiled``: of the ``seconds``, those in which a rank compiled operators.
    ``cut``: what ended a run whose planned training was over, saved and read back before: no failure, but the parts
    after it have no result.
    ``cleared``: what was set right before the launch, one sentence each: abandoned locks that were removed, a folder
    for operators that stands in for one that cannot be written.
    """

    reports: list[RankReport]
    failure: str | None = None
    rank: int | None = None
    detail: list[str] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False
    kind: str | None = None
    compiled: float = 0.0
    cut: str | None = None
    cleared: list[str] = field(default_factory=list)


def environment(device: str, own: bool = False) -> dict[str, str]:
    """The environment of a run. ``own``: the user's own command keeps what they set for it, and may use the network."""
    drop, foreign = (RANKS[:-2], FOREIGN[-1:]) if own else (RANKS, FOREIGN)
    kept = {name: value for name, value in os.environ.items() if name not in drop and not name.startswith(foreign)}
    if not own:
        kept["HF_HUB_OFFLINE"] = "1"
    # DeepSpeed compiles with ninja, which an environment that is not activated has beside its Python only.
    places = [str(Path(sys.executable).parent), kept.get("PATH", os.defpath)]
    kept["PATH"] = os.pathsep.join(reversed(places) if own else places)
    if device == "cpu":
        kept.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")
        kept.setdefault("OMP_NUM_THREADS", "1")
    return kept


def run(
    command: list[str],
    folder: Path,
    ranks: int | None,
    device: str,
    limit: float,
    progress: Callable[[str], None] | None = None,
    variables: dict[str, str] | None = None,
    place: Path | None = None,
    nodes: Nodes | None = None,
) -> Outcome:
    """Run ``command`` in ``folder``; reports are expected in ``folder/reports``, the log goes to ``folder/log.txt``.

    ``ranks`` None: as many as report. ``variables`` are added to the environment. ``place``: where the command is
    run, when not in ``folder``; it is the user's own then, and keeps their environment. ``nodes``: machines that the
    ranks are spread over; those of the others report when all have done their work.

    Whatever happens, no process of the run is left when this returns, no shared memory and no lock of its ranks.
    Raises SmokeError when the command cannot be started.
    """
    (folder / "reports").mkdir(exist_ok=True)
    with interrupts() as stop:
        if stop:
            return Outcome([{} for _ in range(ranks or 0)], "interrupted", interrupted=True, kind="interrupted")
        own = place is not None
        cleared = operator_locks.clear()
        # The user's own command shows what their training would meet.
        instead = operator_cache.Cache({}, None) if own else operator_cache.find(folder)
        cleared += [instead.message] if instead.message is not None else []
        if progress is not None:
            for message in cleared:
                progress(message)
        whole = environment(device, own) | temporary(folder, sockets=own) | instead.variables | (variables or {})
        prepared, whole = command, whole | {MARK: str(folder)}
        if nodes is None and not own:
            prepared, whole = warm.prepare(command, whole, ranks, progress)
        started = "the command" if own else "the launcher"
        outcome = _Run(prepared, folder, ranks, limit, stop, progress, nodes, started).play(whole, place or folder)
        outcome.cleared = cleared
        if own or outcome.failure is None or outcome.interrupted:
            return outcome
        if not warm.is_to_blame(prepared, [outcome.failure, *outcome.detail]):
            return outcome
        shutil.rmtree(folder / "reports")
        return run(elsewhere(command), folder, ranks, device, limit, progress, variables, place, nodes)


@dataclass
class _Run:
    """One run, from the start of the launcher to its end."""

    command: list[str]
    folder: Path
    ranks: int | None
    limit: float
    stop: Interrupts
    progress: Callable[[str], None] | None
    nodes: Nodes | None = None
    started: str = "the launcher"
    vanished: int | None = None
    lock: str | None = None
    waiting: dict[int, list[str]] = field(default_factory=dict)
    stopped: list[int] = field(default_factory=list)

    def play(self, variables: dict[str, str], place: Path) -> Outcome:
        self.segments = leftovers.Segments()
        self.locks = operator_locks.snapshot()
        start = time.monotonic()
        kills = out_of_memory.kills()
        log = self.folder / "log.txt"
        with log.open("wb") as sink:
            try:
                self.process = subprocess.Popen(
                    self.command,
                    cwd=place,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise SmokeError(f"'{self.command[0]}' cannot be started: {error.strerror or error}") from None
        late = False
        try:
            _no_core_files(self.process.pid)
            late = self._follow(start + self.limit)
        finally:
            seconds = time.monotonic() - start
            reports = self._reports()
            self._end(reports)
        found = failure_cause.find(
            failure_cause.Seen(
                reports,
                self.process.returncode,
                _tail(log),
                self.limit if late else None,
                self.folder,
                vanished=self.vanished,
                interrupted=bool(self.stop),
                waiting=self.waiting,
                stopped=self.stopped,
                lock=self.lock,
                killer=out_of_memory.struck(kills),
                own=self.nodes.own if self.nodes is not None else None,
                started=self.started,
            )
        )
        outcome = Outcome(reports, seconds=seconds, interrupted=bool(self.stop), compiled=self.compiling.seconds)
        if found is not None and not self.stop and reports and all(report.get("trained") for report in reports):
            outcome.cut = found.text
        elif found is not None:
            outcome.failure, outcome.kind, outcome.rank = found.text, found.kind, found.rank
            outcome.detail = found.detail
        return outcome

    def _reports(self) -> list[RankReport]:
        return _reports(self.folder / "reports", self.ranks)

    def _follow(self, deadline: float) -> bool:
        """Wait for the end, an interrupt or the deadline; True when the deadline came first.

        A rank with an error, or one that vanished, gives the others a few seconds, not the whole limit. When one
        vanished the others are killed: they wait for it inside a collective operation, where they do not hear
        torchrun's request to end.
        """
        shown, looked, whole = "", 0.0, deadline
        patience = math.inf
        while self.process.poll() is None and not self.stop and self.lock is None:
            now = time.monotonic()
            self.compiling.look(now)
            deadline = whole + self.compiling.allowed
            if now >= min(deadline, patience):
                self._ask()
                return now >= deadline
            seen = self._reports()
            if any("error" in report or "apart" in report for report in seen):
                patience = min(patience, now + PATIENCE)
            elif self.vanished is None:
                self.vanished = next((rank for rank, report in enumerate(seen) if _vanished(report)), None)
                if self.vanished is not None:
                    patience = min(patience, now + PATIENCE)
                    self._kill(seen)
            if now - looked >= LOOK:
                looked = now
                self.segments.look(self._members(seen))
                self._find_lock(seen)
            first = self.nodes.own[0] if self.nodes is not None else 0
            phase = str(seen[first].get("phase", "launch")) if seen else "launch"
            if self.compiling.now is not None:
                phase = f"compile {self.compiling.now}"
            if self.progress is not None and phase != shown:
                shown = phase
                self.progress(phase)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.1)
        return False

    def _members(self, reports: list[RankReport]) -> set[int]:
        """The ranks' processes, without process ids that the system has reused since."""
        members = {report["pid"] for report in reports if "pid" in report}
        return {member for member in members if leftovers.is_marked(member, str(self.folder))}

    def _kill(self, reports: list[RankReport]) -> None:
        for member in self._members(reports):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, signal.SIGKILL)

    def _ask(self) -> None:
        """Record where the ranks hang."""
        reports = self._reports()
        members = self._members(reports)
        self.stopped = [rank for rank, report in enumerate(reports) if stacks.stopped(report.get("pid", 0))]
        self.waiting = stacks.ask(self.folder / "reports", reports, members)
        self._find_lock(reports, quiet=0)

    def _find_lock(self, reports: list[RankReport], quiet: float = operator_locks.QUIET) -> None:
        """Notice that a rank waits for the lock of a dead process; checked every few seconds."""
        for lock in operator_locks.find():
            first = self._since.setdefault(lock, time.monotonic())
            if quiet and time.monotonic() - first < LOCKED:
                continue
            self._since[lock] = time.monotonic()
            if operator_locks.abandoned(lock, quiet):
                frames = self.waiting or stacks.ask(self.folder / "reports", reports, self._members(reports))
                if any("file_baton.py" in item for rank in frames.values() for item in rank[:2]):
                    self.lock = operator_locks.describe(lock)

    def __post_init__(self) -> None:
        self._since: dict[Path, float] = {}
        self.compiling = Compiling(self.folder / "reports")

    def _end(self, reports: list[RankReport]) -> None:
        """End the launcher and every process that it started: asked first, then killed; remove what they leave."""
        mark = str(self.folder)
        self.segments.look(leftovers.marked(mark))
        for sign in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, sign)
                self._wait(GRACE)
        killed = leftovers.kill(mark)
        if not leftovers.PROC.is_dir():
            for report in reports:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(report["pid"], signal.SIGKILL) if "pid" in report else None
        if killed or self.process.poll() != 0:
            operator_locks.remove(self.locks)
        self.segments.remove()

    def _wait(self, seconds: float) -> None:
        """Wait for the launcher's end; no longer once the user has asked twice."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline and self.stop.requests < 2:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.1)


def _no_core_files(process: int) -> None:
    """Disable core files of crashing ranks, in whatever folder they run."""
    with contextlib.suppress(ImportError, AttributeError, OSError, ValueError):
        import resource

        _, hard = resource.prlimit(process, resource.RLIMIT_CORE)
        resource.prlimit(process, resource.RLIMIT_CORE, (0, hard))


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG))
        return file.read().decode(errors="replace")


def _vanished(report: RankReport) -> bool:
    """Whether the process of a rank is gone though its report says neither that it is done nor why it failed."""
    if "pid" not in report or report.get("done"):
        return False
    try:
        os.kill(report["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _reports(folder: Path, ranks: int | None) -> list[RankReport]:
    """The reports of all ranks so far, in order; without a number of ranks those that exist."""
    if ranks is None:
        ranks = 1 + max(
            (int(file.stem[4:]) for file in folder.glob("rank*.json") if file.stem[4:].isdigit()), default=-1
        )
    return [rank_reports.read(folder / f"rank{rank}.json") for rank in range(ranks)]


def program(scratch: Path) -> Path:
    """Copy the ranks' program below ``scratch``; the folder that PYTHONPATH has to name.

    From there a training process finds this package alone, and neither zerocfg nor what is installed beside it.
    """
    folder = scratch / "program"
    # One by one: shutil.copytree makes a full disk an error without its number.
    for path in sorted(WORKER.rglob("*.py")):
        target = folder / PROGRAM / path.relative_to(WORKER)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    return folder


def launcher(by_accelerate: bool, ranks: int, port: int, nodes: Nodes | None = None) -> list[str]:
    """The command that starts the ranks' program; the job file follows it.

    What the deepspeed launcher would start, torchrun starts here: on one machine the processes are the same.
    ``nodes``: where the ranks of several machines meet, in place of ``port`` on this one.
    """
    port = nodes.port if nodes is not None else port
    if not by_accelerate:
        each = nodes.each if nodes is not None else ranks
        options = ["--nproc_per_node", str(each), "--master_port", str(port)]
        if nodes is not None:
            options += ["--nnodes", str(nodes.count), "--node_rank", str(nodes.rank), "--master_addr", nodes.address]
        return [sys.executable, "-m", "torch.distributed.run", *options, "-m", PROGRAM]
    options = ["--config_file", "accelerate.yaml", "--main_process_port", str(port)]
    if nodes is not None:
        options += ["--machine_rank", str(nodes.rank), "--main_process_ip", nodes.address]
    return [sys.executable, "-m", "accelerate.commands.launch", *options, "-m", PROGRAM]


def free_port() -> int:
    """A port that is free now; another program may take it before the ranks do."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def elsewhere(command: list[str]) -> list[str]:
    """The same command (`launcher`) with another free port for the rendezvous."""
    options = ("--master_port", "--main_process_port")
    return [str(free_port()) if at and command[at - 1] in options else word for at, word in enumerate(command)]
