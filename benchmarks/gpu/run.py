"""Run the checks that need an NVIDIA card and keep their results; without a card say so and succeed.

    python benchmarks/gpu/run.py [NAME...]

Exit codes: 0 every check passed or there is no card, 1 a check failed, 2 an unknown name.
"""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results"
ONE = ("--ranks", "1")
# name -> (spec, run in it, options of `zerocfg smoke`)
SMOKE: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "quickstart": ("examples/quickstart/zerocfg.yaml", "quickstart", ONE),
    "sft-zero2": ("examples/sft-zero2/zerocfg.yaml", "sft", ONE),
    "fsdp": ("examples/fsdp/zerocfg.yaml", "fsdp", ONE),
    "zero2-cpu-offload": ("examples/zero2-cpu-offload/zerocfg.yaml", "offload", ONE),
    "zero3-nvme": ("examples/zero3-nvme/zerocfg.yaml", "nvme", ONE),
    "compare": (
        "examples/pretrain-zero1/zerocfg.yaml",
        "pretrain",
        (*ONE, "--compare", "0,2,3", "--picture", "PICTURE"),
    ),
    "max-batch": ("examples/ddp/zerocfg.yaml", "ddp", (*ONE, "--find-max-batch")),
    "share-gpu": ("examples/stages/zerocfg.yaml", "stage-zero3", ("--ranks", "2", "--share-gpu")),
}
LIMIT = 900
# Seconds of one launch. By it a smoke-run also decides how many layers it can make, train and save: 1.8e9 parameters.
LAUNCH = 300
# name -> (folder, program that compares, seconds); with the start of the libraries less than ten minutes
SWEEPS = {
    "memory": (ROOT / "benchmarks" / "memory", "compare_gpu.py", 540),
    "plan": (ROOT / "benchmarks" / "plan", "compare.py", 460),
}


def cards() -> list[dict[str, str]]:
    """Name, memory and driver of each card, by nvidia-smi; empty when there is none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    fields = ("name", "memory.total", "driver_version")
    query = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = (line.rsplit(",", 2) for line in done.stdout.splitlines() if line.count(",") >= 2)
    return [dict(zip(fields, (cell.strip() for cell in row), strict=True)) for row in rows]


def smoke_run(spec: str, run: str, options: tuple[str, ...]) -> dict[str, Any]:
    """Build ``spec`` and smoke-run ``run`` of it on one card; "PICTURE" among the options becomes a file of results."""
    with tempfile.TemporaryDirectory(prefix="zerocfg-gpu-") as out:
        zerocfg = [sys.executable, "-m", "zerocfg"]
        RESULTS.mkdir(exist_ok=True)
        if "--picture" in options and importlib.util.find_spec("matplotlib") is None:
            at = options.index("--picture")
            options = (*options[:at], *options[at + 2 :])
        given = [str(RESULTS / "compare.svg") if word == "PICTURE" else word for word in options]
        build = [*zerocfg, "build", str(ROOT / spec), "-o", out]
        smoke = [*zerocfg, "smoke", f"{out}/{run}", *given, "--device", "cuda"]
        smoke += ["--time-limit", str(LAUNCH), "--output-format", "json"]
        commands = [f"zerocfg build {spec} -o OUT", f"zerocfg smoke OUT/{run} {' '.join(options)} --device cuda"]
        for command in (build, smoke):
            try:
                done = subprocess.run(
                    command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=LIMIT + 60
                )
            except subprocess.TimeoutExpired:
                return {"passed": False, "commands": commands, "error": f"no end within {LIMIT + 60} s"}
            if done.returncode != 0 and not done.stdout.lstrip().startswith(("{", "[")):
                error = (done.stderr or done.stdout).strip()[-4000:]
                return {"passed": False, "commands": commands, "error": error}
        try:
            told = json.loads(done.stdout)
        except ValueError:
            return {"passed": False, "commands": commands, "error": f"no JSON: {done.stdout[-2000:]}"}
        result: dict[str, Any] = {"passed": done.returncode == 0, "commands": commands}
        certificate = Path(out) / run / "smoke.json"
        if certificate.is_file():
            content = json.loads(certificate.read_text())
            result |= {"passed": content["passed"] and done.returncode == 0, "certificate": content}
            result["against_prediction"] = against_prediction(content["measured"])
        else:  # a comparison or a search certifies nothing
            result["told"] = told
        return result


def against_prediction(measured: dict[str, Any]) -> dict[str, Any]:
    """What a smoke-run measured beside its prediction: bytes allocated at the peak of the worst rank, and step times.

    ``ratio`` is measured over expected, ``inside`` whether it lies between the predicted ends. Empty where nothing was
    predicted.
    """
    predicted = measured.get("predicted") or {}
    peaks = [peak for peak in measured.get("peak_memory_bytes", []) if peak]
    steps = sorted(measured.get("step_seconds", [])[1:])  # the first one warms up
    pairs = {
        "allocated": (max(peaks, default=None), predicted.get("allocated")),
        "step_seconds": (steps[len(steps) // 2] if steps else None, predicted.get("step_seconds")),
    }
    found = {}
    for name, (value, band) in pairs.items():
        if value is not None and isinstance(band, list) and len(band) == 3 and band[1]:
            low, expected, high = band
            inside = low <= value <= high
            found[name] = {"measured": value, "predicted": band, "ratio": round(value / expected, 3), "inside": inside}
    return found


def sharing_ways() -> dict[str, Any]:
    """Which ways for two ranks to share this card work, each tried on its own (`zerocfg.smoke.launch.sharing`).

    Passed: at least one does.
    """
    sys.path.insert(0, str(ROOT))
    from zerocfg.smoke.launch import sharing
    from zerocfg.smoke.model.error import SmokeError
    from zerocfg.smoke.worker.job import MODES

    found = {}
    for way in MODES:
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="zerocfg-gpu-") as scratch:
            try:
                sharing.find(2, Path(scratch), modes=(way,))
                works, why = True, ""
            except SmokeError as error:
                works, why = False, str(error)
            reports = [json.loads(path.read_text()) for path in sorted(Path(scratch).glob("*/reports/rank*.json"))]
        seen = [report.get("seen", {}) for report in reports]
        found[way] = {"works": works, "why": why, "seconds": round(time.monotonic() - start, 1), "seen": seen}
    return {
        "passed": any(one["works"] for one in found.values()),
        "commands": ["zerocfg.smoke.launch.sharing.find"],
        "ways": found,
    }


def sweep(folder: Path, compare: str, budget: int) -> dict[str, Any]:
    """Run ``gpu.py`` of a benchmark for at most ``budget`` seconds and compare with its committed predictions.

    Passed: the program came to its end and at least one case ran. How good the predictions are is in the comparison.
    """
    name = folder.relative_to(ROOT).as_posix()
    commands = [f"python {name}/gpu.py --budget-s {budget} --out F", f"{compare} F --write RESULTS"]
    with tempfile.TemporaryDirectory(prefix="zerocfg-gpu-") as scratch:
        out = Path(scratch) / "measured.jsonl"
        measure = [sys.executable, str(folder / "gpu.py"), "--budget-s", str(budget), "--out", str(out)]
        try:
            done = subprocess.run(measure, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return {"passed": False, "commands": commands, "error": f"no end within {LIMIT} s", "lines": lines_of(out)}
        found = lines_of(out)
        if done.returncode != 0 or not found:
            return {"passed": False, "commands": commands, "error": done.stderr.strip()[-4000:], "lines": found}
        compared = [sys.executable, str(folder / compare), str(out), "--write", str(folder / "results")]
        print(subprocess.run(compared, cwd=ROOT, env=environment(), capture_output=True, text=True).stdout)
        ran = [line["case"] for line in found if line["case"] not in ("machine", "end") and line["status"] == "ok"]
        return {"passed": bool(ran), "commands": commands, "ran": len(ran), "lines": found}


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def environment() -> dict[str, str]:
    """The current environment, with this interpreter's programs (ninja, accelerate) and this zerocfg found first."""
    paths = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    modules = [str(ROOT), os.environ.get("PYTHONPATH", "")]  # where zerocfg is not installed
    return {
        **os.environ,
        "PATH": os.pathsep.join(path for path in paths if path),
        "PYTHONPATH": os.pathsep.join(path for path in modules if path),
    }


CHECKS: dict[str, Callable[[], dict[str, Any]]] = {
    **{name: partial(smoke_run, *case) for name, case in SMOKE.items()},
    "sharing-ways": sharing_ways,
    **{name: partial(sweep, *case) for name, case in SWEEPS.items()},
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        print(f"no check {', '.join(unknown)}; there are {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    found = cards()
    failed = 0
    for name in names or CHECKS:
        if not found:
            print(f"{name}: not run: no NVIDIA card here")
            continue
        start = time.monotonic()
        result = CHECKS[name]()
        content = {
            "check": name,
            "date": datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0).isoformat(),
            "cards": found,
            "python": platform.python_version(),
            "seconds": round(time.monotonic() - start, 1),
            **result,
        }
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{name}.json"
        path.write_text(json.dumps(content, indent=2) + "\n")
        failed += not result["passed"]
        print(f"{name}: {'passed' if result['passed'] else 'FAILED'}, {path.relative_to(ROOT)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
