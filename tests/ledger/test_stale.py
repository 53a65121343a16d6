"""``python -m tests.ledger`` names the entries that were written for other files, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proofs import test_proofs
from tests.proofs.judging import key_of

from .__main__ import stale_claims, stale_modules
from .entries import Ledger, Passed, Played
from .inputs import Tree, hashed
from .test_inputs import MODULE, checkout

__all__ = ["checkout"]  # a fixture


def _with_modules(*modules: Passed) -> Ledger:
    return Ledger(modules={item.module: item for item in modules})


def test_a_module_is_stale_once_a_file_behind_it_changed(checkout: Path) -> None:
    ledger = _with_modules(Passed(MODULE, Tree(checkout).key(MODULE), "of its tests", 1))
    assert stale_modules(ledger, Tree(checkout)) == []
    (checkout / "zerocfg/rules/api.py").write_text("# no file that the smoke tests depend on\n")
    hashed.cache_clear()
    assert stale_modules(ledger, Tree(checkout)) == []
    (checkout / "tests/smoke/recorded.json").write_text("[]")
    hashed.cache_clear()
    assert stale_modules(ledger, Tree(checkout)) == [MODULE]


def test_a_module_that_is_gone_is_stale(checkout: Path) -> None:
    gone = "tests/smoke/test_gone.py"
    assert stale_modules(_with_modules(Passed(gone, Tree(checkout).key(gone), "of its tests", 1)), Tree(checkout)) == [
        gone
    ]


def test_claims_are_stale_when_new_changed_or_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_proofs, "EXAMPLES", {"bad": ["ZC103-1"], "fixed": ["ZC101-1"]})
    bad = Played("ZC103-1 bad", key_of(test_proofs.claim_of("ZC103-1", "bad", tmp_path)), {})
    (tmp_path / "fixed").mkdir()
    fixed = Played("ZC101-1 fixed", key_of(test_proofs.claim_of("ZC101-1", "fixed", tmp_path / "fixed")), {})
    assert stale_claims(Ledger({item.proof: item for item in (bad, fixed)})) == []
    assert stale_claims(Ledger({bad.proof: bad})) == ["ZC101-1 fixed"]
    other = Played(fixed.proof, bad.key, {})
    assert stale_claims(Ledger({item.proof: item for item in (bad, other)})) == ["ZC101-1 fixed"]
    gone = Played("ZC103-9 bad", bad.key, {})
    assert stale_claims(Ledger({item.proof: item for item in (bad, fixed, gone)})) == ["ZC103-9 bad"]
