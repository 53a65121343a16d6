"""Shared by all tests: where the corpus of real configs is, when there is one."""

from __future__ import annotations

import csv
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests import warm

pytest_plugins = ["pytester", "tests.ledger.plugin", "tests.skips", "tests.traces"]

ROOT = Path(__file__).resolve().parent.parent
OPERATORS = ROOT / ".cache" / "torch_extensions"
"""Where the operators that DeepSpeed compiles are kept; `operators.py` fills it."""


# Bytecode is kept, whatever the environment says: without it each of the many processes that tests start compiles the
# whole package again, and pytest every test.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("steady", derandomize=True)
settings.register_profile("random", print_blob=True)
# A test run finds the same each time; `make parity` tries other values every night.
if "ZEROCFG_RANDOM" in os.environ:
    settings.load_profile("random")
else:
    settings.load_profile("steady")
    # Hypothesis also draws from the constants of all modules that are imported by then, so that what a process ran
    # before would decide the values, whatever the seed.
    providers._get_local_constants = Constants


def corpus_folder() -> Path | None:
    """The folder of real config files: $ZEROCFG_CORPUS, or shared/corpus beside the checkout; None when absent."""
    named = os.environ.get("ZEROCFG_CORPUS")
    folder = Path(named) if named else ROOT.parent / "shared" / "corpus"
    return folder if (folder / "INDEX.tsv").is_file() else None


def texts_of_corpus(*kinds: str) -> list[str]:
    """The texts of its files whose kind begins with one of these words; none where it is absent."""
    folder = corpus_folder()
    if folder is None:
        return []
    with (folder / "INDEX.tsv").open(encoding="utf-8", newline="") as index:
        rows = [row for row in csv.DictReader(index, delimiter="\t") if row["kind"].startswith(kinds)]
    paths = [folder / row["repo"].replace("/", "__") / row["path"] for row in rows]
    return [path.read_text(encoding="utf-8", errors="replace") for path in paths]


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real config files; the test is skipped with a message where it is absent."""
    folder = corpus_folder()
    if folder is None:
        pytest.skip("no corpus of real configs here (set ZEROCFG_CORPUS)")
    return folder


@pytest.fixture
def warm_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is started by ``sys.executable``, also by zerocfg, has imported the libraries before (see tests/warm)."""
    monkeypatch.setattr(sys, "executable", warm.python())


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


def take_own_ninja() -> None:
    """The ninja of this environment for whatever is compiled: another release builds everything anew."""
    own, folder = Path(sys.executable).parent / "ninja", ROOT / ".cache" / "ninja"
    if own.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ninja").unlink(missing_ok=True)
        (folder / "ninja").symlink_to(own)
        os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def pytest_configure(config: pytest.Config) -> None:
    """Compiled DeepSpeed operators in a folder of this checkout, cleared of the locks that a killed run left behind.

    torch waits for ever for a lock whose maker was killed, in this run or in some other program long ago.
    """
    if hasattr(config, "workerinput"):
        return
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(OPERATORS))
    take_own_ninja()
    from zerocfg.smoke.launch import operator_locks

    for lock in OPERATORS.glob("**/lock"):
        # Another session that uses this folder may be compiling: torch fails when its lock is gone at the end.
        if operator_locks.abandoned(lock) or not operator_locks.PROC.is_dir():
            lock.unlink(missing_ok=True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of which every test needs the training libraries import them: without those tests, they are not read."""
    if config.option.markexpr != "not libs" or not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text(encoding="utf-8") if collection_path.suffix == ".py" else ""
    return True if re.search(r"^pytestmark = .*pytest\.mark\.libs", text, re.M) else None


COUNT = "count:"
"""Prefix of the test properties that the summary adds up, over all pytest-xdist workers."""


@pytest.fixture
def count(record_property: Callable[[str, object], None]) -> Callable[[str, int], None]:
    """``count("triples compared", 300)``: shown, added up, at the end of the test run."""
    return lambda what, number: record_property(f"{COUNT}{what}", number)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how much was compared with the real libraries, not only how many tests passed."""
    totals: dict[str, int] = {}
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name.startswith(COUNT):
                totals[name.removeprefix(COUNT)] = totals.get(name.removeprefix(COUNT), 0) + int(value)
    for what, number in sorted(totals.items()):
        terminalreporter.write_line(f"{number} {what}")
