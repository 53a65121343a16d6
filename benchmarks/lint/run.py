"""How long `zerocfg lint` takes, as CPU time of the whole process and as a multiple of `python -c pass`.

    python benchmarks/lint/run.py [FOLDER]

FOLDER is a tree of real configs, or a whole repository, for the second table; without one only the built-in cases run.
What it takes only to read, and to parse, every Python file below FOLDER is there to compare with. The least of several
runs counts: everything that comes on top of it was somebody else's.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

YAML = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
DS = """{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"},
 "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}
"""
LINT = (sys.executable, "-m", "zerocfg", "lint", "--exit-zero")
READ = """
import pathlib, sys
for path in pathlib.Path(sys.argv[1]).rglob("*.py"):
    path.read_bytes()
"""
PARSE = """
import ast, gc, pathlib, sys, warnings
gc.disable()
warnings.simplefilter("ignore")
for path in pathlib.Path(sys.argv[1]).rglob("*.py"):
    try:
        ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        pass
"""


def seconds(command: tuple[str, ...], folder: Path, runs: int) -> float:
    """CPU seconds, user and system, of the fastest run."""
    best = float("inf")
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    for number in range(runs + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if number:  # the first one writes the bytecode
            best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def main() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "one").mkdir()
        (folder / "one" / "accelerate.yaml").write_text(YAML)
        (folder / "one" / "ds.json").write_text(DS)
        (folder / "many").mkdir()
        for number in range(100):
            (folder / "many" / f"{number}.json").write_text(DS)
        cases = {
            "python -c pass": (sys.executable, "-c", "pass"),
            "zerocfg --version": (sys.executable, "-m", "zerocfg", "--version"),
            "import click, yaml, dataclasses": (sys.executable, "-c", "import click, yaml, dataclasses"),
            "lint: one YAML and its JSON": (*LINT, "one"),
            "lint: 100 JSON files": (*LINT, "many"),
        }
        if len(sys.argv) > 1:
            corpus = str(Path(sys.argv[1]).resolve())
            scripts = sum(1 for _ in Path(corpus).rglob("*.py"))
            cases[f"reading: {scripts} Python files of a folder"] = (sys.executable, "-c", READ, corpus)
            cases["ast.parse: the same folder"] = (sys.executable, "-c", PARSE, corpus)
            cases["lint: the given folder"] = (*LINT, corpus)
            cases["lint --diff --unsafe-fixes: the same"] = (*LINT, "--diff", "--unsafe-fixes", corpus)
        bare = 0.0
        for title, command in cases.items():
            took = seconds(command, folder, 3 if "folder" in title or "same" in title else 11)
            bare = bare or took
            print(f"{title:<40} {took * 1000:7.0f} ms {took / bare:7.1f} x")


if __name__ == "__main__":
    main()
