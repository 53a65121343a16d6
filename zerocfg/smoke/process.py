"""Start the launcher, follow the ranks' reports, and end with a verdict within the time limit."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

WORKER = Path(__file__).with_name("worker")
PROGRAM = "zerocfg_worker"
# What would turn the run into another one: accelerate on this processor alone, an outer launcher's ranks, a default
# config, settings of the plugin that the files do not have.
FOREIGN = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "TORCHELASTIC_")
RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
MARK = "ZEROCFG_SMOKE_RUN"
FAILED_RANK = re.compile(r"rank\s*:\s*(\d+) \(local_rank: \d+\)\s+exitcode\s*:\s*(-?\d+)")


@dataclass
class Outcome:
    """``failure`` is None when every rank came to its end; ``rank`` and ``detail`` tell of the one that failed."""

    reports: list[dict[str, Any]]
    failure: str | None = None
    rank: int | None = None
    detail: list[str] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False


def environment(device: str, own: bool = False) -> dict[str, str]:
    """The environment of a run. ``own``: the user's own command keeps what they set for it, and may use the network."""
    drop, foreign = (RANKS[:-2], FOREIGN[-1:]) if own else (RANKS, FOREIGN)
    kept = {name: value for name, value in os.environ.items() if name not in drop and not name.startswith(foreign)}
    if not own:
        kept["HF_HUB_OFFLINE"] = "1"
    # DeepSpeed compiles with ninja, which an environment that is not activated has beside its Python only.
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
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
) -> Outcome:
    """Run ``command`` in ``folder``; reports are expected in ``folder/reports``, the log goes to ``folder/log.txt``.

    ``ranks`` None: as many as report. ``variables`` are added to the environment. ``place``: where the command is
    run, when not in ``folder``; it is the user's own then, and keeps their environment.

    Whatever happens, no process of the run is left when this returns.
    """
    reports = folder / "reports"
    reports.mkdir(exist_ok=True)
    start = time.monotonic()
    outcome = Outcome([])
    mark = uuid.uuid4().hex
    began = time.time()
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=place or folder,
            env=environment(device, own=place is not None) | (variables or {}) | {MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            outcome.rank = _follow(process, reports, ranks, start + limit, progress)
        except KeyboardInterrupt:
            outcome.interrupted = True
        finally:
            outcome.seconds = time.monotonic() - start
            outcome.reports = _reports(reports, ranks)
            _end(process, mark, outcome.reports, began)
    _judge(outcome, process.returncode, limit, (folder / "log.txt").read_text(errors="replace"))
    return outcome


def _follow(
    process: subprocess.Popen[bytes],
    reports: Path,
    ranks: int | None,
    deadline: float,
    progress: Callable[[str], None] | None,
) -> int | None:
    """Wait for the end or the deadline; the rank that vanished without a word before any other failed, if one did.

    A rank with an error gives the others a few seconds, not the whole limit. When one vanished the others are killed:
    they wait for it inside a collective operation, where they do not hear torchrun's request to end.
    """
    told, vanished = "", None
    while process.poll() is None and time.monotonic() < deadline:
        seen = _reports(reports, ranks)
        if any("error" in report for report in seen):
            deadline = min(deadline, time.monotonic() + 15)
        elif vanished is None:
            vanished = next((rank for rank, report in enumerate(seen) if _vanished(report)), None)
            if vanished is not None:
                deadline = min(deadline, time.monotonic() + 15)
                for report in seen:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(report["pid"], signal.SIGKILL) if "pid" in report else None
        phase = str(seen[0].get("phase", "launch")) if seen else "launch"
        if progress is not None and phase != told:
            told = phase
            progress(phase)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    return vanished


def _vanished(report: dict[str, Any]) -> bool:
    """A rank whose process is no more though its report says neither that it is done nor why it failed."""
    if "pid" not in report or report.get("done"):
        return False
    try:
        os.kill(report["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _end(process: subprocess.Popen[bytes], mark: str, reports: list[dict[str, Any]], since: float) -> None:
    """End the launcher and every process that it started: asked first, then killed."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(3)
    left = _marked(mark) | {report.get("pid", 0) for report in reports} - {0}
    for member in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(member, signal.SIGKILL)
    if left or process.poll() != 0:
        _unlock(since)
    patience = time.monotonic() + 5
    while left and _marked(mark) and time.monotonic() < patience:
        time.sleep(0.02)


def _operator_locks() -> list[Path]:
    """Lock files that torch makes while it compiles DeepSpeed's operators."""
    caches = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or Path(caches, "torch_extensions"))
    return [*root.glob("*/lock"), *root.glob("*/*/lock")]


def _unlock(since: float) -> None:
    """Remove the locks made since then: torch waits for ever for one whose maker was killed."""
    for lock in _operator_locks():
        with contextlib.suppress(OSError):
            if lock.stat().st_mtime >= since - 1:
                lock.unlink()


def _marked(mark: str) -> set[int]:
    """Processes that inherited the mark of this run; torchrun puts each rank into a session of its own.

    Empty on systems without /proc, where the ranks' own reports have to do.
    """
    wanted = f"{MARK}={mark}".encode()
    members = set()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in entry.read_bytes().split(b"\0"):
                members.add(int(entry.parent.name))
    return members


def _judge(outcome: Outcome, code: int, limit: float, log: str) -> None:
    """Why the run failed, told by the rank where it began."""
    errors = [(report["error"], report["rank"]) for report in outcome.reports if "error" in report]
    done = all(report.get("done") for report in outcome.reports)
    codes = {int(rank): int(exit_code) for rank, exit_code in FAILED_RANK.findall(log)}
    tail = [line for line in log.splitlines() if line.strip()][-12:]
    if outcome.interrupted:
        outcome.failure = "interrupted"
    elif outcome.rank is not None:
        outcome.rank = _first(outcome.rank, codes)
        outcome.failure, outcome.detail = _ended(outcome.rank, codes, outcome.reports), tail
    elif errors:
        # The other ranks then fail because they lost a partner.
        error, outcome.rank = min(errors, key=lambda item: item[0]["time"])
        outcome.failure = f"{error['type']}: {' '.join(error['text'].split())[:2000]}"
        outcome.detail = error["traceback"]
    elif outcome.seconds >= limit and not done:
        places = ", ".join(f"rank {n} in '{r.get('phase', 'launch')}'" for n, r in enumerate(outcome.reports))
        outcome.failure = f"not finished within {limit:g} s: {places}"
        outcome.detail = [
            f"{lock}: made by a process that compiles DeepSpeed's operators; if none does, remove it"
            for lock in _operator_locks()
        ]
    elif code != 0 or not done:
        outcome.rank = next(iter(codes), None)
        if outcome.rank is not None and outcome.rank < len(outcome.reports):
            outcome.rank = _first(outcome.rank, codes)
            outcome.failure = _ended(outcome.rank, codes, outcome.reports)
        else:
            outcome.failure = f"the launcher ended with exit code {code}"
        outcome.detail = tail


def _first(noticed: int, codes: dict[int, int]) -> int:
    """The rank that went first. Between two looks torchrun may have ended the others as well, by SIGTERM."""
    if codes.get(noticed) != -signal.SIGTERM:
        return noticed
    return next((rank for rank, code in codes.items() if code != -signal.SIGTERM), noticed)


def _ended(rank: int, codes: dict[int, int], reports: list[dict[str, Any]]) -> str:
    """How a rank came to its end; its exit code is known when torchrun still could print its table."""
    code = codes.get(rank)
    how = (
        "vanished" if code is None else f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    )
    return f"rank {rank} {how} in '{reports[rank].get('phase', 'launch')}'"


def _reports(folder: Path, ranks: int | None) -> list[dict[str, Any]]:
    """What each rank says by now, in their order; without a number of ranks those that said something."""
    if ranks is None:
        ranks = 1 + max(
            (int(file.stem[4:]) for file in folder.glob("rank*.json") if file.stem[4:].isdigit()), default=-1
        )
    return [_load(folder / f"rank{rank}.json") for rank in range(ranks)]


def _load(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content


def program(scratch: Path) -> Path:
    """Copy the ranks' program below ``scratch``; the folder that PYTHONPATH has to name.

    From there a training process finds this package alone, and neither zerocfg nor what is installed beside it.
    """
    folder = scratch / "program"
    shutil.copytree(WORKER, folder / PROGRAM, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def launcher(by_accelerate: bool, ranks: int, port: int) -> list[str]:
    """The words that start the ranks' program; the job file comes behind them.

    What the deepspeed launcher would start, torchrun starts here: on one machine the processes are the same.
    """
    if not by_accelerate:
        options = ["--nproc_per_node", str(ranks), "--master_port", str(port)]
        return [sys.executable, "-m", "torch.distributed.run", *options, "-m", PROGRAM]
    options = ["--config_file", "accelerate.yaml", "--main_process_port", str(port)]
    return [sys.executable, "-m", "accelerate.commands.launch", *options, "-m", PROGRAM]
