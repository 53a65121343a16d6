"""Where the time of a lint goes, and what a look of the language server takes; measured in processes of this Python.

    python -m benchmarks.lint.inside look FOLDER

changes one of the configs of a folder again and again, as an editor does, and prints the CPU ms of a look.
"""

from __future__ import annotations

import os
import pstats
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.lint.cases import write_pair

ROOT = Path(__file__).resolve().parents[2]
OPEN = "ds_0.json"
LOOKS = 50
TOP = 10
PROFILES = 15


def looks(below: Path) -> str:
    """A sentence about the language server in a folder of 400 files."""
    folder = _pairs(below / "400", 200)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.lint.inside", "look", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return (
        f"One of 400 files changed, in a warm language server: {float(done.stdout):.1f} ms of CPU a look (median of "
        f"{LOOKS}).\n"
    )


def profiles(below: Path, programs: Path) -> str:
    """The functions in which the time of a first lint goes, of a pair and of 1,000 files: a page. ``programs``: the
    folder of the Python that zerocfg is installed for."""
    small, large = _pairs(below / "profiled", 1), _pairs(below / "profiled-500", 500)
    return (
        "# Where the time of a first lint goes\n\n"
        f"The {TOP} functions with the most time of their own, as shares of the whole (cProfile, which makes calls of\n"
        "Python longer than work in C). Of a pair most is importing: reading, loading and running modules.\n"
        + _table(f"a pair, from the start of Python, {PROFILES} times", small, programs, PROFILES)
        + _table("500 pairs in 1,000 files", large, programs, 1)
    )


def _table(title: str, folder: Path, programs: Path, times: int) -> str:
    kept = folder.parent / "kept-by-profile"
    environment = {**os.environ, "XDG_CACHE_HOME": str(kept)}
    environment.pop("PYTHONPATH", None)
    raw = [str(folder.parent / f"{folder.name}-{number}.pstats") for number in range(times)]
    for one in raw:
        shutil.rmtree(kept, ignore_errors=True)
        command = [str(programs / "python"), "-m", "cProfile", "-o", one, "-m", "zerocfg", "lint", "."]
        subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True)
    stats = pstats.Stats(*raw)
    whole: float = stats.total_tt  # type: ignore[attr-defined]
    rows = sorted(stats.stats.items(), key=lambda item: -item[1][2])[:TOP]  # type: ignore[attr-defined]
    lines = [f"\n| {title} | own | with what it calls |", "|---|---:|---:|"]
    for (file, _, function), (_, _, own, cumulative, _) in rows:
        lines.append(f"| `{_short(file)}{function}` | {own / whole:.1%} | {cumulative / whole:.1%} |")
    return "\n".join(lines) + "\n"


def _short(file: str) -> str:
    """A file as it is known: within zerocfg, a package, or the standard library; nothing for what is built in."""
    parts = Path(file).parts
    for top in ("zerocfg", "site-packages", "python3.10", "python3.11", "python3.12", "python3.13"):
        if top in parts:
            at = len(parts) - 1 - parts[::-1].index(top)
            return "/".join(parts[at if top == "zerocfg" else at + 1 :]) + ": "
    return "" if file in ("~", "") else f"{Path(file).name}: "


def _pairs(folder: Path, count: int) -> Path:
    folder.mkdir()
    (folder / ".git").mkdir()
    for number in range(count):
        write_pair(folder, number)
    return folder


def _look(folder: Path) -> float:
    """Median CPU ms of a look after one more character in one file."""
    from zerocfg.lsp.checking import Project
    from zerocfg.lsp.documents import Documents

    documents, path = Documents(), folder / OPEN
    text = path.read_text()
    documents.put(path.as_uri(), text, 0)
    project, took = Project(str(folder)), []
    for version in range(1, LOOKS + 3):
        documents.change(path.as_uri(), text + " " * version, version)
        began = time.process_time()
        project.check(documents.in_folder(str(folder)))
        took.append((time.process_time() - began) * 1000)
    return statistics.median(took[2:])


if __name__ == "__main__":
    print(_look(Path(sys.argv[2])))
