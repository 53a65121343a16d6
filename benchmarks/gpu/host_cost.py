"""The time of the host: single launches, ZeRO-2 at growing accumulation, and ZeRO-3 at growing micro batches."""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.budget import Clock
from benchmarks.gpu.place import ROOT, Place
from benchmarks.gpu.processes import run_within
from benchmarks.gpu.record import Record, Result, shorten, write_json
from benchmarks.gpu.sweeps import Sweep

PLAN = ROOT / "benchmarks" / "plan"
MODEL = "qwen2.5-0.5b"
"""Small, so that the host and not the card bounds the step."""
TIMES = (1, 4, 8)
LOOP = 15.0
"""Seconds for the loop of launches."""


@dataclass(frozen=True)
class HostCost:
    """The loop of launches first, then the steps."""

    sweep: Sweep

    def play(self, place: Place, record: Record, clock: Clock) -> bool:
        loop = [sys.executable, str(Path(__file__).with_name("launch_cost.py")), "--device", place.device]
        done = run_within(loop, min(LOOP, clock.left) if not place.tiny else clock.left)
        if done.returncode != 0:
            record.update(error=shorten(done.stderr))
            return False
        record.update(launches=json.loads(done.stdout))
        return self.sweep.play(place, record, clock)


def write_cases(path: Path) -> None:
    """The cases in the form of the predictions of `benchmarks/plan`, with the model and the configs of its plans."""
    predictions = json.loads((PLAN / "predictions.json").read_text())
    model = predictions["models"][MODEL]
    plans = {plan["name"]: plan for plan in model["plans"]}
    cases = [make_case(plans[f"{MODEL}-z2-m2"], f"z2-accumulation-{times}", 1, times) for times in TIMES]
    cases += [make_case(plans[f"{MODEL}-z3-m2"], f"z3-micro-{times}", times, 1) for times in TIMES]
    content = {
        "formulas": predictions["formulas"],
        "sequence": predictions["sequence"],
        "models": {MODEL: {"config": model["config"], "measured": [case["name"] for case in cases], "plans": cases}},
    }
    write_json(path, content)


def make_case(plan: Result, name: str, micro_batch: int, accumulation: int) -> Result:
    """``plan`` with another micro batch and accumulation."""
    config = copy.deepcopy(plan["deepspeed"])
    config |= {"train_micro_batch_size_per_gpu": micro_batch, "gradient_accumulation_steps": accumulation}
    return {"name": name, "verdict": plan["verdict"], "settings": plan["settings"], "deepspeed": config}
