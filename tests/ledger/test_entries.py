"""The file: entries come back as they were written, and a line that somebody edited is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import ROOT

from .entries import Ledger, LedgerError, Passed, Played, digest, line, read, write
from .plugin import FILE

PLAYED = Played(
    "ZC103-1 bad", "k1", {"reached": "init", "values": {"engine.stage": 3, "inner.lr": 0.1}, "log": "größer"}
)
PASSED = Passed("tests/smoke/test_runs.py", "k2", "d", 13, ("test_a[x]", "test_b"), True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    ledger = Ledger()
    for entry in (PLAYED, PASSED, Played("ZC010-1 good", "k3", {"reached": None})):
        ledger.put(entry)
    write(ledger, tmp_path / "ledger.jsonl")
    return tmp_path / "ledger.jsonl"


def test_entries_come_back_as_written(file: Path) -> None:
    ledger = read(file)
    assert (ledger.proofs["ZC103-1 bad"], ledger.modules["tests/smoke/test_runs.py"]) == (PLAYED, PASSED)
    assert ledger.text() == file.read_text(encoding="utf-8")
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_one_sorted_line_of_json_an_entry(file: Path) -> None:
    lines = [json.loads(text) for text in file.read_text(encoding="utf-8").splitlines()]
    ids = [one.get("proof") or one["module"] for one in lines]
    assert ids == ["tests/smoke/test_runs.py", "ZC010-1 good", "ZC103-1 bad"]


def test_no_file_is_an_empty_ledger(tmp_path: Path) -> None:
    assert read(tmp_path / "none.jsonl") == Ledger()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"engine.stage": 3', '"engine.stage": 2'),
        ('"key": "k1"', '"key": "k9"'),
        ("ZC103-1 bad", "ZC103-1 good"),
        ('"count": 13', '"count": 14'),
        ('"test_b"', ""),
        ('"log": "größer"', '"log": "kleiner"'),
    ],
)
def test_an_edited_line_is_refused(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(LedgerError, match=r"ledger\.jsonl, line \d: .*Delete the line"):
        read(file)


@pytest.mark.parametrize(
    "text", ["<<<<<<< HEAD", "[1]", "{}", '{"proof": "ZC103-1 bad"}', json.dumps({"x": 1, "seal": digest({"x": 1})})]
)
def test_what_is_no_entry_is_refused(file: Path, text: str) -> None:
    file.write_text(f"{file.read_text(encoding='utf-8')}{text}\n", encoding="utf-8")
    with pytest.raises(LedgerError, match="line 4"):
        read(file)


def test_the_lot_draws_others_with_each_commit_and_the_same_for_one() -> None:
    ledger = Ledger()
    for at in range(200):
        ledger.put(Played(f"ZC{at:03}-1 bad", digest(at), {}))
    draws = [ledger.drawn(lot, 6) for lot in ("one", "another", "one")]
    assert draws[0] == draws[2] != draws[1]
    assert {len(draw) for draw in draws} == {6}
    assert len(frozenset().union(*(ledger.drawn(str(lot), 6) for lot in range(200)))) > 190
    assert Ledger().drawn("one", 6) == frozenset()


def test_the_seal_is_of_the_whole_line() -> None:
    content = json.loads(line(PLAYED))
    seal = content.pop("seal")
    assert seal == digest(content)
    assert all(digest({**content, name: "x"}) != seal for name in content)


def test_the_committed_file_is_as_it_was_written() -> None:
    path = ROOT / FILE
    assert read(path).text() == (path.read_text(encoding="utf-8") if path.exists() else "")
