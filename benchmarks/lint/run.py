"""CPU time of `zerocfg lint` beside that of the linters of other files, in one run, as ratios.

    python -m benchmarks.lint.run [--corpus FOLDER] [--print]

Installs the peers of `peers.txt` and zerocfg itself, as a wheel, into an environment of their own (`.cache/peers`),
makes the files (`cases.py`), and runs the tools of a row in turn, so that what else the machine does meets all of them.
The median counts. A lint finds no kept outcome; "zerocfg again" prints what that kept. It takes 5 minutes, and writes
`results.md`, the picture, and `profile.md` (where the time goes) beside this file. ``--corpus``: the folder of real
configs, `shared/corpus` beside the checkout else; that row is left out where there is none. ``--print``: no file is
written.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.lint.cases import Case, cases
from benchmarks.lint.inside import looks, profiles

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PEERS = ROOT / ".cache" / "peers"
CORPUS = ROOT.parent / "shared" / "corpus"


@dataclass
class Row:
    """``seconds``: of CPU time, user and system, by tool; one a repetition."""

    case: Case
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def median(self, tool: str) -> float | None:
        return statistics.median(self.seconds[tool]) if tool in self.seconds else None

    def ratio(self, peer: str) -> float | None:
        ours, theirs = self.median("zerocfg"), self.median(peer)
        return ours / theirs if ours is not None and theirs else None

    @property
    def again(self) -> float | None:
        """The time of a lint whose outcome is kept, as a multiple of the first."""
        first, again = self.median("zerocfg"), self.median("zerocfg again")
        return again / first if first and again is not None else None


def installed() -> Path:
    """The folder of programs of the peers' environment, with zerocfg as it is now."""
    programs = PEERS / "bin"
    if not programs.exists():
        venv.create(PEERS, with_pip=True)
    pip = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(HERE / "peers.txt"), str(ROOT)], check=True)
    subprocess.run([*pip, "--force-reinstall", "--no-deps", str(ROOT)], check=True)
    return programs


def measured(case: Case, programs: Path, kept: Path) -> Row:
    """The row of a case; where there are several rounds, the first finds no file in memory and is not counted.
    ``kept``: where zerocfg keeps outcomes."""
    row = Row(case)
    for number in range(case.repetitions + 1) if case.repetitions > 1 else (1,):
        for tool, commands in case.commands.items():
            if tool == "zerocfg":
                shutil.rmtree(kept, ignore_errors=True)
            took = sum(_cpu(command, case.folder, programs, kept) for command in commands)
            if number:
                row.seconds.setdefault(tool, []).append(took)
        _tell(f"{case.title}: {number} of {case.repetitions}")
    _tell("")
    return row


def _cpu(command: list[str], folder: Path, programs: Path, kept: Path) -> float:
    """CPU seconds of a command, with those of its children. Raises RuntimeError where it neither passes nor finds."""
    left_out = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "CI", "GITHUB_ACTIONS")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment["XDG_CACHE_HOME"] = str(kept)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [str(programs / command[0]), *command[1:]], cwd=folder, env=environment, capture_output=True, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1, 13):  # 13 and its like: what zizmor found
        raise RuntimeError(f"{' '.join(command[:4])} left with {done.returncode}: {done.stderr[-500:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def times(rows: list[Row]) -> str:
    """Milliseconds by row and tool, in Markdown."""
    tools = list(dict.fromkeys(tool for row in rows for tool in row.seconds))
    lines = _head(["ms", *tools])
    for row in rows:
        every = ("" if (took := row.median(tool)) is None else f"{took * 1000:,.0f}" for tool in tools)
        lines.append("| " + " | ".join([row.case.title, *every]) + " |")
    return "\n".join(lines) + "\n"


def ratios(rows: list[Row]) -> str:
    """zerocfg as a multiple of each other tool, with what it may be at most, in Markdown."""
    tools = dict.fromkeys(tool for row in rows for tool in row.seconds)
    others = [tool for tool in tools if not tool.startswith("zerocfg")]
    lines = _head(["zerocfg as a multiple of", *others, "again / first"])
    for row in rows:
        every = {**{other: row.ratio(other) for other in others}, "again": row.again}
        shown = (_with_goal(ratio, row.case.goals.get(name)) for name, ratio in every.items())
        lines.append("| " + " | ".join([row.case.title, *shown]) + " |")
    return "\n".join(lines) + "\n"


def _with_goal(ratio: float | None, goal: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:.2f}" if goal is None else f"{ratio:.2f} (goal {goal:.2f})"


def _head(words: list[str]) -> list[str]:
    return ["| " + " | ".join(words) + " |", "|---|" + "---:|" * (len(words) - 1)]


def described(rows: list[Row], began: tuple[float, ...], looked: str) -> str:
    peers = ", ".join((HERE / "peers.txt").read_text().split()).replace("==", " ")
    loads = (" ".join(f"{one:.1f}" for one in load) for load in (began, os.getloadavg()))
    when = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    machine = f"{os.cpu_count()} CPUs ({platform.machine()}), Python {platform.python_version()}"
    return (
        "# Time of `zerocfg lint` beside other linters\n\n"
        f"`python -m benchmarks.lint.run`, {when}, {machine}; load of 1, 5 and 15 minutes at the beginning "
        f"{next(loads)}, at the end {next(loads)}. Peers: {peers}.\nMedian CPU time, user and system; the tools of a "
        f"row run in turn.\n\n{ratios(rows)}\n{times(rows)}\n"
        "yamllint reads the JSON, too (a subset of YAML, rules `relaxed`); check-jsonschema is two processes, one a "
        "schema; ruff, torch-preflight and\nzizmor have one file of their own kind (a script, a workflow).\n\n"
        'A lint keeps its outcome and prints it again while nothing changed: "zerocfg again".\n\n'
        f"{looked}\n![Ratios to the peers](results.svg)\n\nWhere the time goes: [profile.md](profile.md).\n"
    )


def _tell(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--print", action="store_true")
    asked = parser.parse_args()
    corpus = asked.corpus.resolve() if asked.corpus.is_dir() else None
    if corpus is None:
        print(f"no folder {asked.corpus}: the row of real configs is left out", file=sys.stderr)
    programs = installed()
    began = os.getloadavg()
    with TemporaryDirectory() as name:
        below = Path(name)
        every = cases(below, ROOT / "schemas" / "editor", corpus)
        rows = [measured(case, programs, below / "kept") for case in every]
        looked, profiled = looks(below), profiles(below, programs)
    print(f"{ratios(rows)}\n{times(rows)}\n{looked}")
    if not asked.print:
        from benchmarks.lint.picture import draw

        (HERE / "results.md").write_text(described(rows, began, looked))
        (HERE / "profile.md").write_text(profiled)
        draw(rows, HERE / "results.svg")


if __name__ == "__main__":
    main()
