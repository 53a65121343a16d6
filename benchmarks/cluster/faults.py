"""Faults put into jobs on a real Slurm of two nodes, on this machine, and whether zerocfg names each of them.

    python -m benchmarks.cluster.faults results.jsonl --times 20
    python -m benchmarks.cluster.faults results.jsonl --fault clean-preflight --times 100
    python -m benchmarks.cluster.report results.jsonl

Every time the command is started as a user starts it, the fault is put in from outside, at another moment each, and
then what it printed, its exit code and what it left behind are judged. Rows are appended, so that a campaign goes on
where it stopped. It needs Slurm (Debian's `slurm-wlm`) and root, for file systems that only one node sees.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tools.slurm_nodes import SlurmNodes, missing, slurm_nodes

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/two-nodes-cpu"
SMALL = ("16k", "128k", "512k")
"""Room of temporary folders that are small on node 2 alone: too little for the build, the ranks' program, the job."""
MARK = "ZEROCFG_FAULTS"
"""A variable that everything a command starts inherits."""
LEFT = 20
"""Seconds that processes and files get to go away after the command has ended."""


@dataclass
class Row:
    """One time. ``named``: the command told what happened, and where; ``left``: what stayed."""

    fault: str
    number: int
    moment: float = 0.0
    seconds: float = 0.0
    code: int = 0
    named: bool = False
    left: list[str] = field(default_factory=list)
    told: str = ""


@dataclass
class Command:
    """A running zerocfg; ``environment`` beyond that of the cluster."""

    bench: Bench
    words: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        own = {"PYTHONPATH": str(ROOT), "DS_ACCELERATOR": "cpu", "TMPDIR": str(self.bench.temporary)}
        own[MARK] = str(self.bench.folder)
        own["TORCH_EXTENSIONS_DIR"] = str(ROOT / ".cache/torch_extensions")  # compiled once, by `make test`
        self.process = subprocess.Popen(
            [sys.executable, "-m", "zerocfg", *self.words],
            cwd=self.bench.build.parents[1],
            env={**os.environ, **self.bench.nodes.environment, **own, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def end(self) -> tuple[int, str]:
        out, _ = self.process.communicate(timeout=900)
        return self.process.returncode, out

    @property
    def over(self) -> bool:
        return self.process.poll() is not None


@dataclass
class Bench:
    """The cluster, a build, and folders that are small or unlike on node 2."""

    nodes: SlurmNodes
    folder: Path

    @property
    def build(self) -> Path:
        return self.folder / "two/built/nodes"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    @property
    def release(self) -> Path:
        return self.folder / "release"

    def small(self, size: str) -> Path:
        return self.folder / f"small-{size}"

    def smoke(self, **environment: str) -> Command:
        words = ("smoke", str(self.build), "--on", "slurm", "--steps", "2", "--device", "cpu")
        return Command(self, words, environment)

    def preflight(self, *more: str, **environment: str) -> Command:
        words = ("preflight", "--on", "slurm", "--nodes", "2", "--ranks", "1", "--device", "cpu", *more)
        return Command(self, words, environment)

    def processes(self) -> dict[int, dict[str, str]]:
        """The environments of all that a command started, and of itself, by process; Slurm's own are left out."""
        found = {}
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if (place / "comm").read_text().startswith(("slurm", "srun")):
                    continue
                words = (place / "environ").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            environment = dict(word.split("=", 1) for word in words if "=" in word)
            if environment.get(MARK) == str(self.folder):
                found[int(place.name)] = environment
        return found

    def rank(self, number: int) -> int | None:
        """The process of a rank, once it runs: the oldest that has its number."""
        ranks = [process for process, own in self.processes().items() if own.get("RANK") == str(number)]
        return min(ranks, default=None)

    def jobs(self) -> list[str]:
        return self.nodes.run("squeue", "--noheader", "--format=%i").stdout.split()

    def left(self) -> list[str]:
        """What a command left behind that has ended, after a while."""
        until = time.monotonic() + LEFT
        while True:
            folders = [self.temporary, *(self.small(name) for name in SMALL)]
            files = [str(path.name) for folder in folders for path in folder.iterdir()]
            found = [f"job {one}" for one in self.jobs()] + [f"process {one}" for one in self.processes()] + files
            if not found or time.monotonic() > until:
                return found
            time.sleep(0.5)

    def idle(self) -> None:
        """Wait until both nodes take jobs."""
        until = time.monotonic() + 120
        while self.nodes.run("sinfo", "--noheader", "--Node", "--format=%t").stdout.split() != ["idle", "idle"]:
            if time.monotonic() > until:
                raise SystemExit("the nodes do not come back")
            if time.monotonic() > until - 110:  # a node that did not answer is taken for down
                self.nodes.run("scontrol", "update", "NodeName=n[1-2]", "State=RESUME")
            time.sleep(0.5)


def until_it(is_so: Callable[[], object], command: Command, within: float = 240) -> bool:
    """Wait until something is so; False where the command ended before."""
    end = time.monotonic() + within
    while not is_so() and time.monotonic() < end:
        if command.over:
            return False
        time.sleep(0.2)
    return True


def never_comes(bench: Bench, row: Row, chance: random.Random) -> None:
    """n2 is switched off, and nobody has noticed."""
    bench.nodes.end("n2")
    try:
        row.code, row.told = bench.smoke().end()
    finally:
        bench.nodes.start_node(2)
        bench.idle()
    row.named = row.code == 2 and "n2 never started the smoke-run" in row.told


def rank_killed(bench: Bench, row: Row, chance: random.Random) -> None:
    """One of the two ranks is killed, as by the kernel. A rank that had ended before is none: then sooner."""
    number, row.moment = chance.randrange(2), chance.uniform(0, 8)
    command, killed = bench.smoke(), False
    while True:
        process = None

        def runs() -> bool:
            nonlocal process
            process = bench.rank(number)
            return process is not None

        if until_it(runs, command):
            time.sleep(row.moment)
            if process is not None and (killed := bench.rank(number) == process):
                os.kill(process, signal.SIGKILL)
        row.code, row.told = command.end()
        if killed or row.code != 0:
            break
        command, row.moment = bench.smoke(), row.moment / 2
    row.named = row.code == 1 and f"rank {number} " in row.told and "SIGKILL" in row.told


def scancel(bench: Bench, row: Row, chance: random.Random) -> None:
    """Somebody else cancels the job. One that had ended before is none: then sooner."""
    row.moment = chance.uniform(0, 12)
    while True:
        command, cancelled = bench.smoke(), False
        if until_it(bench.jobs, command):
            time.sleep(row.moment)
            for one in bench.jobs():
                bench.nodes.run("scancel", one)
                cancelled = True
        row.code, row.told = command.end()
        if cancelled or row.code != 0:
            break
        row.moment /= 2
    row.named = row.code == 2 and "the job was cancelled" in row.told


def controller_restarts(bench: Bench, row: Row, chance: random.Random) -> None:
    """The controller is away for some seconds, which is no reason to fail."""
    row.moment = chance.uniform(0, 10)
    command = bench.smoke()
    if until_it(bench.jobs, command):
        time.sleep(row.moment)
    bench.nodes.end("controller")
    time.sleep(chance.uniform(1, 8))
    bench.nodes.start_controller()
    row.code, row.told = command.end()
    row.named = row.code == 0 and (bench.build / "smoke.json").is_file()


def full_disk(bench: Bench, row: Row, chance: random.Random) -> None:
    """n2's temporary folder has room for nothing, for the build alone, or for a part of the training."""
    size = SMALL[row.number % len(SMALL)]
    row.code, row.told = bench.smoke(TMPDIR=str(bench.small(size))).end()
    row.told = f"{size}: {row.told}"
    row.named = row.code != 0 and ("No space left on device" in row.told or "disk is full" in row.told)


def slow_rank(bench: Bench, row: Row, chance: random.Random) -> None:
    """Rank 1 is stopped for 60% of every 50 ms from its first line on."""
    command = bench.preflight()
    ended = threading.Event()
    if until_it(lambda: bench.rank(1), command):
        process = bench.rank(1)
        with throttled(process, 0.6, ended):
            row.code, row.told = command.end()
            ended.set()
    else:
        row.code, row.told = command.end()
    row.named = row.code == 1 and "rank 1 on n2" in row.told and "rank 0 on n1" not in row.told


@contextmanager
def throttled(process: int | None, share: float, ended: threading.Event, period: float = 0.05) -> Iterator[None]:
    """Stop a process for a share of every period."""

    def throttle() -> None:
        while process is not None and not ended.is_set():
            try:
                os.kill(process, signal.SIGSTOP)
                time.sleep(share * period)
                os.kill(process, signal.SIGCONT)
                time.sleep((1 - share) * period)
            except ProcessLookupError:
                return

    thread = threading.Thread(target=throttle)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def other_release(bench: Bench, row: Row, chance: random.Random) -> None:
    """n2 has another release of DeepSpeed; its build says which one it must be."""
    words = ("--expect", str(bench.build))
    row.code, row.told = bench.preflight(*words, PYTHONPATH=f"{bench.release}{os.pathsep}{ROOT}").end()
    row.named = row.code == 1 and "n2 has deepspeed 0.0.7" in row.told and "FAILED: 1 node of 2" in row.told


def clean_preflight(bench: Bench, row: Row, chance: random.Random) -> None:
    """Nothing is wrong, and nobody is accused."""
    row.code, row.told = bench.preflight().end()
    row.named = row.code == 0


FAULTS: dict[str, Callable[[Bench, Row, random.Random], None]] = {
    "never-comes": never_comes,
    "rank-killed": rank_killed,
    "scancel": scancel,
    "controller-restarts": controller_restarts,
    "full-disk": full_disk,
    "slow-rank": slow_rank,
    "other-release": other_release,
    "clean-preflight": clean_preflight,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--fault", action="append", choices=list(FAULTS), help="this one alone")
    parser.add_argument("--times", type=int, default=20)
    given = parser.parse_args()
    if reason := missing():
        print(f"{reason}; nothing was run")
        return 2
    faults = given.fault or [name for name in FAULTS if name != "clean-preflight"]
    before = given.results.read_text().splitlines() if given.results.is_file() else []
    done = {(one["fault"], one["number"]) for one in map(json.loads, before)}
    wrong = 0
    with bench() as made:
        for number in range(given.times):
            for fault in faults:
                if (fault, number) not in done:
                    row = once(made, fault, number)
                    wrong += not row.named or bool(row.left)
                    with given.results.open("a") as out:
                        out.write(json.dumps(asdict(row)) + "\n")
    return int(wrong > 0)


def once(made: Bench, fault: str, number: int) -> Row:
    """Put the fault into one job, and judge what came of it."""
    row = Row(fault, number)
    (made.build / "smoke.json").unlink(missing_ok=True)
    start = time.monotonic()
    FAULTS[fault](made, row, random.Random(f"{fault} {number}"))
    row.seconds = round(time.monotonic() - start, 1)
    row.left, row.moment, row.told = made.left(), round(row.moment, 2), row.told[-3000:]
    shutil.rmtree(made.folder / "two/.zerocfg", ignore_errors=True)
    for folder in (made.temporary, *(made.small(name) for name in SMALL)):
        for path in folder.iterdir():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
    print(
        f"{fault} {number}: {'named' if row.named else 'NOT NAMED'}, {row.left or 'nothing left'}, {row.seconds} s",
        flush=True,
    )
    return row


@contextmanager
def bench() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="zerocfg-faults-") as name:
        folder = Path(name)
        shutil.copytree(EXAMPLE, folder / "two")
        unlike = folder / "unlike/deepspeed-0.0.7.dist-info"
        unlike.mkdir(parents=True)
        (unlike / "METADATA").write_text("Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.0.7\n")
        lines = [f"mount --bind {folder}/unlike {folder}/release"]
        for own in ("tmp", "release", *(f"small-{name}" for name in SMALL)):
            (folder / own).mkdir()
        lines += [f"mount -t tmpfs -o size={size} none {folder}/small-{size}" for size in SMALL]
        with slurm_nodes(2, {2: "; ".join(lines)}) as nodes:
            yield Bench(nodes, folder)


if __name__ == "__main__":
    sys.exit(main())
