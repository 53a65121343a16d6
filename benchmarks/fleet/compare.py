"""A fleet lint on two Ray workers against one process: how much sooner, and whether it finds the same.

    python -m benchmarks.fleet.compare FOLDER [--count 200] [--rounds 3] [--write]

FOLDER holds the repositories, a folder each; the first ``--count`` by name are linted. Two Ray nodes of one core each
are started on this machine. The ways take turns, so that another load of the machine is shared by all.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.cluster.ray_nodes import ray_nodes
from zerocfg.fleet.shares import shares, weight

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WAYS = {
    "one process (`--jobs 1`)": (1, ["--jobs", "1"]),
    "two processes (`--jobs 2`)": (2, ["--jobs", "2"]),
    "two Ray workers (`--on ray --workers 2`)": (2, ["--on", "ray", "--workers", "2"]),
}


@dataclass
class Way:
    """``seconds`` of wall time by round; ``found``: the report of each repository; ``busiest``: seconds of a core that
    the busiest of its processes lints, as measured in the last round."""

    words: list[str]
    workers: int
    seconds: list[float] = field(default_factory=list)
    busiest: float = 0.0
    found: dict[str, Any] = field(default_factory=dict)


def fleet(listed: Path, words: list[str], environment: dict[str, str]) -> tuple[float, list[dict[str, Any]]]:
    """Wall time, and the repositories of the report."""
    command = [sys.executable, "-m", "zerocfg", "lint", "--repos", str(listed), *words, "--output-format", "json", "-q"]
    began = time.monotonic()
    done = subprocess.run(command, env=environment, cwd=listed.parent, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    if not done.stdout:
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")
    return seconds, json.loads(done.stdout)["repositories"]


def busiest(repositories: list[dict[str, Any]], workers: int) -> float:
    """Seconds of a core of the worker with most to do, where each has its share as zerocfg deals them out."""
    dealt = shares(repositories, [weight(one["path"]) for one in repositories], workers)
    return max(sum(one["cpu_seconds"] for one in share) for share in dealt)


def owners(names: list[str], environment: dict[str, str]) -> tuple[float, dict[str, Any]]:
    """`zerocfg lint` started in each repository, one after another."""
    command = [sys.executable, "-m", "zerocfg", "lint", "--no-cache", "--output-format", "json"]
    began = time.monotonic()
    found = {}
    for name in names:
        done = subprocess.run(command, env=environment, cwd=name, capture_output=True, text=True, check=False)
        found[name] = json.loads(done.stdout) if done.stdout else done.stderr
    return time.monotonic() - began, found


def told_of(repositories: list[dict[str, Any]]) -> dict[str, Any]:
    """By repository what its owner would be told, or why it was not linted."""
    found = {one["name"]: one["report"] or one["problem"] for one in repositories}
    for report in found.values():
        if isinstance(report, dict):
            for one in report["diagnostics"]:
                del one["fingerprint"]
    return found


def table(single: float, ways: dict[str, Way], equal: dict[str, bool]) -> str:
    least = min(ways["one process (`--jobs 1`)"].seconds)
    lines = [
        "| way | seconds (each round) | least | speed-up | core seconds of the busiest process | same findings |",
        "|---|---|---|---|---|---|",
        f"| `zerocfg lint` in each, one after another | {single:.1f} | {single:.1f} | {least / single:.2f} | | |",
    ]
    for name, way in ways.items():
        rounds, best = ", ".join(f"{one:.1f}" for one in way.seconds), min(way.seconds)
        said = "yes" if equal[name] else "NO"
        lines.append(f"| {name} | {rounds} | {best:.1f} | {least / best:.2f} | {way.busiest:.1f} | {said} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write results.md")
    given = parser.parse_args()
    names = sorted(str(one) for one in given.folder.resolve().iterdir() if one.is_dir())[: given.count]
    ways = {name: Way(words, workers) for name, (workers, words) in WAYS.items()}
    plain = {**os.environ, "PYTHONPATH": str(ROOT)}
    single, told = owners(names, plain)
    with TemporaryDirectory() as place, ray_nodes(cpus=1) as address:
        listed = Path(place) / "list"
        listed.write_text("\n".join(names))
        for _ in range(given.rounds):
            for name, way in ways.items():
                seconds, repositories = fleet(listed, way.words, {**plain, **address})
                way.seconds.append(seconds)
                way.busiest = busiest(repositories, way.workers)
                way.found = told_of(repositories)
                print(f"{seconds:7.1f} s  {name}", flush=True)
    equal = {name: way.found == told for name, way in ways.items()}
    findings = sum(len(one["diagnostics"]) for one in told.values() if isinstance(one, dict))
    text = (
        f"{len(names)} repositories, {findings} findings; Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[1]:.1f} in the five minutes before the end.\n\n{table(single, ways, equal)}"
    )
    print(text)
    if given.write:
        (HERE / "results.md").write_text(f"# A fleet on two Ray workers\n\n{text}")
    return 0 if all(equal.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
