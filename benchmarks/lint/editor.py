"""An edit with a hover in a warm language server, at 1 to 500 open documents: is it in proportion to them?

    python -m benchmarks.lint.editor > benchmarks/lint/editor.md

The session is the server's own, without the pipe: an edit arrives, a hover asks, and is answered after a look at every
change so far. Half of the documents are DeepSpeed JSONs, half the accelerate configs that name them, each pair in a
folder with its launch line and its script; every DeepSpeed JSON has a finding with a fix.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

from lsprotocol.types import Position

from zerocfg.lsp.answers import hover_text
from zerocfg.lsp.session import Session

OPEN = (1, 50, 200, 500)
EDITS = 30
WARM = 3
FILES = {
    "ds.json": '{"train_micro_batch_size_per_gpu": %d, "zero_optimization": {"stage": 2}, "bf16": {"enabeld": true}}\n',
    "accelerate.yaml": "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n"
    "  deepspeed_config_file: ds.json\n",
    "run.sh": "accelerate launch --config_file accelerate.yaml train.py\n",
    "train.py": "from accelerate import Accelerator\nAccelerator().prepare(None)\n",
}


def workspace(folder: Path, documents: int) -> list[Path]:
    """Write a repository; the files that are open."""
    (folder / ".git").mkdir(parents=True)
    opened = []
    for number in range(-(-documents // 2)):
        at = folder / f"job{number}"
        at.mkdir()
        for name, text in FILES.items():
            (at / name).write_text(text % (number + 1) if "%d" in text else text)
        opened += [at / "ds.json", at / "accelerate.yaml"]
    return opened[:documents]


async def edits(paths: list[Path]) -> tuple[float, float]:
    """Median ms of an edit with a hover: CPU of the process, and on the clock."""
    session = Session(lambda *_: None, lambda _: None)
    for path in paths:
        session.put(path.as_uri(), path.read_text(), 1)
    await session.schedule.settled()
    path = paths[len(paths) // 2 // 2 * 2]
    text, took = path.read_text(), []
    for version in range(2, EDITS + WARM + 2):
        began = time.process_time(), time.perf_counter()
        session.change(path.as_uri(), text + " " * version, version)
        assert await hover_text(session, path.as_uri(), Position(0, 5)) is not None
        took.append((time.process_time() - began[0], time.perf_counter() - began[1]))
    session.stop()
    cpu, clock = zip(*took[WARM:], strict=True)
    return statistics.median(cpu) * 1000, statistics.median(clock) * 1000


def main() -> None:
    print("# An edit in the language server\n")
    print(f"One edit with a hover that waits for its result, median of {EDITS}, by the number of open documents")
    print("(`python -m benchmarks.lint.editor`).\n")
    print("| open documents | CPU, ms | on the clock, ms |\n|---:|---:|---:|")
    for count in OPEN:
        with tempfile.TemporaryDirectory() as below:
            folder = Path(below) / "repository"
            paths = workspace(folder, count)
            os.chdir(folder)
            cpu, clock = asyncio.run(edits(paths))
            print(f"| {count} | {cpu:.1f} | {clock:.1f} |", flush=True)
            os.chdir("/")


if __name__ == "__main__":
    main()
