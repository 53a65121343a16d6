"""Which test runs which line, and how long each test takes: recorded once for a state of code and tests, then kept."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import coverage
import pytest
from _pytest.runner import runtestprotocol

from . import forks

KEPT = Path(".cache/mutants")


@dataclass(frozen=True)
class Reach:
    """``seconds``: CPU seconds of each test that passes, and of the programs it starts. ``lines``: by file (from the
    root) and line, its tests. ``broken``: tests that fail without any fault; they say nothing."""

    seconds: dict[str, float]
    lines: dict[str, dict[int, list[str]]]
    broken: tuple[str, ...] = ()

    def is_run(self, file: str, lines: range) -> bool:
        """Whether a test runs one of these lines."""
        by_line = self.lines.get(file, {})
        return any(by_line.get(line) for line in lines)

    def tests(self, places: Iterable[tuple[str, range]], around: Iterable[tuple[str, range]] = ()) -> list[str]:
        """The tests that run one of these lines, the most telling first: that run many lines ``around`` in little
        time. Of each test function one set of parameters goes before the second of any: thousands are much alike."""
        seeing = {test for file, lines in places for line in lines for test in self.lines.get(file, {}).get(line, ())}
        deep: dict[str, int] = defaultdict(int)
        for file, lines in around:
            for line in lines:
                for test in self.lines.get(file, {}).get(line, ()):
                    deep[test] += 1
        telling = sorted(seeing, key=lambda test: (self.seconds[test] / (1 + deep[test]) ** 2, test))
        turns: Counter[str] = Counter()
        turn: dict[str, int] = {}
        for test in telling:
            function = test.partition("[")[0]
            turn[test] = turns[function]
            turns[function] += 1
        return sorted(telling, key=lambda test: turn[test])


def within(tests: Sequence[str], reach: Reach, budget: float) -> list[str]:
    """As many of these as fit into ``budget`` CPU seconds, in their order."""
    chosen, spent = [], 0.0
    for test in tests:
        if spent + reach.seconds[test] <= budget:
            chosen.append(test)
            spent += reach.seconds[test]
    return chosen


def of(items: Sequence[pytest.Item], root: Path, files: Sequence[str], forget: Callable[[], None], jobs: int) -> Reach:
    """What these tests run of these files; from an earlier run over the same bytes where there was one.

    ``forget`` is called before each test: a test that takes its answer from a cache depends on the lines that made it.
    """
    kept = root / KEPT / f"{_key(items, root, files)}.json"
    if not kept.is_file():
        found = _record(items, root, files, forget, jobs)
        kept.parent.mkdir(parents=True, exist_ok=True)
        for old in sorted(kept.parent.glob("*.json"), key=lambda path: path.stat().st_mtime)[:-10]:
            old.unlink(missing_ok=True)
        kept.with_suffix(".new").write_text(json.dumps(found), encoding="utf-8")
        kept.with_suffix(".new").replace(kept)
    found = json.loads(kept.read_text(encoding="utf-8"))
    names = list(found["seconds"])
    lines = {
        file: {int(line): [names[at] for at in tests] for line, tests in by_line.items()}
        for file, by_line in found["lines"].items()
    }
    return Reach(found["seconds"], lines, tuple(found["broken"]))


def _key(items: Sequence[pytest.Item], root: Path, files: Sequence[str]) -> str:
    """A hash of all that decides which lines the tests run."""
    key = hashlib.sha256(json.dumps([coverage.__version__, sorted(files), [item.nodeid for item in items]]).encode())
    watched = [*(root / "zerocfg").rglob("*.py"), *(root / "schemas").rglob("*.json"), *(root / "tests").rglob("*.py")]
    for path in sorted(watched):
        if "mutants" not in path.parts:
            key.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return key.hexdigest()[:24]


def _record(
    items: Sequence[pytest.Item], root: Path, files: Sequence[str], forget: Callable[[], None], jobs: int
) -> dict[str, object]:
    """Runs every test once, in processes of their own: this one stays as it was, its caches cold."""
    parts = [items[at::jobs] for at in range(jobs)]
    answers = forks.each(parts, lambda part: _watched(part, root, files, forget), jobs)
    seconds: dict[str, float] = {}
    broken: list[str] = []
    lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for _, answer in answers:
        if answer.value is None:
            raise RuntimeError(f"the tests do not run through: {answer.ended}")
        seconds |= answer.value["seconds"]
        broken += answer.value["broken"]
        for file, by_line in answer.value["lines"].items():
            for line, tests in by_line.items():
                lines[file][int(line)].update(tests)
    order = {name: at for at, name in enumerate(seconds)}
    numbered = {
        file: {line: sorted(order[test] for test in tests if test in order) for line, tests in sorted(by_line.items())}
        for file, by_line in sorted(lines.items())
    }
    return {"seconds": seconds, "broken": sorted(broken), "lines": numbered}


def _watched(
    items: Sequence[pytest.Item], root: Path, files: Sequence[str], forget: Callable[[], None]
) -> dict[str, object]:
    """Runs in a process of its own."""
    watch = coverage.Coverage(data_file=None, include=[str(root / file) for file in files], config_file=False)
    seconds: dict[str, float] = {}
    broken: list[str] = []
    watch.start()
    for at, item in enumerate(items):
        forget()
        watch.switch_context(str(at))
        before = _spent()
        reports = runtestprotocol(item, nextitem=items[at + 1] if at + 1 < len(items) else None, log=False)
        if any(report.failed for report in reports):
            broken.append(item.nodeid)
        elif any(report.passed for report in reports if report.when == "call"):
            seconds[item.nodeid] = round(_spent() - before, 4)
    watch.stop()
    data = watch.get_data()
    lines = {
        os.path.relpath(file, root).replace(os.sep, "/"): {
            line: [items[int(at)].nodeid for at in contexts if at]
            for line, contexts in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    return {"seconds": seconds, "broken": broken, "lines": lines}


def _spent() -> float:
    """CPU seconds of this process and of those that it waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
