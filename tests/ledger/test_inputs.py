"""The key of a module's tests changes with what they are declared or found to depend on, and with nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

from . import inputs
from .inputs import EVERYTHING, INPUTS, Tree, declared, hashed

MODULE = "tests/smoke/test_runs.py"
FILES = {
    MODULE: "import os\nfrom tests.proofs import harness\n\ndef test_a():\n    from .sets import SETS\n",
    "tests/smoke/sets.py": "SETS = 1\n",
    "tests/smoke/recorded.json": "{}",
    "tests/smoke/test_other.py": "",
    "tests/conftest.py": "",
    "tests/operators.py": "",
    "tests/proofs/__init__.py": "",
    "tests/proofs/harness.py": "START = 'zygote.py'\n",
    "tests/proofs/zygote.py": "",
    "tests/proofs/test_proofs.py": "",
    "tests/ledger/plugin.py": "",
    "tests/page/page.py": "",
    "zerocfg/smoke/smoke.py": "",
    "zerocfg/rules/api.py": "",
    ".gitignore": "*.log\n",
}
BEHIND = {
    MODULE,
    "tests/smoke/sets.py",
    "tests/smoke/recorded.json",
    "tests/conftest.py",
    "tests/proofs/__init__.py",
    "tests/proofs/harness.py",
    "tests/proofs/zygote.py",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def key(checkout: Path) -> str:
    hashed.cache_clear()
    inputs._tree.cache_clear()
    return Tree(checkout).key(MODULE)


def test_what_is_behind_a_module(checkout: Path) -> None:
    """Helpers and data beside it and beside what it imports, down to scripts that nobody imports; no other tests."""
    assert Tree(checkout).tests_behind(MODULE) == BEHIND


@pytest.mark.parametrize("name", [*sorted(BEHIND), "zerocfg/smoke/smoke.py"])
def test_a_change_of_it_is_another_key(checkout: Path, name: str) -> None:
    before = key(checkout)
    (checkout / name).write_text(f"{FILES[name]}\n")
    assert key(checkout) != before


def test_new_data_is_another_key(checkout: Path) -> None:
    before = key(checkout)
    (checkout / "tests" / "smoke" / "more.json").write_text("{}")
    assert key(checkout) != before


@pytest.mark.parametrize(
    "name", ["tests/smoke/test_other.py", "tests/page/page.py", "zerocfg/rules/api.py", "tests/ledger/plugin.py"]
)
def test_a_change_of_what_is_not_is_none(checkout: Path, name: str) -> None:
    before = key(checkout)
    (checkout / name).write_text("x = 1\n")
    (checkout / "tests" / "smoke" / "ignored.log").write_text("")
    assert key(checkout) == before


def test_another_release_is_another_key(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key(checkout)
    monkeypatch.setattr(inputs, "releases", lambda: {**RELEASES, "deepspeed": "0.19.9"})
    assert key(checkout) != before


RELEASES = inputs.releases()


def test_the_build_of_a_release_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs.importlib.metadata, "version", lambda name: f"{len(name)}.1+cpu")
    assert inputs.releases.__wrapped__() == {name: f"{len(name)}.1" for name in inputs.LIBRARIES}


def test_a_library_that_is_not_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "LIBRARIES", ("zerocfg-has-no-such-library",))
    assert inputs.releases.__wrapped__() == {"zerocfg-has-no-such-library": None}


def test_the_longest_declared_name_counts() -> None:
    assert declared("tests/smoke/test_runs.py") == INPUTS["tests/smoke"]
    assert declared("tests/smoke/test_examples.py") == INPUTS["tests/smoke/test_examples.py"]
    assert declared("tests/smokes/test_a.py") == EVERYTHING


def test_what_is_declared_is_there() -> None:
    tree = Tree(ROOT)
    for name in {*INPUTS, *EVERYTHING, *(part for parts in INPUTS.values() for part in parts)}:
        assert tree.below(name), name
