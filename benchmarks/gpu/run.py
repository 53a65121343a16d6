"""Run the checks that need an NVIDIA card and keep their results; without a card say so and succeed.

    python benchmarks/gpu/run.py [NAME...] [--out FOLDER] [--again] [--tiny]

Results are written into FOLDER as they come: NAME.json when a check ends, and of a sweep NAME.jsonl, a line for each
case. No check takes longer than nine minutes. Run again, it goes on: what passed is not repeated (``--again`` does),
and a sweep measures the cases that are left. Nothing is downloaded or installed. ``--tiny``: tiny models on a
processor, to try the program itself.

Exit codes: 0 every check passed or there is no card, 1 a check failed, 2 an unknown name or a folder with results of
another card, 3 nothing failed and a sweep has cases left: run again.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
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
LIMIT = 540  # seconds of a check, with all that it starts
# Seconds of one launch. By it a smoke-run also decides how many layers it can make, train and save: 1.8e9 parameters.
LAUNCH = 300
LAUNCH_OF_TRIAL = 120  # seconds that one way to share a card may hang
COMPARING = 60  # seconds of LIMIT that a sweep leaves for the comparison
# name -> (folder, program that compares, seconds of one case); predictions lie in the folder
SWEEPS = {
    "memory": (ROOT / "benchmarks" / "memory", "compare_gpu.py", 75),
    "plan": (ROOT / "benchmarks" / "plan", "compare.py", 60),
}
H100 = "H100"
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "PIP_NO_INDEX": "1",
    "UV_OFFLINE": "1",
}
EXPECTED = ("unlikely", "does not fit")
"""Verdicts of cases that may run out of memory without anything being wrong."""
Result = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where checks run and what they leave: the folder of results, the card's name, and whether all is only tried."""

    out: Path
    card: str = ""
    tiny: bool = False

    @property
    def device(self) -> str:
        return "cpu" if self.tiny else "cuda"


class Clock:
    """The seconds that a check has left."""

    def __init__(self) -> None:
        self.start = time.monotonic()

    @property
    def left(self) -> float:
        return LIMIT - (time.monotonic() - self.start)


def limited(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Runs a program, offline, and ends it with all that it started after so many seconds (TimeoutExpired)."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=max(seconds, 0))
        return subprocess.CompletedProcess(command, process.returncode, output, errors)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


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


def smoke_run(place: Place, spec: str, run: str, options: tuple[str, ...]) -> Result:
    """Build ``spec`` and smoke-run ``run`` of it on one card; "PICTURE" among the options becomes a file of results."""
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="zerocfg-gpu-") as out:
        zerocfg = [sys.executable, "-m", "zerocfg"]
        if "--picture" in options and importlib.util.find_spec("matplotlib") is None:
            at = options.index("--picture")
            options = (*options[:at], *options[at + 2 :])
        given = [str(place.out / "compare.svg") if word == "PICTURE" else word for word in options]
        build = [*zerocfg, "build", str(ROOT / spec), "-o", out]
        smoke = [*zerocfg, "smoke", f"{out}/{run}", *given, "--device", place.device]
        smoke += ["--time-limit", str(LAUNCH), "--output-format", "json"]
        device = f"--device {place.device}"
        commands = [f"zerocfg build {spec} -o OUT", f"zerocfg smoke OUT/{run} {' '.join(options)} {device}"]
        for command in (build, smoke):
            try:
                done = limited(command, clock.left)
            except subprocess.TimeoutExpired:
                return {"passed": False, "commands": commands, "error": f"no end within {LIMIT} s"}
            if done.returncode != 0 and not done.stdout.lstrip().startswith(("{", "[")):
                error = (done.stderr or done.stdout).strip()[-4000:]
                return {"passed": False, "commands": commands, "error": error}
        try:
            told = json.loads(done.stdout)
        except ValueError:
            return {"passed": False, "commands": commands, "error": f"no JSON: {done.stdout[-2000:]}"}
        result: Result = {"passed": done.returncode == 0, "commands": commands}
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


def sharing_ways(place: Place) -> Result:
    """Which ways for two ranks to share this card work, each tried on its own (`zerocfg.smoke.launch.sharing`).

    Passed: at least one does.
    """
    sys.path.insert(0, str(ROOT))
    from zerocfg.smoke.launch import sharing
    from zerocfg.smoke.model.error import SmokeError
    from zerocfg.smoke.worker.job import MODES

    found: Result = {}
    clock = Clock()
    for way in MODES:
        start = time.monotonic()
        if clock.left < LAUNCH_OF_TRIAL:
            found[way] = {"works": False, "why": f"not tried: {LIMIT} s are over", "seconds": 0.0, "seen": []}
            continue
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


def sweep(place: Place, name: str) -> Result:
    """Run ``gpu.py`` of a benchmark for the cases that are left, and compare all of them with its predictions.

    Passed: the program came to its end, and at least one case ran or ran out of memory as predicted. How good the
    predictions are is in the comparison.
    """
    clock = Clock()
    folder, compare, case_s = SWEEPS[name]
    out, given = place.out / f"{name}.jsonl", predictions_of(folder, place.card)
    words = verdicts_of(json.loads(given.read_text()))
    left = [case for case in words if case not in ended(whole_lines(out), case_s)]
    where = folder.relative_to(ROOT).as_posix()
    budget = round(clock.left - COMPARING)
    commands = [f"python {where}/gpu.py --budget-s {budget} --out {out.name}", f"{compare} {out.name} --write {name}"]
    error = ""
    if left:
        each = budget if place.tiny else case_s
        measure = [sys.executable, str(folder / "gpu.py"), "--budget-s", str(budget), "--case-s", str(each)]
        measure += ["--out", str(out), "--device", place.device, *(["--tiny"] if place.tiny else []), "--only", *left]
        try:
            done = limited(measure, clock.left)
            error = done.stderr.strip()[-4000:] if done.returncode != 0 else ""
        except subprocess.TimeoutExpired:
            error = f"no end within {LIMIT} s"
    lines = whole_lines(out)
    ran_out = out_of_memory(lines, words)
    ran = [case for case, line in last(lines).items() if line["status"] == "ok"]
    passed = not error and bool(ran or ran_out["as predicted"])
    if passed and not place.tiny:
        tables = [str(folder / compare), str(out), "--predictions", str(given), "--write", str(place.out / name)]
        with contextlib.suppress(subprocess.TimeoutExpired):
            print(limited([sys.executable, *tables], clock.left).stdout)
    return {
        "passed": passed,
        "commands": commands,
        **({"error": error} if error else {}),
        "ran": len(ran),
        "out of memory": ran_out,
        "left": [case for case in words if case not in ended(lines, case_s)],
        "lines": lines,
    }


def predictions_of(folder: Path, card: str) -> Path:
    """The committed predictions, for an H100 its own where there are some."""
    own = folder / "predictions-h100.json"
    return own if H100 in card and own.is_file() else folder / "predictions.json"


def verdicts_of(predictions: dict[str, Any]) -> dict[str, str]:
    """The cases that are to be measured, and whether each was said to fit."""
    if "cases" in predictions:
        return {name: case["word"] for name, case in predictions["cases"].items()}
    plans = (
        (plan["name"], plan["verdict"])
        for model in predictions["models"].values()
        for plan in model["plans"]
        if plan["name"] in model["measured"]
    )
    return dict(plans)


def whole_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of results. What a killed program left of its last one is taken out of the file."""
    if not path.is_file():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return [json.loads(line) for line in whole.splitlines()]


def last(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The last line of each case."""
    return {line["case"]: line for line in lines if line["case"] not in ("machine", "end")}


def ended(lines: list[dict[str, Any]], case_s: float) -> set[str]:
    """The cases that need no further run: of those that were cut off only what had all its time."""
    return {
        case
        for case, line in last(lines).items()
        if line["status"] in ("ok", "oom", "failed") or (line["status"] == "timeout" and line["wall_s"] >= case_s)
    }


def out_of_memory(lines: list[dict[str, Any]], words: dict[str, str]) -> dict[str, list[str]]:
    """The cases that ran out of memory, by whether that was to be expected. A likely one may, one time in two at
    most."""
    cases = [(case, words.get(case, "")) for case, line in last(lines).items() if line["status"] == "oom"]
    return {
        "as predicted": [case for case, word in cases if word in EXPECTED],
        "though likely to fit": [case for case, word in cases if word not in (*EXPECTED, "fits")],
        "though said to fit": [case for case, word in cases if word == "fits"],
    }


def environment() -> dict[str, str]:
    """The current environment, with this interpreter's programs (ninja, accelerate) and this zerocfg found first, and
    without the network for what would look there."""
    paths = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    modules = [str(ROOT), os.environ.get("PYTHONPATH", "")]  # where zerocfg is not installed
    return {
        **os.environ,
        **OFFLINE,
        "PATH": os.pathsep.join(path for path in paths if path),
        "PYTHONPATH": os.pathsep.join(path for path in modules if path),
    }


CHECKS: dict[str, Callable[[Place], Result]] = {
    **{name: partial(smoke_run, spec=spec, run=run, options=options) for name, (spec, run, options) in SMOKE.items()},
    "sharing-ways": sharing_ways,
    **{name: partial(sweep, name=name) for name in SWEEPS},
}


def earlier(path: Path) -> Result:
    """What an earlier run wrote; nothing where it was stopped before."""
    try:
        found: Result = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found


def measured_on(out: Path, name: str) -> set[str]:
    """The cards that the results of a check in a folder are of."""
    cards = {card["name"] for card in earlier(out / f"{name}.json").get("cards", ())[:1]}
    lines = whole_lines(out / f"{name}.jsonl")
    return cards | {line["card"] for line in lines if line["case"] == "machine" and line.get("card")}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Run the checks that need an NVIDIA card.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(CHECKS)}; all unless given")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder for results, written as they come")
    parser.add_argument("--again", action="store_true", help="repeat what passed")
    parser.add_argument("--tiny", action="store_true", help="tiny models on a processor, to try the program itself")
    given = parser.parse_args(words)
    unknown = [name for name in given.names if name not in CHECKS]
    if unknown:
        print(f"no check {', '.join(unknown)}; there are {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    found = cards()
    place = Place(given.out, found[0]["name"] if found else "", given.tiny)
    failed = left = 0
    for name in given.names or CHECKS:
        if not found and not given.tiny:
            print(f"{name}: not run: no NVIDIA card here")
            continue
        path = given.out / f"{name}.json"
        before = earlier(path)
        other = measured_on(given.out, name) - {place.card}
        if other:
            print(f"{path} is of {', '.join(sorted(other))}; name another folder with --out", file=sys.stderr)
            return 2
        if given.again:
            (given.out / f"{name}.jsonl").unlink(missing_ok=True)
        elif before.get("passed") and not before.get("left"):
            print(f"{name}: passed on {before['date']}")
            continue
        given.out.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        result = CHECKS[name](place)
        content = {
            "check": name,
            "date": datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0).isoformat(),
            "cards": found,
            "python": platform.python_version(),
            "seconds": round(time.monotonic() - start, 1),
            **result,
        }
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(content, indent=2) + "\n")
        fresh.replace(path)
        failed += not result["passed"]
        left += len(result.get("left", ()))
        cases = f"; {len(result['left'])} cases are left, run again" if result.get("left") else ""
        print(f"{name}: {'passed' if result['passed'] else 'FAILED'}, {path}{cases}", flush=True)
    return 1 if failed else 3 if left else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends as well
    sys.exit(main(sys.argv[1:]))
