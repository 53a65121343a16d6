"""Which plan ``zerocfg plan`` takes for thirty jobs, by two trees of zerocfg: ``python choices.py BEFORE``.

BEFORE is a folder with an older ``zerocfg`` and ``schemas``; the newer one is this checkout. What the older tree took
is looked up among the newer one's plans, so that both are compared by the newer figures. Writes results/choices.json
and choices.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.memory.cases import MODELS  # noqa: E402

HARDWARE = ("8xL40S", "8xA100-80GB", "8xH100-80GB")
JOBS = [(model, hardware) for model in list(MODELS)[:10] for hardware in HARDWARE]
WORDS = {
    "zero_optimization.stage": "ZeRO-{}",
    "zero_optimization.offload_optimizer.device": "optimizer on {}",
    "zero_optimization.offload_param.device": "parameters on {}",
}
Plan = dict[str, Any]


def plans(tree: Path, model: str, hardware: str) -> list[Plan]:
    """The plans of one job, the chosen one first."""
    with tempfile.TemporaryDirectory() as name:
        config = Path(name, "config.json")
        config.write_text(json.dumps(MODELS[model] | {"dtype": "bfloat16"}))
        words = ["-m", "zerocfg", "plan", str(config), "--hardware", hardware, "--output-format", "json"]
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        done = subprocess.run(
            [sys.executable, *words], cwd=tree, env=environment, capture_output=True, text=True, check=False
        )
    return list(json.loads(done.stdout)["plans"])


def chosen(found: list[Plan]) -> Plan:
    return next(plan for plan in found if plan["own"])


def described(settings: Plan) -> str:
    engine = settings["engine"]
    words = [] if engine == "deepspeed" else [engine.upper().replace("FSDP2", "FSDP 2")]
    for key, text in WORDS.items():
        if engine == "deepspeed" and settings.get(key, "none") != "none":
            words.append(text.format(settings[key]))
    steps = settings["gradient_accumulation_steps"]
    words.append(f"{settings['train_micro_batch_size_per_gpu']} x {steps}")
    return ", ".join(words + ["recomputed"] * bool(settings.get("gradient_checkpointing")))


def result(before: Path) -> list[Plan]:
    rows = []
    for model, hardware in JOBS:
        old, new = chosen(plans(before, model, hardware)), plans(ROOT, model, hardware)
        own = chosen(new)
        same = next((plan for plan in new if plan["settings"] == old["settings"]), None)
        fitting = [plan["step_seconds"] for plan in new if plan["verdict"] == "fits" and not plan["excluded"]]
        rows.append(
            {
                "model": model,
                "hardware": hardware,
                "before": described(old["settings"]),
                "after": described(own["settings"]),
                "seconds before": same and same["step_seconds"],
                "seconds after": own["step_seconds"],
                "fastest that fits": min(fitting, default=None),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    return rows


def as_markdown(rows: list[Plan]) -> str:
    lines = [
        "# The plans of thirty jobs",
        "",
        "Written by `choices.py`. Seconds of a step are those of today's figures, for both plans; the last column is",
        "the fastest plan that fits by them. Plans within 3% of each other count as equally fast: of these the one",
        "with less machinery, or with a smaller micro batch, is taken.",
        "",
        "| model | hardware | before | s | after | s | fastest that fits, s |",
        "|---|---|---|---:|---|---:|---:|",
    ]
    for row in rows:
        seconds = [row[name] for name in ("seconds before", "seconds after", "fastest that fits")]
        first, second, least = ("-" if value is None else f"{value:.3f}" for value in seconds)
        names = f"{row['model']} | {row['hardware']} | {row['before']}"
        lines.append(f"| {names} | {first} | {row['after']} | {second} | {least} |")
    return "\n".join([*lines, ""])


def main() -> None:
    rows = result(Path(sys.argv[1]).resolve())
    (HERE / "results" / "choices.json").write_text(json.dumps(rows, indent=1) + "\n")
    (HERE / "results" / "choices.md").write_text(as_markdown(rows))


if __name__ == "__main__":
    main()
