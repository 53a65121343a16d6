"""pytest with ``--tier``: what of the tests that run training libraries is run, and what is kept of it.

``--tier quick``: a rule's claim is judged by what was seen when it was last played, as long as nothing that it depends
on has changed; other tests that run the libraries are left out for as long. A few claims, others with each commit, are
played nevertheless.
``--tier all``: everything is run, and it fails where the ledger says something else of the same inputs.
``--tier rest``: what the quick tier leaves out with the same ledger: both together are everything, each test once.
Without ``--tier`` pytest runs what it is asked for, and neither reads nor writes the ledger.

Only what passed is ever written, at the end, by the one process that hears of all tests; in CI nothing is.
"""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from .entries import Ledger, LedgerError, Passed, Played, digest, read, write
from .inputs import Tree, hashed
from .libraries import Watch

FILE = "tests/ledger.jsonl"
DRAWN = 6
"""Claims that are played in every run of the quick tier although nothing changed."""

RERUNS = 1
"""Of a failed test that runs the libraries: its processes share few processors with those of other tests, and a run of
an hour is not to end for one that was starved. A rerun is counted in the summary; what is wrong fails twice."""

State = Literal["unchanged", "missing", "stale", "other"]
"""Of an entry, beside what was seen: as written, not there, of another key, or of the same key with other values."""
GONE, FAILED, SKIPPED = "of tests that are gone", "of tests that failed", "of other skips"
SERIOUS = "other"
"""The difference between ledger and run that fails it: something else was seen of the same inputs, so what the quick
tier believes is not true. Entries that are missing or stale only make that tier run more."""


@dataclass
class Tier:
    """What a run goes by: the entries as they were at its start. ``left_out``: tests that did not run."""

    name: str
    root: Path
    ledger: Ledger
    drawn: frozenset[str]
    left_out: int = 0
    tree: Tree = field(init=False)

    def __post_init__(self) -> None:
        self.tree = Tree(self.root)

    def recorded(self, proof: str, key: str) -> Played | None:
        """The entry by which a claim is judged; None when it is played."""
        entry = self.ledger.proofs.get(proof)
        trusted = self.name == "quick" and proof not in self.drawn
        return entry if trusted and entry is not None and entry.key == key else None

    def unchanged(self, module: str) -> Passed | None:
        """The entry of a module that still holds."""
        entry = self.ledger.modules.get(module)
        return entry if entry is not None and entry.key == self.tree.key(module) else None


TIER = pytest.StashKey[Tier]()
SEEN = pytest.StashKey[dict[str, Any]]()
"""Of a proof: its entry, with its state."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=("quick", "all", "rest"), help="which tests that run training libraries are run")


def pytest_configure(config: pytest.Config) -> None:
    name = config.getoption("tier")
    if name is None:
        return
    if any("::" in word for word in config.args) or config.getoption("lf", False):
        raise pytest.UsageError("--tier is of whole modules; to run single tests leave it out")
    try:
        ledger = read(config.rootpath / FILE)
        words = ("git", "rev-parse", "HEAD")
        lot = subprocess.run(words, cwd=config.rootpath, capture_output=True, text=True, check=True).stdout
    except LedgerError as error:
        raise pytest.UsageError(str(error)) from None
    except (OSError, subprocess.CalledProcessError) as error:
        raise pytest.UsageError(f"--tier needs a git checkout: {error}") from None
    tier = Tier(name, config.rootpath, ledger, ledger.drawn(lot, DRAWN))
    config.stash[TIER] = tier
    config.pluginmanager.register(Choice(tier))
    worker = getattr(config, "workerinput", {}).get("workerid", "main")
    notes = config.rootpath / ".cache" / f"libraries-{os.getpid()}-{worker}"
    notes.parent.mkdir(exist_ok=True)
    config.pluginmanager.register(Watch(notes))
    if worker == "main":
        config.pluginmanager.register(Record(tier, config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """``--dist loadgroup``, and where a test names no group, its module is one: module fixtures are made once."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class ByGroupOrModule(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            scope: str = super()._split_scope(nodeid)
            return nodeid.partition("::")[0] if scope == nodeid else scope

    config.option.loadscopereorder = False  # the order of the collection: what takes long comes first
    return ByGroupOrModule(config, log)


def module_of(item: pytest.Item) -> str:
    module = item.getparent(pytest.Module)
    return module.nodeid if module is not None else item.nodeid.partition("::")[0]


def name_of(item: pytest.Item) -> str:
    """Within its module. Not out of the node's id, to which pytest-xdist adds the group."""
    chain = item.listchain()
    return "::".join(node.name for node in chain[[isinstance(node, pytest.Module) for node in chain].index(True) + 1 :])


def ordinary(item: pytest.Item) -> bool:
    """A test that runs the libraries and is left out as long as nothing changed."""
    marks = {mark.name for mark in item.iter_markers()}
    return "libs" in marks and not marks & {"proof", "main_job"}


DRAWN_GROUP = "drawn"
"""Of pytest-xdist, for the claims that are played in every run."""


def turn(item: pytest.Item, slow: set[str]) -> int:
    """What takes long comes first, and the many short proofs last, so that all workers end at the same time. ``slow``:
    modules with tests that run the libraries."""
    if item.get_closest_marker("main_job") is not None:
        return 0
    if any(DRAWN_GROUP in mark.args for mark in item.iter_markers("xdist_group")):
        return 1
    if item.get_closest_marker("proof") is not None:
        return 4
    return 2 if module_of(item) in slow else 3


class Choice:
    """In each process that runs tests."""

    def __init__(self, tier: Tier) -> None:
        self.tier = tier
        self.modules: dict[str, Passed] = {}
        """What would be written of a module, should all of its tests pass."""

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """A module with nothing to run is not even imported: that alone may import the libraries."""
        if not collection_path.is_relative_to(self.tier.root) or config.option.keyword or config.option.markexpr:
            return None
        module = collection_path.relative_to(self.tier.root).as_posix()
        if self.tier.name != "quick" or not self._ignored(module):
            return None
        self.tier.left_out += self.tier.ledger.modules[module].count
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, object, object]:
        by_module: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            by_module[module_of(item)].append(item)
        for module, all_of_it in by_module.items():
            names = sorted(name_of(item) for item in all_of_it if ordinary(item))
            if names:
                whole = len(names) == len(all_of_it)
                self.modules[module] = Passed(module, self.tier.tree.key(module), digest(names), len(names), (), whole)
        result = yield
        left_out = {item for item in items if self._is_left_out(item)}
        if self.tier.name == "quick":
            self.tier.left_out += len(left_out)
        if left_out:
            config.hook.pytest_deselected(items=[*left_out])
        kept = [item for item in items if item not in left_out]
        slow = {module_of(item) for item in kept if item.get_closest_marker("libs") is not None}
        items[:] = sorted(kept, key=lambda item: turn(item, slow))
        for item in kept:
            if ordinary(item):
                item.add_marker(pytest.mark.flaky(reruns=RERUNS))
        return result

    def _is_left_out(self, item: pytest.Item) -> bool:
        if self.tier.name == "rest":
            # All claims are played: the quick tier judges most of them by the ledger.
            return item.get_closest_marker("proof") is None and not (
                ordinary(item) and (self._ignored(module_of(item)) or self._known(item))
            )
        return self.tier.name == "quick" and ordinary(item) and self._known(item)

    def _ignored(self, module: str) -> bool:
        """Whether the quick tier does not even import a module, so that it never sees which tests there are."""
        entry = self.tier.unchanged(module)
        return entry is not None and entry.whole and not entry.skipped

    def _known(self, item: pytest.Item) -> bool:
        module = module_of(item)
        entry = self.tier.unchanged(module)
        return entry is not None and entry.tests == self.modules[module].tests and name_of(item) not in entry.skipped

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        report = yield
        if SEEN in item.stash:
            report.ledger = {"played": item.stash[SEEN]}
        elif ordinary(item):
            entry = vars(self.modules[module_of(item)])
            report.ledger = {"passed": {**entry, "skipped": []}, "test": name_of(item)}
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["left_out"] = self.tier.left_out


class Record:
    """In the process that hears of all tests."""

    def __init__(self, tier: Tier, config: pytest.Config) -> None:
        self.tier = tier
        self.config = config
        self.played: dict[str, tuple[Played, State] | None] = {}
        """By claim; None for one that failed."""
        self.entries: dict[str, Passed] = {}
        self.outcomes: dict[str, dict[str, str]] = defaultdict(dict)
        """By module and test: the worst of its phases."""
        self.differences: dict[str, list[str]] = {}
        self.said: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})
        self.tier.left_out = max(self.tier.left_out, output.get("left_out", 0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = getattr(report, "ledger", {}) if report.outcome != "rerun" else {}
        if "played" in told:
            seen = dict(told["played"])
            state, entry = seen.pop("state"), Played(**seen)
            if report.failed:
                self.played[entry.proof] = None
            else:
                self.played.setdefault(entry.proof, (entry, state))
        elif "passed" in told:
            module = Passed(**{**told["passed"], "skipped": ()})
            self.entries[module.module] = module
            outcomes = self.outcomes[module.module]
            before = outcomes.get(told["test"], "passed")
            outcomes[told["test"]] = max(before, report.outcome, key=("passed", "skipped", "failed").index)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not session.shouldfail
        after, differences = self.merged(complete=ended and is_everything(self.config))
        self.differences = {state: names for state, names in differences.items() if names}
        path = self.tier.root / FILE
        in_ci = bool(os.environ.get("CI"))
        if after != self.tier.ledger and not in_ci:
            write(after, path)
        serious = SERIOUS in self.differences
        for state, names in self.differences.items():
            self.said.append(f"{FILE}, {state}: {shortened(sorted(names))}")
        if self.differences:
            counts = ", ".join(f"{len(names)} {state}" for state, names in self.differences.items())
            done = "run the tests and commit it" if in_ci else "commit it"
            fails = ". This run fails for it" if serious else ""
            self.said.append(f"{FILE} was not up to date ({counts}): {done}{fails}")
        if serious and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def merged(self, complete: bool) -> tuple[Ledger, dict[str, list[str]]]:
        """The entries after this run, and the names of those that are not as they were, by state; ``complete``: the run
        would have met every entry that still has a test."""
        after = Ledger(dict(self.tier.ledger.proofs), dict(self.tier.ledger.modules))
        differences: dict[str, list[str]] = defaultdict(list)
        for proof, seen in self.played.items():
            if seen is None:
                if after.proofs.pop(proof, None):
                    differences[FAILED].append(proof)
            elif seen[1] != "unchanged":
                after.put(seen[0])
                differences[seen[1]].append(proof)
        hashed.cache_clear()
        tree = Tree(self.tier.root)
        for module, outcomes in self.outcomes.items():
            old, entry = self.tier.ledger.modules.get(module), self.entries[module]
            passed = {name for name, outcome in outcomes.items() if outcome == "passed"}
            if "failed" in outcomes.values():
                if after.modules.pop(module, None):
                    differences[FAILED].append(module)
            elif old is not None and (old.key, old.tests) == (entry.key, entry.tests):
                if passed & set(old.skipped):
                    differences[SKIPPED].append(module)
                    after.put(replace(old, skipped=tuple(name for name in old.skipped if name not in passed)))
            elif digest(sorted(outcomes)) == entry.tests and tree.key(module) == entry.key:
                # else some of its tests were not asked for, or a file was changed meanwhile
                differences["missing" if old is None else "stale"].append(module)
                after.put(replace(entry, skipped=tuple(sorted(set(outcomes) - passed))))
        if complete:
            for proof in set(self.tier.ledger.proofs) - set(self.played):
                differences[GONE].append(proof)
                after.proofs.pop(proof)
            for module in set(self.tier.ledger.modules) - set(self.outcomes):
                differences[GONE].append(module)
                after.modules.pop(module)
        return after, differences

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.tier.left_out:
            number = f"{self.tier.left_out} tests that run training libraries"
            terminalreporter.write_line(f"{number}: unchanged since they passed; make test-all runs them")
        for text in self.said:
            terminalreporter.write_line(text)


def shortened(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:8])} and {len(names) - 8} more"


def is_everything(config: pytest.Config) -> bool:
    """The full tier, nothing left out by the command line."""
    narrowed = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob")
    asked_all = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return config.getoption("tier") == "all" and asked_all and not any(config.getoption(name) for name in narrowed)
