"""Ranks of a smoke-run without their launcher, forked from a Python that has the libraries: for many runs in a row.

Each has the environment that the launcher gives its ranks. One function of the ranks' program can be made to raise.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import nccl, warm
from zerocfg.smoke.judge.verdict import Verdict, run_checks
from zerocfg.smoke.launch import process
from zerocfg.smoke.launch.job_folder import prepare, variables
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import RunFolder, read
from zerocfg.smoke.prepare.reduce import reduce

CPU = Device("cpu", "cpu")
LIMIT = 120.0
"""Seconds after which a rank hangs."""
DUMP = "import json, os, sys\nopen(sys.argv[1], 'w').write(json.dumps(dict(os.environ)))\n"
BREAK = '''
"""Makes one function of this program raise, wherever it is referred to; a file says that it was called."""
import functools, importlib, os, pkgutil, sys, types
import zerocfg_worker


def install():
    place = os.environ.get("ZEROCFG_TEST_BREAK")
    if not place or os.environ["RANK"] not in os.environ["ZEROCFG_TEST_BREAK_RANKS"].split(","):
        return
    module, _, name = place.partition(":")
    modules = [importlib.import_module(one.name) for one in pkgutil.walk_packages(zerocfg_worker.__path__,
               "zerocfg_worker.") if ".hooks" not in one.name and "__main__" not in one.name]
    owner = importlib.import_module(f"zerocfg_worker.{module}")
    *above, last = name.split(".")
    for one in above:
        owner = getattr(owner, one)
    original = vars(owner)[last]
    call = getattr(original, "fget", None) or getattr(original, "__func__", original)

    def broken(*_, **__):
        open(os.environ["ZEROCFG_TEST_BREAK_SEEN"] + os.environ["RANK"], "w").close()
        raise RuntimeError(f"broken for a test: {place}")

    functools.update_wrapper(broken, call)
    setattr(owner, last, property(broken) if isinstance(original, property) else broken)
    if above:
        return
    for one in modules:
        for key, value in list(vars(one).items()):
            if value is original:
                setattr(one, key, broken)
            elif type(value) is dict:
                value.update({inner: broken for inner, held in value.items() if held is original})
'''


@dataclass
class Play:
    """One run: its verdict, whether the broken function was called, ranks that did not end, and what they printed."""

    verdict: Verdict
    called: bool
    hung: list[int]
    codes: list[int | None]
    log: str = ""


@dataclass
class Stage:
    """A run folder and how many ranks play it; the environment of the launcher is asked once.

    ``double``: the collectives have the manners of NCCL whatever the test is run with.
    """

    folder: Path
    ranks: int
    parts: tuple[str, ...] = ("train",)
    steps: int = 2
    double: bool = False
    _environment: dict[str, str] = field(default_factory=dict)

    def play(self, scratch: Path, broken: str | None = None, on: str = "0", limit: float = LIMIT) -> Play:
        """Play it in the new folder ``scratch``; ``broken``: "module:name", on the ranks ``on``."""
        scratch.mkdir(parents=True)
        run = read(self.folder)
        reduced = reduce(run, CPU, self.ranks, scratch)
        command = prepare(run, reduced, CPU, self.steps, scratch, parts=self.parts)
        (scratch / "reports").mkdir()
        own = variables(scratch)
        program = scratch / "program" / process.PROGRAM
        (program / "broken.py").write_text(textwrap.dedent(BREAK))
        main = program / "__main__.py"
        main.write_text(main.read_text().replace("from . import compiling", "from . import broken, compiling", 1))
        main.write_text(
            main.read_text().replace("def main() -> None:\n", "def main() -> None:\n    broken.install()\n")
        )
        assert "broken.install()" in main.read_text() and "import broken" in main.read_text()
        base = self._launcher(command, scratch) | own
        port = str(process.free_port())
        seen = scratch / "called"
        started = []
        for rank in range(self.ranks):
            places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": self.ranks, "LOCAL_WORLD_SIZE": self.ranks}
            environment = base | {name: str(value) for name, value in places.items()} | {"MASTER_PORT": port}
            if self.double:
                environment |= nccl.variables(double=True) | {"PYTHONPATH": nccl.path_with(program.parent)}
            if broken is not None:
                environment |= {"ZEROCFG_TEST_BREAK": broken, "ZEROCFG_TEST_BREAK_RANKS": on}
                environment["ZEROCFG_TEST_BREAK_SEEN"] = str(seen)
            with (scratch / f"log{rank}.txt").open("wb") as log:
                started.append(
                    subprocess.Popen(
                        [warm.python(), "-m", process.PROGRAM, str(scratch / "job.json")],
                        cwd=scratch, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )  # fmt: skip
        hung = []
        for rank, one in enumerate(started):
            try:
                one.wait(limit)
            except subprocess.TimeoutExpired:
                hung.append(rank)
        for one in started:
            one.kill()
            one.wait()
        codes = [one.returncode for one in started]
        reports = process._reports(scratch / "reports", self.ranks)
        log_text = "\n".join(
            (scratch / f"log{rank}.txt").read_text(errors="replace")[-3000:] for rank in range(self.ranks)
        )
        failed = any(codes) or bool(hung) or not all(report.get("done") for report in reports)
        outcome = Outcome(reports, f"ranks ended with {codes}, {hung} hang" if failed else None)
        return Play(
            _verdict(run, reduced, outcome, self.steps), bool(list(scratch.glob("called*"))), hung, codes, log_text
        )

    def _launcher(self, command: list[str], scratch: Path) -> dict[str, str]:
        """The environment of a rank; with the paths of this ``scratch`` in place of those it was asked in."""
        if not self._environment:
            (scratch / "dump.py").write_text(DUMP)
            at = command.index("-m", command.index("-m") + 1)
            words = [warm.python() if word == sys.executable else word for word in command[:at]]
            file = scratch / "environment.json"
            done = subprocess.run(
                [*words, str(scratch / "dump.py"), str(file)], cwd=scratch, env=process.environment("cpu"),
                capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            assert file.is_file(), done.stderr
            found = json.loads(file.read_text())
            kept = {name: value for name, value in found.items() if "TORCHELASTIC" not in name}
            self._environment = {name: value.replace(str(scratch), "{scratch}") for name, value in kept.items()}
        filled = {name: value.replace("{scratch}", str(scratch)) for name, value in self._environment.items()}
        return filled | {"TORCH_EXTENSIONS_DIR": os.environ["TORCH_EXTENSIONS_DIR"]}


def _verdict(run: RunFolder, reduced: Any, outcome: Outcome, steps: int) -> Verdict:
    verdict = Verdict(run, CPU, reduced, outcome, run_checks(run, reduced, outcome, steps))
    verdict.expected = "nothing was predicted"
    return verdict
