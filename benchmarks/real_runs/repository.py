"""The runs of one repository: drafted, built, written, and read back."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import tempfile
import time
import traceback
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.real_runs.compare import Difference, differences
from benchmarks.real_runs.owner import OLDER, answered
from zerocfg.emit.files import LAUNCH
from zerocfg.emit.write import write
from zerocfg.hardware.probe import probe
from zerocfg.resolve.build import build_run
from zerocfg.resolve.init.infer_runs import draft_runs
from zerocfg.resolve.init.text import spec_text
from zerocfg.resolve.spec.spec_file import read_spec
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs, runs_from_spec
from zerocfg.run.releases import with_versions
from zerocfg.workspace.compile_runs import compile_runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from zerocfg.resolve.init.draft import Draft
    from zerocfg.resolve.plan import Decision, Plan
    from zerocfg.run.model import Route, Run
    from zerocfg.workspace.compile_runs import CompiledBuild

LARGEST = 1 << 20
"""Bytes of a file that is copied."""
CONFIGS = ("accelerate", "deepspeed")
SECONDS = 120
"""For one run."""
SECONDS_FOR_ALL = 600
"""For drafting all runs of a repository, and again for comparing them."""
SPEC, BUILT = "zerocfg.yaml", "built"
ANY_WORDS = ' "$@"'
"""The end of launch.sh: words that whoever starts it adds. Here nobody does."""


@dataclass
class Row:
    """What became of a run. ``outcome``: built, refused, internal (zerocfg's own check failed), crash or timeout;
    ``reasons``: (kind, message) of why it was refused. ``older``: built at the owner's releases. ``answered``: configs
    that its line names and nobody can tell. ``line``: a short hash of the words of its launch line, by which lines that
    are the same in several repositories are known."""

    repository: str
    run: str
    launch: str = ""
    consumer: str = ""
    engine: str = ""
    launcher: str = ""
    hardware: str = ""
    outcome: str = ""
    older: bool = False
    answered: list[str] = field(default_factory=list)
    reasons: list[tuple[str, str]] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    compared: bool = False
    seconds: float = 0.0
    commit: str = ""
    line: str = ""

    @property
    def explained(self) -> list[Difference]:
        return [one for one in self.differences if one.why]

    @property
    def unexplained(self) -> list[Difference]:
        return [one for one in self.differences if not one.why]


def rows_of(tree: Path, keep: Path | None = None) -> list[Row]:
    """Every run of a repository. Works on a copy of its files; what is built goes to ``keep``/REPOSITORY as well."""
    here = Path.cwd()
    work = Path(tempfile.mkdtemp(prefix="real-runs-"))
    try:
        copy = work / tree.name
        shutil.copytree(tree, copy, ignore=_left_out)
        (copy / ".git").mkdir(exist_ok=True)  # the root of a repository
        os.chdir(copy)
        found = _Repository(tree.name, copy).rows()
        if keep is not None and (copy / BUILT).is_dir():
            shutil.copytree(copy, keep / tree.name, dirs_exist_ok=True)
        return found
    finally:
        os.chdir(here)
        shutil.rmtree(work)


def _left_out(folder: str, names: list[str]) -> list[str]:
    paths = {name: Path(folder, name) for name in names}
    return [name for name, path in paths.items() if name in (".git", SPEC) or path.is_symlink() or _is_large(path)]


def _is_large(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > LARGEST


class _Repository:
    def __init__(self, name: str, tree: Path) -> None:
        self.name, self.tree = name, tree
        self.rows_by_run: dict[str, Row] = {}
        self.plans: dict[str, tuple[Plan, Mapping[str, Decision]]] = {}
        self.specified: dict[str, Run] = {}
        self.found: list[Run] = []
        self.files = Files()

    def rows(self) -> list[Row]:
        whole = Row(self.name, "")
        with _limited(whole, SECONDS_FOR_ALL):
            drafts = self._drafts()
        if whole.outcome or not drafts:
            return [whole] if whole.outcome else []
        self._build(drafts, {})
        refused = [name for name, row in self.rows_by_run.items() if row.outcome == "refused" and _by_lint(row)]
        stated = self._stating_releases()
        older = [
            draft for draft in drafts if draft.name in refused and self.rows_by_run[draft.name].launch not in stated
        ]
        if older:
            before = dict(self.rows_by_run)
            self._build(older, OLDER)
            for draft in older:
                row = self.rows_by_run[draft.name]
                if row.outcome == "refused":
                    self.rows_by_run[draft.name] = before[draft.name]
                else:
                    row.older = True
        with _limited(whole, SECONDS_FOR_ALL):
            self._compare()
        return [*self.rows_by_run.values(), *([whole] if whole.outcome else [])]

    def _drafts(self) -> list[Draft]:
        drafts = draft_runs(self.tree, {}, probe, self.files)
        self.found = [run for run in find_runs([self.tree], self.files, root=self.tree)[0] if run.launch is not None]
        lines = {_place(run, self.tree): run for run in self.found}
        for draft in drafts:
            run = lines.get(draft.value("launch") or "")
            answered(draft, plain=run is not None and run.launch is not None and run.launch.launcher == "python")
        return drafts

    def _stating_releases(self) -> set[str]:
        """The launch lines of which the repository says with which releases they run."""
        return {_place(run, self.tree) for run in with_versions(self.found, {}) if "transformers" in run.versions}

    def _build(self, drafts: Sequence[Draft], releases: Mapping[str, str]) -> None:
        """``releases``: as settings of the repository would state them."""
        text = spec_text(drafts)
        path = self.tree / SPEC
        path.write_text(text, encoding="utf-8")
        read = read_spec(path, SPEC)
        if read.spec is None:
            wrong = [("spec", str(read.problems[0]))]
            rows = [Row(self.name, draft.name, outcome="crash", reasons=wrong) for draft in drafts]
            self.rows_by_run.update({row.run: row for row in rows})
            return
        files = self.files.with_texts({os.path.realpath(path): text})
        runs = {run.name: run for run in with_versions(runs_from_spec(path, files), releases)}
        for draft in drafts:
            row = Row(self.name, draft.name, draft.value("launch") or "", draft.value("consumer") or "")
            row.answered = [key for key in CONFIGS if key in draft.guesses and draft.guesses[key].how == "guessed"]
            row.hardware = str(draft.value("hardware"))
            row.line = _hash(draft)
            self.rows_by_run[draft.name] = row
            began = time.monotonic()
            with _limited(row):
                built = build_run(read, runs[draft.name], files)
                row.engine = built.inputs.engine
                done = compile_runs(read, [built], self.tree / BUILT)
                self._take(row, done)
            row.seconds = round(time.monotonic() - began, 2)

    def _take(self, row: Row, done: CompiledBuild) -> None:
        if done.errors is not None:
            row.outcome = "refused"
            row.reasons = [(f"lint {one.code}", one.message) for one in done.errors.diagnostics]
        elif done.has_problems:
            row.outcome = "internal" if done.broken else "refused"
            row.reasons = [
                (problem.failure.kind if problem.failure is not None else problem.key, problem.message)
                for problem in done.built[0].problems
            ]
        else:
            write(done.emitted)
            row.outcome = "built"
            (emitted,) = done.emitted
            row.launcher = emitted.plan.launcher
            self.plans[row.run] = emitted.plan, done.built[0].inputs.moved
            self.specified[row.run] = done.built[0].source

    def _compare(self) -> None:
        """Every built run with a launch line against that line."""
        if not self.plans:
            return
        scripts = (self.tree / BUILT).glob(f"*/{LAUNCH}")
        files = Files(
            {os.path.realpath(one): one.read_text(encoding="utf-8").replace(ANY_WORDS, "") for one in scripts}
        )
        emitted = find_runs([self.tree / BUILT], files, root=self.tree)[0]
        read = {run.launch_file.path.parent.name: run for run in emitted if run.launch_file and run.launch_file.path}
        lines = {_place(run, self.tree): run for run in self.found}
        for name, (plan, moved) in self.plans.items():
            row = self.rows_by_run[name]
            source = lines.get(row.launch)
            if source is not None and row.answered:
                source = _with_answers(source, self.specified[name])
            if source is None:
                continue
            row.compared = True
            if name not in read:
                row.differences = [Difference("launch.sh", row.launch, "no run is found in it")]
                continue
            row.differences = differences(plan, moved, source, read[name])


def _with_answers(source: Run, specified: Run) -> Run:
    """The run of a launch line with the configs that the owner answered with, where nobody can tell the line's own."""
    consumer = specified.consumer
    route: Route = "engine" if consumer == "deepspeed" else "accelerate" if consumer == "accelerate" else "trainer"
    if specified.accelerate is not None and source.accelerate is None:
        source = replace(source, accelerate=specified.accelerate)
        route = "accelerate"
    if specified.deepspeed is not None and source.deepspeed is None:
        source = replace(source, deepspeed=specified.deepspeed, deepspeed_route=route)
    return source


def _hash(draft: Draft) -> str:
    words = f"{Path(str(draft.value('script'))).name} {draft.started or draft.value('recipe')}"
    return hashlib.sha256(words.encode()).hexdigest()[:12]


def _by_lint(row: Row) -> bool:
    return all(kind.startswith("lint") for kind, _ in row.reasons)


def _place(run: Run, tree: Path) -> str:
    assert run.launch is not None
    file = run.launch_file
    if file is None or file.path is None:
        return ""
    path = file.path.resolve()
    name = path.relative_to(tree).as_posix() if path.is_relative_to(tree) else file.name
    return f"{name}:{file.source.place(run.launch.span.start).line}"


@contextlib.contextmanager
def _limited(row: Row, seconds: int = SECONDS) -> Iterator[None]:
    """What is raised inside becomes the outcome, and so does taking too long."""

    def late(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    except TimeoutError:
        row.outcome = "timeout"
        row.reasons = [("timeout", f"more than {seconds} s")]
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        row.outcome = "crash"
        row.reasons = [(type(error).__name__, f"{error} ({Path(frame.filename).name}:{frame.lineno})")]
    finally:
        signal.alarm(0)
