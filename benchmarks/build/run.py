"""How long `zerocfg build` takes when it chooses (`goals:`), in a fresh process, beside `zerocfg lint` of the spec.

    python benchmarks/build/run.py [REPETITIONS]

Writes results.md beside itself. Wall time is what a user waits for; CPU time of the process and its children depends
much less on what else the machine does, so both are stated, with the load at the beginning and the end. The first run
of each case writes bytecode and is not counted. With `trace: true` the cache of traces is empty each time.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

RESULTS = Path(__file__).with_name("results.md")
SEVEN: dict[str, Any] = {"model_type": "llama", "vocab_size": 32000}  # LlamaConfig's defaults are LLaMA-7B's
SEVENTY = SEVEN | {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
}
CASES: dict[str, tuple[dict[str, Any], str, dict[str, Any], float | None]] = {
    "7B on 8 A100, throughput": (SEVEN, "8xA100-80GB", {"prefer": "throughput"}, 5),
    "7B on 8 A100, cost": (SEVEN, "8xA100-80GB", {"prefer": "cost"}, 5),
    "7B on 8 A100, throughput, trace": (SEVEN, "8xA100-80GB", {"prefer": "throughput", "trace": True}, 20),
    "70B on 64 H100, throughput": (SEVENTY, "8x8xH100-80GB", {"prefer": "throughput"}, None),
    "70B on 64 H100, cost": (SEVENTY, "8x8xH100-80GB", {"prefer": "cost"}, 20),
    "70B on 64 H100, throughput, trace": (SEVENTY, "8x8xH100-80GB", {"prefer": "throughput", "trace": True}, None),
}
"""Model, hardware, goals, and the limit in seconds that the project sets itself."""

HEAD = """# Time of `zerocfg build` with `goals:`

{command}. Load of 1, 5 and 15 minutes at the beginning {first}, at the end {last}: what exceeds the number of CPUs was
somebody else's work, and wall times suffer from it. Each case is a fresh process; with `trace` the cache of traces is
empty. `x lint`: wall time as a multiple of that of `zerocfg lint` of the same spec.

| case | median s | least s | most s | CPU s, median | x lint | limit |
|---|---:|---:|---:|---:|---:|---|
"""


def write_job(folder: Path, model: dict[str, Any], hardware: str, goals: dict[str, Any]) -> None:
    folder.mkdir()
    run = {
        "consumer": "transformers",
        "script": "train.py",
        "model": "config.json",
        "recipe": "recipe.yaml",
        "engine": "deepspeed",
        "hardware": hardware,
        "sequence_length": 2048,
        "goals": {"global_batch_size": 512, **goals},
    }
    (folder / "train.py").write_text("")
    (folder / "config.json").write_text(json.dumps(model))
    (folder / "recipe.yaml").write_text("output_dir: out\nmax_steps: 100\n")
    (folder / "zerocfg.yaml").write_text(json.dumps({"version": 1, "runs": {"sft": run}}))


def measured(words: tuple[str, ...], folder: Path, cache: Path) -> tuple[float, float]:
    """Wall and CPU seconds of one process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    command = (sys.executable, "-m", "zerocfg", *words)
    subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def repeated(words: tuple[str, ...], folder: Path, repetitions: int) -> list[tuple[float, float]]:
    """The first run does not count; every run has an empty cache of traces of its own."""
    found = []
    for number in range(repetitions + 1):
        with TemporaryDirectory() as cache:
            one = measured(words, folder, Path(cache))
        if number:
            found.append(one)
    return found


def line(title: str, runs: list[tuple[float, float]], lint: float, limit: float | None) -> str:
    walls, processor = sorted(wall for wall, _ in runs), statistics.median(cpu for _, cpu in runs)
    middle = statistics.median(walls)
    verdict = ""
    if limit is not None:
        slow = "MISSED" if processor > limit else "kept in CPU time, missed in wall time"
        verdict = f"{limit:g} s: {'kept' if walls[-1] <= limit else slow}"
    return (
        f"| {title} | {middle:.2f} | {walls[0]:.2f} | {walls[-1]:.2f} | {processor:.2f} | {middle / lint:.1f} | "
        f"{verdict} |\n"
    )


def load() -> str:
    return " ".join(f"{one:.1f}" for one in os.getloadavg())


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    began = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC"
    machine = f"{os.cpu_count()} CPUs ({platform.machine()}), Python {platform.python_version()}"
    first, rows = load(), ""
    beside: dict[str, float] = {}
    with TemporaryDirectory() as name:
        for number, (title, (model, hardware, goals, limit)) in enumerate(CASES.items()):
            folder = Path(name) / str(number)
            write_job(folder, model, hardware, goals)
            if hardware not in beside:
                lint = repeated(("lint", "--exit-zero", "zerocfg.yaml"), folder, repetitions)
                beside[hardware] = statistics.median(wall for wall, _ in lint)
            build = ("build", "zerocfg.yaml", "-o", "out", "--force")
            rows += line(title, repeated(build, folder, repetitions), beside[hardware], limit)
            print(rows.splitlines()[-1], flush=True)
            command = f"`python benchmarks/build/run.py {repetitions}`, {began}, {machine}"
            RESULTS.write_text(HEAD.format(command=command, first=first, last=load()) + rows, encoding="utf-8")


if __name__ == "__main__":
    main()
