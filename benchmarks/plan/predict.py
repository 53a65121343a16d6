"""Chooses a plan for each model with zerocfg, and writes down what was predicted before anything is measured.

    python benchmarks/plan/predict.py           # -> predictions.json (no card needed)
    python benchmarks/plan/predict.py --hardware 1xH100 --out predictions-h100.json
    python benchmarks/plan/predict.py --check   # were the committed predictions made with today's formulas?

Each model is a job of the Trainer whose sources leave stage, offload, micro batch and recomputation open. ``zerocfg
build`` chooses; every plan that it compared is kept with its prediction, and the ones to measure with the DeepSpeed
config that a build emits when the sources name just that plan.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.memory.cases import MODELS  # noqa: E402
from benchmarks.memory.freeze import FORMULAS, formula_hash  # noqa: E402
from zerocfg.emit.deepspeed_json import ds_config  # noqa: E402
from zerocfg.resolve.build import BuildResult, build_plans  # noqa: E402
from zerocfg.resolve.explain.alternatives import Alternative, alternatives  # noqa: E402
from zerocfg.resolve.search.choice import MICRO, OPTIMIZER_DEVICE, PARAM_DEVICE, STAGE, STEPS  # noqa: E402
from zerocfg.resolve.spec.spec_file import read_spec  # noqa: E402

FILE = Path(__file__).resolve().parent / "predictions.json"
DECIDING = ("zerocfg/resolve/explain/alternatives.py", "zerocfg/resolve/model", "zerocfg/resolve/search")
HASHED = (*FORMULAS, "zerocfg/hardware/catalogue.py", *DECIDING)
HARDWARE = "1xH200"
SEQUENCE, GLOBAL_BATCH = 2048, 8  # tokens of a sample, samples of a step
BUILDS = 3  # timed; the median counts
RECOMPUTE = "gradient_checkpointing"
AUTO: dict[str, Any] = dict.fromkeys((MICRO, STEPS, "gradient_clipping"), "auto") | {"bf16": {"enabled": "auto"}}
RECIPE = {
    "output_dir": "out",
    "bf16": True,
    "max_steps": 1000,
    "learning_rate": 0.0001,
    "gradient_checkpointing_kwargs": {"use_reentrant": False},
}


@dataclass(frozen=True)
class Job:
    """A model and how many of its plans are measured, the chosen one counted in."""

    model: str
    plans: int


JOBS = (Job("qwen2.5-0.5b", 20), Job("tinyllama-1.1b", 16), Job("llama-3.2-3b", 15))
Settings = dict[str, Any]


def write_sources(folder: Path, model: str, named: Settings | None = None, hardware: str = HARDWARE) -> Path:
    """A job's files in ``folder``; the path of its spec. ``named``: the plan that the sources ask for; else open."""
    zero: dict[str, Any] = {}
    recipe: dict[str, Any] = dict(RECIPE)
    if named:
        zero["stage"] = named[STAGE]
        for part, name in (("offload_optimizer", OPTIMIZER_DEVICE), ("offload_param", PARAM_DEVICE)):
            if named[name] != "none":
                zero[part] = {"device": named[name]}
        recipe["per_device_train_batch_size"] = named[MICRO]
        recipe["gradient_accumulation_steps"] = named[STEPS]
        recipe[RECOMPUTE] = named[RECOMPUTE]
    run = {
        "consumer": "transformers",
        "script": "train.py",
        "model": "config.json",
        "recipe": "recipe.yaml",
        "deepspeed": "ds_config.json",
        "sequence_length": SEQUENCE,
        "hardware": hardware,
        "goals": {"prefer": "throughput", "global_batch_size": GLOBAL_BATCH},
    }
    # JSON is YAML too.
    contents = {
        "config.json": MODELS[model] | {"dtype": "bfloat16"},
        "ds_config.json": AUTO | {"zero_optimization": zero},
        "recipe.yaml": recipe,
        "zerocfg.yaml": {"version": 1, "runs": {"plan": run}},
    }
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "train.py").write_text("")
    return folder / "zerocfg.yaml"


def built(spec: Path) -> BuildResult:
    """The only run of ``spec``. Raises ValueError with its problems when it cannot be built."""
    read = read_spec(spec)
    if read.problems:
        raise ValueError("; ".join(one.message for one in read.problems))
    found = build_plans(read)[0]
    if found.plan is None:
        raise ValueError("; ".join(one.message for one in found.problems))
    return found


def seconds_to_choose(spec: Path, out: Path) -> float:
    """Wall seconds of ``zerocfg build``, start of Python and writing included; the median of a few."""
    taken = []
    for _ in range(BUILDS):
        start = time.monotonic()
        command = [sys.executable, "-m", "zerocfg", "build", str(spec), "-o", str(out)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        taken.append(time.monotonic() - start)
        if done.returncode != 0:
            raise ValueError((done.stderr or done.stdout).strip())
    return median(taken)


def name_of(model: str, settings: Settings) -> str:
    """``llama-3.2-3b-z3-cpu-m4-ckpt``; ``cpu2``: the parameters are on the host too."""
    places = [settings[name] for name in (OPTIMIZER_DEVICE, PARAM_DEVICE)]
    parts = [model, f"z{settings[STAGE]}"]
    if places != ["none", "none"]:
        parts.append("cpu" if places[1] == "none" else "cpu2")
    parts.append(f"m{settings[MICRO]}")
    if settings[RECOMPUTE]:
        parts.append("ckpt")
    return "-".join(parts)


def offloads(settings: Settings) -> bool:
    return any(settings[name] != "none" for name in (OPTIMIZER_DEVICE, PARAM_DEVICE))


def to_measure(rows: list[Settings], limit: int) -> list[int]:
    """Indices of the plans to measure, by the rule of README.md. ``rows``: plans with ``name``, the best first."""
    order = [index for index, row in enumerate(rows) if row["verdict"] in ("fits", "likely")]

    def first_of_each(what: Iterable[tuple[Any, int]]) -> list[int]:
        found: dict[Any, int] = {}
        for key, index in what:
            found.setdefault(key, index)
        return list(found.values())

    def way(settings: Settings) -> tuple[Any, ...]:
        places = (settings[OPTIMIZER_DEVICE], settings[PARAM_DEVICE])
        return (settings[STAGE], *places, None if offloads(settings) else settings[RECOMPUTE])

    # In the order of preference of zerocfg: its own figure for the time, the feasible before the doubtful.
    order.sort(key=lambda index: (rows[index]["verdict"] != "fits", rows[index]["compared_seconds"], index))
    device = [index for index in order if not offloads(rows[index]["settings"])]
    wanted = [index for index in order if rows[index]["own"]]
    wanted += first_of_each((way(rows[index]["settings"]), index) for index in order)
    wanted += first_of_each((rows[index]["settings"][MICRO], index) for index in order)
    wanted += [index for index in order if rows[index]["verdict"] == "likely"][:1]
    wanted += device
    chosen = set(list(dict.fromkeys(wanted))[:limit])
    own = [index for index in chosen if rows[index]["own"]]
    return [*own, *(index for index in order if index in chosen and index not in own)]


def row_of(model: str, one: Alternative) -> dict[str, Any]:
    """A plan with its prediction: seconds of a step as ``zerocfg plan`` shows them, and as plans are compared by."""
    candidate = one.candidate
    settings = candidate.choice.settings() | {RECOMPUTE: bool(candidate.choice.checkpointing)}
    time_, spent, device = candidate.time, candidate.seconds_per_token, candidate.prediction.device
    assert time_ is not None and spent is not None, "the rates of the hardware are in the catalogue"
    return {
        "name": name_of(model, settings),
        "settings": settings,
        "own": one.own,
        "verdict": candidate.word,
        "excluded": one.excluded,
        "step_seconds": time_.seconds.expected,
        "step_seconds_band": [time_.seconds.low, time_.seconds.high],
        "compared_seconds": spent * time_.tokens,
        "tokens": time_.tokens,
        "device_bytes": [device.low, device.expected, device.high],
        "host_bytes": candidate.host,
    }


def emitted(folder: Path, model: str, settings: Settings, hardware: str = HARDWARE) -> dict[str, Any]:
    """The DeepSpeed config of a build whose sources ask for this plan."""
    found = built(write_sources(folder, model, settings, hardware))
    assert found.plan is not None
    config = ds_config(found.plan)
    assert (config[MICRO], config[STEPS]) == (settings[MICRO], settings[STEPS])
    return config


def predicted(job: Job, hardware: str) -> dict[str, Any]:
    """What one model's plans are predicted to take, and which one zerocfg chose."""
    with tempfile.TemporaryDirectory(prefix="zerocfg-plan-") as scratch:
        folder = Path(scratch)
        spec = write_sources(folder, job.model, hardware=hardware)
        start = time.monotonic()
        chosen = built(spec)
        searched = time.monotonic() - start
        rows = [row_of(job.model, one) for one in alternatives(chosen)]
        own = [row["name"] for row in rows if row["own"]]
        assert len(own) == 1, f"{job.model}: {len(own)} of the plans are the one that was built"
        seconds = seconds_to_choose(spec, folder / "out")
        for index in to_measure(rows, job.plans):
            rows[index]["deepspeed"] = emitted(folder, job.model, rows[index]["settings"], hardware)
        measured = [rows[index]["name"] for index in to_measure(rows, job.plans)]
    return {
        "config": MODELS[job.model],
        "chosen": own[0],
        "seconds_to_choose": round(seconds, 3),
        "seconds_of_the_search": round(searched, 3),
        "parameters": chosen.inputs.facts.parameters,
        "measured": measured,
        "plans": rows,
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Choose a plan for each model, and predict it and its rivals.")
    parser.add_argument("--hardware", default=HARDWARE)
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--check", action="store_true", help="were the committed predictions made with these formulas?")
    asked = parser.parse_args(arguments)
    formulas = formula_hash(folders=HASHED)  # now: they may be edited while this runs
    if asked.check:
        if not asked.out.is_file():
            print("no predictions yet", file=sys.stderr)
            return 1
        same = json.loads(asked.out.read_text())["formulas"] == formulas
        print("present formulas" if same else "formulas changed since: predict again before a run")
        return 0 if same else 1
    models = {}
    for job in JOBS:
        found = models[job.model] = predicted(job, asked.hardware)
        words = f"{found['chosen']} chosen in {found['seconds_to_choose']:.1f} s among {len(found['plans'])} plans"
        print(f"{words}; {len(found['measured'])} to measure", flush=True)
    content = {
        "formulas": formulas,
        "hardware": asked.hardware,
        "sequence": SEQUENCE,
        "global_batch": GLOBAL_BATCH,
        "cores": os.cpu_count(),
        "models": models,
    }
    asked.out.write_text(json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
