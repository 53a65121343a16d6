"""From every config that a folder of tutorials shows to a certified run, by zerocfg's own commands:

    python -m benchmarks.tutorials.run FOLDER -o OUT [--only WORD] [--no-smoke]

FOLDER holds Markdown (or plain text). Of each config (``snippets.py``) a small job is made, with the training script,
model and recipe of ``examples``; then lint, ``convert --to deepspeed-json`` where accelerate ignores keys, the fixes,
``build``, ``smoke`` on two ranks of a processor, and ``gate``. OUT/results.md has a row for each, OUT/NAME what was
made. Exit code 1 where a config does not get to its end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.tutorials.snippets import Snippet, snippets

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RECIPE = {
    "output_dir": "runs/tutorial",
    "max_steps": 20,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "learning_rate": 1.0e-3,
    "bf16": True,
    "report_to": "none",
}
GATE = '[tool.zerocfg.gate]\nhardware = "any"\n'
"""A processor's certificate counts for a job that is planned for cards."""


HEAD = "| config | completed by | found | converted | left | build | smoke | gate |\n|---|---|---|---|---|---|---|---|"


@dataclass
class Row:
    """What became of a config. ``found``: codes of rules and how often, before anything was changed."""

    name: str
    place: str
    completed: str
    found: str = ""
    converted: str = "-"
    left: str = ""
    build: str = ""
    smoke: str = "-"
    gate: str = "-"

    @property
    def line(self) -> str:
        """Of the table."""
        cells = (self.place, self.completed, self.found, self.converted, self.left, self.build, self.smoke, self.gate)
        return f"| {' | '.join(cells)} |"

    @property
    def ended(self) -> bool:
        return self.build == "ok" and self.smoke.startswith(("-", "passed")) and self.gate in ("-", "passed")


def zerocfg(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "zerocfg", *words], cwd=folder, capture_output=True, text=True)


def findings(folder: Path) -> str:
    """Errors and warnings, as ``ZC103 x4, ZC201``."""
    data = json.loads(zerocfg(folder, "lint", "--output-format", "json").stdout)
    codes = Counter(one["code"] for one in data["diagnostics"] if one["severity"] != "note")
    return ", ".join(code if many == 1 else f"{code} x{many}" for code, many in sorted(codes.items()))


def prepare(folder: Path, snippet: Snippet) -> None:
    """The job around a config."""
    folder.mkdir(parents=True)
    example = EXAMPLES / ("deepspeed-loop" if snippet.consumer == "deepspeed" else "quickstart")
    (folder / "train.py").write_text(
        (example / "train.py").read_text().replace('parent.parent / "quickstart"', "parent")
    )
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text((EXAMPLES / "quickstart" / "model" / "config.json").read_text())
    (folder / "pyproject.toml").write_text(GATE)
    # zerocfg builds FSDP for cards only.
    cards = any("distributed_type: FSDP" in text for text in snippet.files.values())
    run = {"consumer": snippet.consumer, "script": "train.py", "model": "model/config.json"}
    run["hardware"] = "2xA100-80GB" if cards else "2xCPU"
    if snippet.consumer != "deepspeed":
        (folder / "recipe.yaml").write_text(yaml.safe_dump({**RECIPE, **snippet.arguments}, sort_keys=False))
        run["recipe"] = "recipe.yaml"
    for name, text in snippet.files.items():
        (folder / name).write_text(text)
        run["accelerate" if name.endswith(".yaml") else "deepspeed"] = name
    spec = {"version": 1, "runs": {"job": {**run, "sequence_length": 32}}}
    (folder / "zerocfg.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))


def walk(folder: Path, row: Row, smoke: bool) -> None:
    """Every step, until one fails."""
    row.found = findings(folder)
    if "ZC103" in row.found:
        done = zerocfg(
            folder, "convert", "accelerate.yaml", "--to", "deepspeed-json", "--consumer", "transformers", "--write"
        )
        row.converted = done.stdout.strip().rpartition("\n")[2] if done.returncode == 0 else "failed"
    zerocfg(folder, "lint", "--fix", "--unsafe-fixes")
    row.left = findings(folder)
    built = zerocfg(folder, "build", ".", "-o", "built")
    row.build = "ok" if built.returncode == 0 else built.stderr.strip().partition("\n")[0]
    if not smoke or built.returncode != 0:
        return
    done = zerocfg(folder, "smoke", "built", "--ranks", "2", "--device", "cpu")
    (folder / "smoke.txt").write_text(done.stdout + done.stderr)
    last = [one for one in done.stdout.splitlines() if one.startswith(("passed", "FAILED"))]
    row.smoke = last[-1] if last else done.stderr.strip().partition("\n")[0]
    gate = zerocfg(folder, "gate", "--require", "all")
    row.gate = "passed" if gate.returncode == 0 else gate.stdout.strip().partition("\n")[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--no-smoke", action="store_true")
    options = parser.parse_args()
    rows: list[Row] = []
    for number, path in enumerate(sorted(one for one in options.folder.iterdir() if one.suffix in (".md", ".txt"))):
        for snippet in snippets(path.read_text(encoding="utf-8", errors="replace")):
            name = f"{number}-{snippet.line}"
            if options.only not in name:
                continue
            row = Row(name, f"{path.name}:{snippet.line}", "; ".join(snippet.completed))
            rows.append(row)
            began = time.monotonic()
            prepare(options.out / name, snippet)
            walk(options.out / name, row, not options.no_smoke)
            print(f"{row.line} {time.monotonic() - began:.0f} s", flush=True)
            (options.out / "results.md").write_text("\n".join([HEAD, *(one.line for one in rows)]) + "\n")
    print(f"{sum(row.ended for row in rows)} of {len(rows)} got to their end")
    return int(not all(row.ended for row in rows))


if __name__ == "__main__":
    sys.exit(main())
