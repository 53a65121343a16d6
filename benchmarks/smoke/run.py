"""Seconds of smoke-runs by two trees of zerocfg, one after the other: ``python run.py BEFORE [CASE...]``.

BEFORE is a folder with the older ``zerocfg``, ``schemas`` and ``docs``; the newer one is this checkout. Every result is
written to results/seconds.json when it is there, and results/seconds.md and seconds.svg are made from that file.
CPU seconds are those of all processes of a case: other programs on the machine change them less than the seconds.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RUN = ROOT / "examples/quickstart/built/quickstart"
RESULTS = HERE / "results"
MEASURED = {
    "compare 0,2,3": ["--compare", "0,2,3"],
    "max-batch": ["--find-max-batch", "--batch-limit", "8", "--ranks", "1"],
}
"""Commands of several launches."""
PLAYED = ("quickstart", "quickstart, shared import", "wide")
"""Single launches, with the seconds of their phases (case.py)."""
COLUMNS = (
    "command", "imports and launch", "weights", "engine", "training", "checkpoint", "save", "read back", "resume",
    "reference", "end",
)  # fmt: skip


def main() -> None:
    before, *cases = sys.argv[1:]
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "seconds.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for case in cases or [*PLAYED, *MEASURED]:
        for tree, folder in (("before", Path(before)), ("after", ROOT)):
            if tree == "before" and "shared" in case:
                continue
            found.setdefault(case, {})[tree] = measure(case, folder)
            path.write_text(json.dumps(found, indent=2) + "\n")
            print(case, tree, json.dumps(found[case][tree]), flush=True)
    (RESULTS / "seconds.md").write_text(table(found))
    draw(found)


def measure(case: str, tree: Path) -> dict[str, Any]:
    """The seconds of one case by one tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    start, used = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    if case in MEASURED:
        words = ["-m", "zerocfg", "smoke", str(RUN), "--device", "cpu", "--output-format", "json", *MEASURED[case]]
    else:
        words = [str(HERE / "case.py"), case, repr(start)]
    # In the folder of the tree: `-m` looks for zerocfg there first.
    done = subprocess.run([sys.executable, *words], cwd=tree, env=environment, capture_output=True, text=True)
    now, load = resource.getrusage(resource.RUSAGE_CHILDREN), os.getloadavg()[0]
    if done.returncode != 0:
        raise SystemExit(f"{case} with {tree}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
    told = json.loads(done.stdout)
    found: dict[str, Any] = {"total": round(time.time() - start, 1), "load": round(load, 1)}
    found["cpu"] = round(now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime, 1)
    if case in MEASURED:
        found["launches"] = len(told["rows"]) if "rows" in told else told["launches"]
    else:
        found |= {"seconds": told["seconds"], "failure": told["failure"], "failed": told["failed"]}
    return found


def table(found: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = [f"| case | | {' | '.join(COLUMNS)} | total | ratio | CPU seconds | ratio |"]
    lines.append("|---|---|" + "---:|" * (len(COLUMNS) + 4))
    for case, trees in found.items():
        for tree, one in trees.items():
            base = trees.get("before") or found["quickstart"]["before"]
            cells = [f"{one['seconds'][name]:.1f}" if name in one.get("seconds", {}) else "" for name in COLUMNS]
            ratios = [f"{one[key] / base[key]:.2f}" for key in ("total", "cpu")]
            launches = f" ({one['launches']} launches)" if "launches" in one else ""
            ends = [f"{one['total']:.1f}", ratios[0], f"{one['cpu']:.1f}", ratios[1]]
            lines.append(f"| {case}{launches} | {tree} | {' | '.join([*cells, *ends])} |")
    return "\n".join(lines) + "\n"


def draw(found: dict[str, Any]) -> None:
    """Bars of the totals and of the phases."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        print("not drawn: matplotlib is not installed")
        return
    rows = [(f"{case}, {tree}", one) for case, trees in found.items() for tree, one in trees.items()]
    _, axes = plt.subplots(figsize=(9, 0.45 * len(rows) + 1.4))
    colours = plt.get_cmap("tab20")
    for at, (_, one) in enumerate(rows):
        left, phases = 0.0, one.get("seconds") or {"launches": one["total"]}
        for name, seconds in phases.items():
            index = COLUMNS.index(name) if name in COLUMNS else len(COLUMNS)
            axes.barh(at, seconds, left=left, color=colours(index), label=name)
            left += seconds
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel("seconds on two cores of a processor")
    handles, labels = axes.get_legend_handles_labels()
    known = dict(zip(labels, handles, strict=True))
    axes.legend(known.values(), known.keys(), fontsize=7, loc="lower right")
    plt.tight_layout()
    plt.savefig(RESULTS / "seconds.svg")


if __name__ == "__main__":
    main()
