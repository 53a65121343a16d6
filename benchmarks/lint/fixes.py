"""CPU time of `zerocfg lint --fix --unsafe-fixes --diff` as a multiple of that of the lint, in one run.

    python -m benchmarks.lint.fixes [FOLDER...] [--print]

The two are run in turn, so that what else the machine does meets both; the median counts. Made folders: configs that
the lines of one script name, and scripts that share a few configs, as repositories of recipes have them. FOLDER:
further ones, as they are. Writes `fixes.md` beside this file; ``--print``: no file is written.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REPETITIONS = 3
LINT = ("lint", "--no-cache", "--exit-zero", "--quiet", ".")
FIX = ("lint", "--no-cache", "--fix", "--unsafe-fixes", "--diff", ".")
TRAIN = """from transformers import HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(model=model, args=args).train()
"""


def on_lines(folder: Path, size: int) -> Path:
    """A script with a launch line for each of many configs, which have two faults each and one in the line."""
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    line = "deepspeed --num_gpus 2 train.py --output_dir out --deepspeed ds{}.json --evaluation_strategie no\n"
    (folder / "run.sh").write_text("".join(line.format(at) for at in range(size)))
    zero = {"stage": 2, "overlap_com": True}
    config = {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": zero, "gradient_cliping": 1.0}
    for at in range(size):
        (folder / f"ds{at}.json").write_text(json.dumps(config, indent=2) + "\n")
    return folder


def shared(folder: Path, size: int) -> Path:
    """Many scripts that start a training with one of two configs, each with a finding that the config is to be changed
    for and another of its own."""
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    for stage in (2, 3):
        zero = {"stage": stage}
        config = {"train_micro_batch_size_per_gpu": "auto", "gradient_clipping": 1.0, "zero_optimization": zero}
        (folder / f"zero{stage}.json").write_text(json.dumps(config, indent=2) + "\n")
    for at in range(size):
        stage = 2 + at % 2
        (folder / f"run{at}.sh").write_text(
            f"accelerate launch --num_proceses 2 train.py --output_dir out{at} --max_grad_norm 0.5 "
            f"--deepspeed zero{stage}.json\n"
        )
    return folder


def ratio(folder: Path) -> tuple[str, float]:
    """What the fixes are, and the time of the fixes as a multiple of that of the lint."""
    took: dict[tuple[str, ...], list[float]] = {LINT: [], FIX: []}
    said = ""
    for _ in range(REPETITIONS):
        for words in took:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(
                [sys.executable, "-m", "zerocfg", *words],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            took[words].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            if done.returncode not in (0, 1):
                raise SystemExit(f"{folder}: {done.stderr}")
            said = done.stderr if words == FIX else said
    found = re.search(r"Would apply (.*)\.", said)
    return found[1] if found else "no fix", statistics.median(took[FIX]) / statistics.median(took[LINT])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--print", action="store_true", dest="prints")
    given = parser.parse_args()
    with TemporaryDirectory() as below:
        made = {
            "50 configs on the lines of one script": on_lines(Path(below) / "50", 50),
            "200 configs on the lines of one script": on_lines(Path(below) / "200", 200),
            "200 scripts with two configs": shared(Path(below) / "shared", 200),
        }
        rows = []
        for title, folder in {**made, **{folder.name: folder for folder in given.folders}}.items():
            fixes, times = ratio(folder.resolve())
            rows.append(f"| {title} | {fixes} | {times:.1f} |")
            print(rows[-1], flush=True)
    page = (
        "# What fixes cost\n\n"
        "CPU time of `zerocfg lint --fix --unsafe-fixes --diff` as a multiple of that of `zerocfg lint`, both in one\n"
        "run (median of three, `python -m benchmarks.lint.fixes`).\n\n"
        "| folder | fixes | times a lint |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    )
    if not given.prints:
        (HERE / "fixes.md").write_text(page)


if __name__ == "__main__":
    main()
