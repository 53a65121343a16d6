"""The committed file of what was run: one line of JSON an entry, sorted, each line sealed. Knows nothing of pytest.

Two kinds of entries. `Played`: the claim of a rule about one example, with what was seen when it was played. `Passed`:
the tests of one module that run training libraries, all of which passed. The key of either is a digest of all that it
depends on: an entry speaks of the present only as long as its key is that of the present.

The seal refuses a line that was edited by hand. It keeps nobody from making a new one; that is what judging a claim by
what is recorded, playing some entries in every run, and playing all of them in the full run are for.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LENGTH = 16
"""Hexadecimal digits of a digest: 64 bits, so that among some thousand keys no two fall together."""


class LedgerError(Exception):
    """The file cannot be trusted; says which line, and what to do."""


def digest(value: Any) -> str:
    """Of a value that JSON can hold, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:LENGTH]


@dataclass(frozen=True)
class Played:
    """``proof``: rule, number of the example and side, "ZC103-1 bad". ``seen``: see `tests/proofs/recorded.py`."""

    proof: str
    key: str
    seen: dict[str, Any]


@dataclass(frozen=True)
class Passed:
    """``tests``: digest of the sorted names of the module's tests that run training libraries; ``count`` is their
    number. ``skipped``: those of them that were skipped, by name. ``whole``: the module has no other tests."""

    module: str
    key: str
    tests: str
    count: int
    skipped: tuple[str, ...] = ()
    whole: bool = False


Entry = Played | Passed


@dataclass
class Ledger:
    proofs: dict[str, Played] = field(default_factory=dict)
    modules: dict[str, Passed] = field(default_factory=dict)

    def put(self, entry: Entry) -> None:
        if isinstance(entry, Played):
            self.proofs[entry.proof] = entry
        else:
            self.modules[entry.module] = entry

    def text(self) -> str:
        entries: list[Entry] = [*self.modules.values(), *self.proofs.values()]
        return "".join(f"{line(entry)}\n" for entry in sorted(entries, key=_place))

    def drawn(self, lot: str, number: int) -> frozenset[str]:
        """The ids of ``number`` claims, chosen by ``lot``: others with each commit, the same for all who have it."""
        return frozenset(sorted(self.proofs, key=lambda proof: digest([lot, self.proofs[proof].key]))[:number])


def _place(entry: Entry) -> tuple[bool, str]:
    return (True, entry.proof) if isinstance(entry, Played) else (False, entry.module)


def line(entry: Entry) -> str:
    content: dict[str, Any] = dict(vars(entry))
    return json.dumps({**content, "seal": digest(content)}, ensure_ascii=False)


def parsed(text: str) -> Entry:
    """An entry out of its line; ValueError with the reason where the line is not as `line` writes it."""
    content = json.loads(text)
    if not isinstance(content, dict) or content.pop("seal", None) != digest(content):
        raise ValueError("its seal does not fit, so it was edited by hand")
    try:
        if "proof" in content:
            return Played(**content)
        return Passed(**{**content, "skipped": tuple(content["skipped"])})
    except (KeyError, TypeError) as error:
        raise ValueError(f"it is of another form: {error}") from None


def read(path: Path) -> Ledger:
    """The entries of a file; none where it does not exist."""
    ledger = Ledger()
    if path.exists():
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                ledger.put(parsed(text))
            except ValueError as error:
                what = f"{path.name}, line {number}: {error}"
                raise LedgerError(
                    f"{what}. Delete the line, and what it spoke of is run again.\n  {text[:160]}"
                ) from None
    return ledger


def write(ledger: Ledger, path: Path) -> None:
    """Whole or not at all, whatever ends this process."""
    own = path.with_name(f".{path.name}.{os.getpid()}")
    own.write_text(ledger.text(), encoding="utf-8")
    own.replace(path)
