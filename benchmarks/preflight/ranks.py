"""What a preflight of real ranks costs as they grow, all of them processes of this machine.

    python -m benchmarks.preflight.ranks [RANKS...] [--per-node 4] [--write FILE]

For each N: wall time from the first process to the verdict, and from the meeting on; CPU seconds of a rank, for its
import of torch and in all; what it prints; the files that a node's ranks open for writing (as Python's audit hook sees
them) and what they leave behind; the open sockets and the memory of a rank at most; CPU seconds of the verdict.

The ranks share the machine, so walls and CPU seconds hold the waiting for each other: how they grow here is an upper
bound of how they grow on nodes of their own. Bytes, files and sockets do not depend on that.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from zerocfg.preflight import start
from zerocfg.preflight.judge import judge
from zerocfg.preflight.messages import PREFIX, Done, Local, read

PATIENCE = 540.0
"""Seconds for everything; of one collective a sixth of it. A preflight allows less."""
LOOK = 1.0
"""Seconds between two looks at the processes."""
_HOOK = """\
import os, sys
_log = os.open(os.environ["OPENED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def _heard(event, told):
    if event == "open":
        path, mode, flags = told
        writes = flags & (os.O_WRONLY | os.O_RDWR) if isinstance(flags, int) else set(str(mode)) & set("wax+")
        if writes and not isinstance(path, int):
            os.write(_log, (os.fsdecode(path) + "\\n").encode("utf-8", "replace"))
sys.addaudithook(_heard)
"""


@dataclass
class Cost:
    """``seconds``: from the first process to the verdict, ``met`` of them from the meeting on. All CPU seconds, bytes,
    sockets and memory are of one rank: the mean, but for ``sockets`` and ``pss_mib``, which are the most."""

    ranks: int
    nodes: int
    verdict: str
    seconds: float
    met: float
    attempts: int
    cpu: float
    had_cpus: float
    lines: float
    kib: float
    opened: float
    left: int
    stored_kib: float
    sockets: int
    pss_mib: float
    judge_cpu: float


class Watch:
    """Looks at the processes that this one has started, until ``end``."""

    def __init__(self) -> None:
        self.sockets, self.pss = 0, 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(LOOK):
            for task in Path("/proc/self/task").iterdir():
                for process in (task / "children").read_text().split():
                    try:
                        self._look(Path("/proc", process))
                    except OSError:  # it has ended
                        continue

    def _look(self, process: Path) -> None:
        links = [str(one.readlink()) for one in (process / "fd").iterdir()]
        self.sockets = max(self.sockets, sum(link.startswith("socket:") for link in links))
        rollup = (process / "smaps_rollup").read_text()
        kib = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
        self.pss = max(self.pss, kib / 1024)


def measure(ranks: int, per_node: int) -> Cost:
    nodes = max(1, ranks // per_node)
    with TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "sitecustomize.py").write_text(_HOOK)
        found = start.fake_nodes(
            nodes, ranks // nodes, ["--wait", str(PATIENCE), "--limit", str(PATIENCE / 6), "--device", "cpu"]
        )
        watch, before = Watch(), resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.monotonic()
        lines = start.follow([_heard(one, folder) for one in found], limit=PATIENCE)
        watch.end()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        worked = time.process_time()
        verdict = judge(lines, ranks)
        judged = time.process_time() - worked
        seconds = time.monotonic() - began
        opened = [len(path.read_text().splitlines()) for path in folder.glob("opened-*")]
        left = [path for tmp in folder.glob("tmp-*") for path in tmp.rglob("*") if path.is_file()]
    told = [text for _, text in lines if text.startswith(PREFIX)]
    messages = [read(text) for text in told]
    done = [one for one in messages if isinstance(one, Done)]
    local = [one for one in messages if isinstance(one, Local)]
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(
        ranks,
        nodes,
        f"{len(done)} ranks done, {sum(one.fails for one in verdict.findings)} failures",
        seconds,
        max((one.seconds - one.importing for one in done), default=0.0),
        max((one.attempt for one in local), default=-1) + 1,
        spent / ranks,
        statistics.median([one.cpu for one in local if one.cpu is not None] or [0.0]),
        len(told) / ranks,
        sum(len(text) + 1 for text in told) / ranks / 1024,
        sum(opened) / nodes,
        len(left),
        (after.ru_oublock - before.ru_oublock) / 2 / nodes,
        watch.sockets,
        watch.pss,
        judged,
    )


def _heard(one: start.Start, folder: Path) -> start.Start:
    """The same rank with a folder of its node for temporary files, and what it opens written down."""
    node, rank = one.environment["GROUP_RANK"], one.environment["RANK"]
    temporary = folder / f"tmp-{node}"
    temporary.mkdir(exist_ok=True)
    path = os.pathsep.join(filter(None, (str(folder), one.environment.get("PYTHONPATH"))))
    own = {"TMPDIR": str(temporary), "OPENED": str(folder / f"opened-{rank}"), "PYTHONPATH": path}
    return replace(one, environment={**one.environment, **own})


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ranks", type=int, nargs="*", default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--per-node", type=int, default=4)
    parser.add_argument("--write", type=Path, metavar="FILE", help="append each as a line of JSON")
    told = parser.parse_args(words)
    for ranks in told.ranks:
        cost = {**asdict(measure(ranks, told.per_node)), "load": os.getloadavg()[0], "cores": os.cpu_count()}
        text = json.dumps(
            {name: round(value, 4) if isinstance(value, float) else value for name, value in cost.items()}
        )
        print(text, flush=True)
        if told.write is not None:
            with told.write.open("a") as out:
                out.write(f"{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
