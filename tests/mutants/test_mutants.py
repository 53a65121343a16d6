"""The mutation run itself, on a small project: what must die, what must live, and what stays as it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from . import equivalent, forks, swap
from .faults import SEVERITY, Module, faults_of

CODE = """
from functools import cache

LIMIT = 3
WORDS: "dict[str, Unknown]" = {"three": 3}


class Step:
    def __init__(self, *, size: int) -> None:
        self.size = size


STEP = Step(size=2)


def stepped(n: int) -> int:
    return n + STEP.size


def many(n: int) -> bool:
    if n < 0:
        return False
    return n > LIMIT


@cache
def doubled(n: int) -> int:
    return 2 * n


def above(limit: int) -> int:
    n = 0
    while n <= limit:
        n += 1
    return n


def unseen(n: int) -> int:
    if not n:
        raise ValueError("must not be 0")
    return n


def made(n: int) -> int:
    return helped(n) + 1


def helped(n: int) -> int:
    return n + 7


SEVEN = made(6)


def sorted_down(numbers: "list[int]") -> "list[int]":
    kept = list(numbers)
    kept.append(0)
    kept.append(0)
    kept.remove(0)
    return sorted(kept, reverse=True)


def told(n: int) -> str:
    "Not shown: 1 < 2."
    return f"{n + 1} of them" if n else "none of them"
"""

LATE = """
def late(n: int) -> bool:
    return n > 5
"""

TESTS = """
from small.numbers import above, doubled, many, sorted_down, stepped, told

doubled(4)


def test_many():
    assert many(4) and not many(3)


def test_stepped():
    assert stepped(1)


def test_doubled():
    assert doubled(4) == 8


def test_above():
    assert above(2) == 3


def test_told():
    assert told(2)


def test_sorted_down():
    assert sorted_down([1, 2]) == [2, 1, 0]


def test_late():
    from small.late import late

    assert late(6) and not late(5)
"""

RUN = """
import json
from pathlib import Path
from tests.mutants.session import Session, Wanted

root = Path.cwd()
session = Session(Wanted(root, {"small": sorted((root / "small").glob("[ln]*.py"))}, ("checks",), sample=None, jobs=2))
session.run()
seen = {f"{one.fault.where}: {one.fault.change}": one.by or one.ended or "-" for one in session.outcomes}
Path("seen.json").write_text(json.dumps(seen))
"""


MORE_TESTS = """
from small import numbers


def test_words():
    assert numbers.WORDS == {"three": 3}
"""
EDITED = MORE_TESTS + "    assert numbers.unseen(5) == 5\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def seen(project: Path, root: Path) -> dict[str, str]:
    """Who noticed each fault of the small project ("-": nobody). Its files are as they were."""
    folder = project
    files = {"small/__init__.py": "", "small/numbers.py": CODE, "small/late.py": LATE, "checks/test_numbers.py": TESTS}
    files |= {"checks/test_more.py": MORE_TESTS}
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    found = played(folder, root)
    assert {name: (folder / name).read_text() for name in files} == files
    return found


def played(folder: Path, root: Path) -> dict[str, str]:
    path = os.pathsep.join([str(folder), str(root)])
    subprocess.run(
        [sys.executable, "-c", RUN], cwd=folder, env=os.environ | {"PYTHONPATH": path}, check=True, capture_output=True
    )
    found: dict[str, str] = json.loads((folder / "seen.json").read_text())
    return found


def test_an_edit_of_tests_records_only_their_file_anew(seen: dict[str, str], project: Path, root: Path) -> None:
    def records() -> set[str]:
        return {path.name for path in (project / ".cache/mutants").glob("*.json")}

    before = records()
    assert len(before) == 2, "one for each file of tests"
    edited = project / "checks/test_more.py"
    edited.write_text(EDITED)
    try:
        assert played(project, root)["unseen: return n -> 0"] == "checks/test_more.py::test_words"
        assert before < records() and len(records()) == 3
    finally:
        edited.write_text(MORE_TESTS)


def test_a_fault_is_noticed_by_the_test_that_runs_it(seen: dict[str, str]) -> None:
    assert seen["many: n > LIMIT -> n >= LIMIT"] == "checks/test_numbers.py::test_many"
    assert seen["many: return if n < 0 -> always"] == "checks/test_numbers.py::test_many"
    assert seen["LIMIT: 3 -> 4"] == "checks/test_numbers.py::test_many", "a constant, seen where it is read"


def test_a_call_is_not_made_and_an_argument_not_passed(seen: dict[str, str]) -> None:
    for change in ("kept.append(0) -> none", "kept.append(0) -> none #2", "kept.remove(0) -> none"):
        assert seen[f"sorted_down: {change}"] == "checks/test_numbers.py::test_sorted_down"
    assert seen["sorted_down: sorted(..., reverse=True) -> none"] == "checks/test_numbers.py::test_sorted_down"


def test_a_module_that_is_imported_by_a_test_alone(seen: dict[str, str]) -> None:
    """As commands import theirs: a fault that is looked for before would be put nowhere."""
    assert seen["late: n > 5 -> n >= 5"] == "checks/test_numbers.py::test_late"


def test_a_fault_survives_where_no_test_looks(seen: dict[str, str]) -> None:
    assert seen["many: return if n < 0 -> never"] == "-", "no test has a negative number"
    assert seen["unseen: return n -> 0"] == "-", "no test runs it"
    assert seen["told: n + 1 -> n - 1"] == "-", "the test does not look at the figure"


def test_what_only_a_module_that_is_loaded_calls_has_no_faults(seen: dict[str, str]) -> None:
    assert not [name for name in seen if name.startswith(("made", "helped"))], "put in too late to change anything"


def test_a_cache_hides_no_fault(seen: dict[str, str]) -> None:
    assert seen["doubled: 2 * n -> 2 / n"] == "checks/test_numbers.py::test_doubled", (
        "filled by the import of the tests"
    )


def test_a_constant_that_cannot_be_made_is_noticed_by_the_import(seen: dict[str, str]) -> None:
    assert seen["STEP: Step(..., size=2) -> none"] == "the import of small/numbers.py"
    assert seen["STEP: 2 -> 3"] == "-", "the module is imported, and its test does not look at the figure"


def test_an_endless_loop_ends(seen: dict[str, str]) -> None:
    assert seen["above: n += 1 -> n -= 1"] == "the time limit"


def test_texts_docstrings_and_unused_constants_have_no_faults(seen: dict[str, str]) -> None:
    assert {name for name in seen if name.startswith(("told", "unseen", "WORDS"))} == {
        "told: n + 1 -> n - 1",
        "told: 1 -> 2",
        "told: return f'{n + 1} of them' if n else 'none of them' -> ''",
        "unseen: raise if not n -> never",
        "unseen: raise if not n -> always",
        "unseen: return n -> 0",
    }


def test_the_severity_that_a_rule_declares_is_a_fault(root: Path) -> None:
    module = Module.read(root, root / "zerocfg/rules/zero/stages.py")
    faults = [one for one in faults_of(module) if one.decorator and one.where == "stage_auto"]
    assert [(one.kind, one.change) for one in faults] == [
        (SEVERITY, "Severity.ERROR -> Severity.WARNING"),
        (SEVERITY, "Severity.ERROR -> Severity.NOTE"),
    ]
    live = swap.Live.here([])

    def severity(at: int) -> str:
        swap.put(faults[at], module, live)
        said: str = swap.loaded_module(module).stage_auto.severity.value
        return said

    assert {at: answer.value for at, answer in forks.each([0, 1], severity, 2)} == {0: "warning", 1: "note"}
    assert swap.loaded_module(module).stage_auto.severity.value == "error", "here it is what it was"


def test_a_fault_ends_no_process_but_its_own() -> None:
    """Whatever it makes of the function that ends processes: those of others go on."""

    def sent(process: int) -> str:
        try:
            os.kill(process, signal.SIGKILL)
        except OSError as error:
            return type(error).__name__
        return "sent"

    def tried(_: int) -> dict[str, str]:
        own = subprocess.Popen(["sleep", "60"], start_new_session=True)
        shell = ["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"]
        orphan = int(subprocess.run(shell, capture_output=True, check=True, start_new_session=True).stdout)
        found = {"other": sent(other.pid), "everybody": sent(-1), "own": sent(own.pid), "orphan": sent(orphan)}
        return found | {"ended": str(own.wait()), "gone": sent(own.pid)}

    with subprocess.Popen(["sleep", "60"]) as other:
        ((_, answer),) = forks.each([0], tried, 1)
        assert other.poll() is None
        other.kill()
    assert answer.value == {
        "other": "PermissionError",
        "everybody": "PermissionError",
        "own": "sent",
        "orphan": "sent",
        "ended": str(-signal.SIGKILL),
        "gone": "ProcessLookupError",
    }, answer.ended


def test_every_equivalent_fault_is_one_that_exists(root: Path) -> None:
    """The code moved on? Then take the entry off the list, or write its change as it is now."""
    known = equivalent.listed()
    names = {where.partition("::")[0] for where, _ in known}
    there = {(one.place, one.change) for name in names for one in faults_of(Module.read(root, root / name))}
    assert set(known) <= there
