"""The tiers from end to end, in a checkout with a small product, its tests and stand-ins for the libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

from .entries import read
from .inputs import LIBRARIES, hashed
from .plugin import FILE

PRODUCT = "zerocfg/product.py"
MODULE = "tests/test_real.py"
PREAMBLE = """
import os, pathlib, pytest, subprocess, sys
ROOT = pathlib.Path(__file__).parent.parent
def ran(what):
    with (ROOT / "ran.log").open("a") as file:
        file.write(what + "\\n")
def product():
    return (ROOT / "zerocfg" / "product.py").read_text()
"""
REAL = """
pytestmark = pytest.mark.libs
ran("import")
@pytest.mark.parametrize("n", [1, 2])
def test_real(n):
    ran(f"real {n}")
    assert product() != f"wrong {n}"
"""
PLAIN = """
def test_plain():
    ran("plain")
@pytest.mark.libs
def test_mixed():
    ran("mixed")
@pytest.mark.libs
@pytest.mark.main_job
def test_main():
    ran("main")
"""
PROOF = """
from tests.ledger.plugin import SEEN, TIER
@pytest.mark.libs
@pytest.mark.proof
@pytest.mark.parametrize("at", [1, 2])
def test_proof(at, request):
    claim, tier = f"ZC900-{at} bad", request.config.stash.get(TIER, None)
    known = tier.recorded(claim, "k") if tier else None
    old = tier.ledger.proofs.get(claim) if tier else None
    seen = known.seen if known else {"reached": product()}
    state = "missing" if old is None else "unchanged" if old.seen == seen else "other"
    ran(f"judged {at}" if known else f"played {at}")
    request.node.stash[SEEN] = {"proof": claim, "key": "k", "seen": seen, "state": state}
    assert seen["reached"] != "wrong"
"""
INI = """
[pytest]
testpaths = tests
markers =
    libs
    proof
    main_job
"""


class Checkout:
    """``run`` gives the exit code and the output; ``ran`` what the tests did since it was last asked."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.write("pytest.ini", INI)
        self.write(".gitignore", "ran.log\n.cache\n__pycache__\n.pytest_cache\n")
        self.write(PRODUCT, "right")
        self.write(MODULE, PREAMBLE + REAL)
        self.write("tests/test_plain.py", PREAMBLE + PLAIN)
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
            self.git(*words)

    def git(self, *words: str) -> None:
        name = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *name, *words], cwd=self.path, check=True)

    def write(self, name: str, text: str) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, *words: str) -> tuple[int, str]:
        hashed.cache_clear()
        result = self.pytester.runpytest_inprocess("-p", "tests.ledger.plugin", "-p", "no:cacheprovider", *words)
        return int(result.ret), result.stdout.str() + result.stderr.str()

    def ran(self) -> list[str]:
        log = self.path / "ran.log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return sorted(lines)

    @property
    def ledger(self) -> Path:
        return self.path / FILE

    def modules(self) -> dict[str, int]:
        return {name: entry.count for name, entry in read(self.ledger).modules.items()}


EVERY = ["import", "main", "mixed", "plain", "real 1", "real 2"]
NOTHING_REAL = ["main", "plain"]


@pytest.fixture
def checkout(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    for name in ("ZEROCFG_LIBRARIES", "ZEROCFG_LIBRARIES_NOTED"):  # the runs of these tests have their own
        monkeypatch.delenv(name, raising=False)
    return Checkout(pytester)


@pytest.fixture
def known(checkout: Checkout) -> Checkout:
    """Everything has passed and is recorded."""
    assert checkout.run("--tier", "quick")[0] == 0
    checkout.ran()
    return checkout


def test_what_passed_is_run_again_when_something_changed(checkout: Checkout) -> None:
    code, said = checkout.run("--tier", "quick")
    assert (code, checkout.ran()) == (0, EVERY)
    assert f"{FILE} was not up to date (2 missing): commit it" in said
    assert checkout.modules() == {MODULE: 2, "tests/test_plain.py": 1}
    before = checkout.ledger.read_bytes()
    code, said = checkout.run("--tier", "quick")
    assert (code, checkout.ran()) == (0, NOTHING_REAL), "a module that has nothing to run is not even imported"
    assert "3 tests that run training libraries: unchanged since they passed; make test-all runs them" in said
    assert FILE not in said and checkout.ledger.read_bytes() == before
    checkout.write(PRODUCT, "also right")
    assert (checkout.run("--tier", "quick")[0], checkout.ran()) == (0, EVERY)
    assert (checkout.run("--tier", "quick")[0], checkout.ran()) == (0, NOTHING_REAL)


def test_a_failure_takes_the_entry_away(known: Checkout) -> None:
    known.write(PRODUCT, "wrong 2")
    for _ in range(2):
        assert known.run("--tier", "quick")[0] == 1
        assert {"real 1", "real 2"} <= set(known.ran())
        assert known.modules() == {"tests/test_plain.py": 1}
    known.write(PRODUCT, "right")
    assert known.run("--tier", "quick")[0] == 0
    assert {"real 1", "real 2"} <= set(known.ran())


def test_what_was_starved_once_is_run_again(known: Checkout) -> None:
    """And passes only if it passes then; a test without the mark has no second run."""
    once = "\n@pytest.mark.libs\ndef test_once():\n    ran('once')\n    log = (ROOT / 'ran.log').read_text()\n"
    known.write(MODULE, PREAMBLE + REAL + once + "    assert log.count('once') == 2\n")
    code, said = known.run("--tier", "quick")
    assert (code, known.ran().count("once")) == (0, 2) and "1 rerun" in said
    assert known.modules()[MODULE] == 3
    known.write("tests/test_plain.py", PREAMBLE + "\ndef test_wrong():\n    ran('wrong')\n    assert False\n")
    assert (known.run("--tier", "quick")[0], known.ran()) == (1, ["wrong"])


def test_the_full_tier_runs_everything_and_says_where_the_ledger_differs(known: Checkout) -> None:
    assert (known.run("--tier", "all")[0], known.ran()) == (0, EVERY)
    before = known.ledger.read_bytes()
    known.write(PRODUCT, "also right")
    code, said = known.run("--tier", "all")
    assert (code, known.ran()) == (0, EVERY)
    assert f"{FILE}, stale: tests/test_plain.py, {MODULE}" in said
    assert known.ledger.read_bytes() != before
    assert known.run("--tier", "all")[0] == 0


def test_entries_of_tests_that_are_gone(known: Checkout) -> None:
    (known.path / MODULE).unlink()
    assert known.run("--tier", "quick")[0] == 0
    assert MODULE in known.modules(), "the quick tier does not look for them"
    assert known.run("--tier", "all", "tests/test_plain.py")[0] == 0
    assert MODULE in known.modules(), "a part of the tests says nothing of the others"
    code, said = known.run("--tier", "all")
    assert code == 0 and f"{FILE}, of tests that are gone: {MODULE}" in said
    assert MODULE not in known.modules()


def test_in_ci_nothing_is_written(known: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    known.write(PRODUCT, "also right")
    before = known.ledger.read_bytes()
    for tier in ("quick", "all"):
        found, said = known.run("--tier", tier)
        assert (found, known.ran()) == (0, EVERY)
        assert f"{FILE} was not up to date (2 stale): run the tests and commit it" in said
    assert known.ledger.read_bytes() == before


@pytest.mark.parametrize(
    ("product", "quick", "rest"),
    [
        ("right", NOTHING_REAL, ["import", "mixed", "real 1", "real 2"]),
        ("also right", EVERY, ["import"]),  # the import of a module is no test
    ],
)
def test_the_rest_is_what_the_quick_tier_left_out(
    product: str, quick: list[str], rest: list[str], known: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together they run each test once, as long as nothing is written into the ledger between them."""
    monkeypatch.setenv("CI", "true")
    known.write(PRODUCT, product)
    assert (known.run("--tier", "quick")[0], known.ran()) == (0, quick)
    code, said = known.run("--tier", "rest")
    assert (code, known.ran()) == (0 if len(rest) > 1 else pytest.ExitCode.NO_TESTS_COLLECTED, rest)
    assert "unchanged since they passed" not in said


def test_the_rest_has_every_proof(known: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    known.write("tests/test_proofs.py", PREAMBLE + PROOF)
    assert known.run("--tier", "quick")[0] == 0
    known.ran()
    monkeypatch.setenv("CI", "true")
    assert known.run("--tier", "rest")[0] == 0
    assert {"played 1", "played 2"} <= set(known.ran())
    known.write(PRODUCT, "other")  # the claim's key stays, in this small checkout
    code, said = known.run("--tier", "rest")
    assert code == 1 and f"{FILE}, other: ZC900-1 bad, ZC900-2 bad" in said


def test_an_edited_line_ends_the_run(known: Checkout) -> None:
    text = known.ledger.read_text()
    known.ledger.write_text(text.replace('"count": 2', '"count": 3'))
    code, said = known.run("--tier", "quick")
    assert (code, known.ran()) == (pytest.ExitCode.USAGE_ERROR, [])
    assert "ledger.jsonl, line 2: its seal does not fit, so it was edited by hand. Delete the line" in said
    assert known.run()[0] == 0, "without a tier the ledger is not read"


def test_without_a_tier_everything_asked_for_runs_and_nothing_is_kept(checkout: Checkout) -> None:
    assert (checkout.run()[0], checkout.ran()) == (0, EVERY)
    assert (checkout.run(f"{MODULE}::test_real[2]")[0], checkout.ran()) == (0, ["import", "real 2"])
    assert not checkout.ledger.exists()


def test_a_part_of_a_module_is_never_taken_for_the_whole(checkout: Checkout) -> None:
    assert checkout.run("--tier", "quick", "-k", "real and 2")[0] == 0
    assert checkout.modules() == {} if checkout.ledger.exists() else True
    code, said = checkout.run("--tier", "quick", f"{MODULE}::test_real[2]")
    assert code == pytest.ExitCode.USAGE_ERROR and "leave it out" in said
    assert checkout.run("--tier", "quick", MODULE)[0] == 0
    assert checkout.modules() == {MODULE: 2}


def test_a_skipped_test_is_asked_again(checkout: Checkout) -> None:
    skips = PREAMBLE + REAL + "    if not (ROOT / 'able').exists() and n == 2: pytest.skip('not here')\n"
    checkout.write(MODULE, skips)
    assert checkout.run("--tier", "quick", MODULE)[0] == 0
    assert read(checkout.ledger).modules[MODULE].skipped == ("test_real[2]",)
    checkout.ran()
    assert (checkout.run("--tier", "quick", MODULE)[0], checkout.ran()) == (0, ["import", "real 2"])
    checkout.write("able", "")
    assert (checkout.run("--tier", "quick", MODULE)[0], checkout.ran()) == (0, ["import", "real 2"])
    assert read(checkout.ledger).modules[MODULE].skipped == ()
    assert (checkout.run("--tier", "quick")[0], checkout.ran()) == (0, ["main", "mixed", "plain"])
    (checkout.path / "able").unlink()
    assert checkout.run("--tier", "all")[0] == 0, "what passed elsewhere and is skipped here is no difference"


def test_proofs_are_judged_by_what_was_seen_or_played(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout.write("tests/test_proofs.py", PREAMBLE + PROOF)
    checkout.git("add", ".")
    checkout.git("commit", "-qm", "proofs")
    only = ("--tier", "quick", "tests/test_proofs.py")
    assert (checkout.run(*only)[0], checkout.ran()) == (0, ["played 1", "played 2"])
    assert sorted(read(checkout.ledger).proofs) == ["ZC900-1 bad", "ZC900-2 bad"]
    assert (checkout.run(*only)[0], checkout.ran()) == (0, ["played 1", "played 2"]), "both are drawn"
    monkeypatch.setattr("tests.ledger.plugin.DRAWN", 0)
    assert (checkout.run(*only)[0], checkout.ran()) == (0, ["judged 1", "judged 2"])
    checkout.write(PRODUCT, "something else")
    assert checkout.run(*only)[0] == 0, "what the tests believe as long as they do not play"
    monkeypatch.setattr("tests.ledger.plugin.DRAWN", 1)
    code, said = checkout.run(*only)
    assert code == 1 and f"{FILE}, other: ZC900-" in said, "one is drawn, and seen to be another"
    code, said = checkout.run("--tier", "all", "tests/test_proofs.py")
    assert code == 1 and f"{FILE}, other: ZC900-" in said
    assert checkout.run("--tier", "all", "tests/test_proofs.py")[0] == 0
    checkout.write(PRODUCT, "wrong")
    assert checkout.run("--tier", "all", "tests/test_proofs.py")[0] == 1
    assert read(checkout.ledger).proofs == {}


IMPORTS = """
def test_here():
    import trl
def test_in_what_it_starts():
    subprocess.run([sys.executable, "-c", "import transformers.models"], check=True)
def test_only_asks():
    asks = "import importlib.util as u; print(u.find_spec('torch'))"
    subprocess.run([sys.executable, "-c", asks], check=True)
@pytest.mark.libs
def test_marked():
    import accelerate
    subprocess.run([sys.executable, "-c", "import transformers"], check=True)
"""


def test_a_test_that_runs_a_library_unmarked_fails(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "deepspeed", "accelerate", "transformers/models", "trl"):
        checkout.write(f"libraries/{name}/__init__.py", "")
    checkout.write("libraries/transformers/__init__.py", "")
    checkout.write("tests/test_imports.py", PREAMBLE + IMPORTS)
    monkeypatch.setenv("PYTHONPATH", str(checkout.path / "libraries"))
    monkeypatch.syspath_prepend(checkout.path / "libraries")
    for name in LIBRARIES:  # this process may have the real ones already
        monkeypatch.delitem(sys.modules, name, raising=False)
    code, said = checkout.run("--tier", "quick", "-rE", "tests/test_imports.py")
    assert code == 1 and "4 passed, 2 errors" in said
    assert "runs a training library, so mark it libs: trl" in said
    assert "runs a training library, so mark it libs: transformers in " in said
    assert os.environ["PYTHONPATH"] == str(checkout.path / "libraries")
    checkout.write("tests/test_imports.py", f"import deepspeed\n{PREAMBLE}{IMPORTS}")
    code, said = checkout.run("--tier", "quick", "tests/test_imports.py")
    assert code != 0 and "imports deepspeed for test_here, which is not marked libs" in said


FIXTURES = """
@pytest.fixture(scope="module")
def made():
    ran("made {name}")
@pytest.mark.parametrize("n", range(8))
def test_it(made, n):
    ran("used {name}")
"""


@pytest.mark.parametrize("words", [[], ["tests/a", "tests/b"]])
def test_fixtures_of_a_module_are_made_once_over_all_workers(
    checkout: Checkout, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"tests/{folder}/test_{folder}{at}.py" for folder in "ab" for at in range(3)]
    for name in names:
        checkout.write(name, PREAMBLE.replace("parent.parent", "parents[2]") + FIXTURES.replace("{name}", name))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    result = checkout.pytester.runpytest_subprocess(
        *("-p", "tests.ledger.plugin", "--tier", "quick", "-n", "3", "--dist", "loadgroup", *words)
    )
    assert result.ret == 0
    ran = [line for line in checkout.ran() if line.startswith(("made", "used"))]
    assert ran == sorted([f"made {name}" for name in names] + [f"used {name}" for name in names for _ in range(8)])
    if not words:
        assert checkout.modules() == {MODULE: 2, "tests/test_plain.py": 1}
