"""Which test runs which line, and how long each test takes: recorded once for a state of the code, then kept."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """What these tests run of these files. Kept for each file of tests: after an edit of tests only the edited ones are
    recorded again, after an edit of the code all.

    ``forget`` is called before each test: a test that takes its answer from a cache depends on the lines that made it.
    """
    by_file: dict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        by_file[item.path].append(item)
    shared = _shared_key(root, files)
    kept = {path: root / KEPT / f"{_key(shared, path, tests)}.json" for path, tests in by_file.items()}
    unknown = [item for path, tests in by_file.items() if not kept[path].is_file() for item in tests]
    if unknown:
        _forget_old(root / KEPT)
        for path, recorded in _record(unknown, root, files, forget, jobs).items():
            kept[path].with_suffix(".new").write_text(json.dumps(recorded), encoding="utf-8")
            kept[path].with_suffix(".new").replace(kept[path])
    return _together(json.loads(path.read_text(encoding="utf-8")) for path in kept.values())


def _together(records: Iterable[dict[str, Any]]) -> Reach:
    seconds: dict[str, float] = {}
    broken: list[str] = []
    lines: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        seconds |= record["seconds"]
        broken += record["broken"]
        names = list(record["seconds"])
        for file, by_line in record["lines"].items():
            for line, tests in by_line.items():
                lines[file][int(line)] += [names[at] for at in tests]
    return Reach(seconds, lines, tuple(sorted(broken)))


def _forget_old(folder: Path) -> None:
    """Removes records that were made more than three days ago."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        if time.time() - old.stat().st_mtime > 3 * 24 * 3600:
            old.unlink(missing_ok=True)


def _shared_key(root: Path, files: Sequence[str]) -> bytes:
    """A hash of what decides for every test which lines it runs: the code, and what tests have in common."""
    key = hashlib.sha256(json.dumps([coverage.__version__, sorted(files)]).encode())
    common = (path for path in (root / "tests").rglob("*.py") if not _is_tests(path) and "mutants" not in path.parts)
    for path in sorted([*(root / "zerocfg").rglob("*.py"), *(root / "schemas").rglob("*.json"), *common]):
        key.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return key.digest()


def _is_tests(path: Path) -> bool:
    return path.name.startswith("test_")


def _key(shared: bytes, path: Path, tests: Sequence[pytest.Item]) -> str:
    names = json.dumps([test.nodeid for test in tests]).encode()
    return hashlib.sha256(shared + names + path.read_bytes()).hexdigest()[:24]


def _record(
    items: Sequence[pytest.Item], root: Path, files: Sequence[str], forget: Callable[[], None], jobs: int
) -> dict[Path, dict[str, Any]]:
    """Runs every test once, in processes of their own: this one stays as it was, its caches cold. By file of tests."""
    parts = [items[at::jobs] for at in range(jobs)]
    answers = forks.each(parts, lambda part: _watched(part, root, files, forget), jobs)
    seconds: dict[str, float] = {}
    broken: set[str] = set()
    lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for _, answer in answers:
        if answer.value is None:
            raise RuntimeError(f"the tests do not run through: {answer.ended}")
        seconds |= answer.value["seconds"]
        broken |= set(answer.value["broken"])
        for file, by_line in answer.value["lines"].items():
            for line, tests in by_line.items():
                lines[file][int(line)].update(tests)
    by_file: dict[Path, list[str]] = defaultdict(list)
    for item in items:
        by_file[item.path].append(item.nodeid)
    return {path: _of_these(names, seconds, broken, lines) for path, names in by_file.items()}


def _of_these(
    names: Sequence[str], seconds: Mapping[str, float], broken: set[str], lines: Mapping[str, Mapping[int, set[str]]]
) -> dict[str, Any]:
    """The part of a record that is about some tests; of each line the numbers of its tests in ``seconds``."""
    number = {name: at for at, name in enumerate(name for name in names if name in seconds)}
    return {
        "seconds": {name: seconds[name] for name in number},
        "broken": sorted(broken & set(names)),
        "lines": {
            file: {
                line: sorted(map(number.__getitem__, mine))
                for line, tests in by_line.items()
                if (mine := tests & number.keys())
            }
            for file, by_line in lines.items()
        },
    }


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
