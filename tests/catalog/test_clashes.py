"""Releases that do not go together, against the releases that are installed: what is said of all newer ones is seen on
these."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import ROOT
from zerocfg.catalog.clashes import ANY, Clash, Pair, clash, clashing
from zerocfg.catalog.versions import TOP, bounds

DATA: dict[str, Any] = json.loads((ROOT / "schemas/releases/clashes.json").read_text())
EVERY = [
    (library, other, since, clauses, *stop)
    for library, others in DATA["pairs"].items()
    for other, rows in others.items()
    for since, stops in rows.items()
    for clauses, stop in stops.items()
]
TRAINER: Pair = ("transformers", "accelerate")


def asked(pair: Pair, first: str, second: str) -> Clash | None:
    limits = [bounds(clauses) if clauses else ANY for clauses in (first, second)]
    assert limits[0] is not None and limits[1] is not None
    return clash(pair, limits[0], limits[1])


@pytest.mark.parametrize("pair", clashing())
def test_rows_go_upwards_and_end_with_a_release_that_goes_with_the_newest(pair: Pair) -> None:
    rows = clashing()[pair]
    assert [row.high for row in rows[:-1]] == [row.low for row in rows[1:]] and rows[-1].high == TOP
    assert asked(pair, "", "") is None
    for row in rows:
        assert all(before.high <= after.low for before, after in zip(row.stops, row.stops[1:], strict=False))


@pytest.mark.parametrize(
    ("first", "second", "certain"),
    [
        ("==4.31.0", "==1.0.0", None),
        ("==4.32.0", "==1.0.0", True),
        ("==4.39.3", "==1.15.0", True),
        ("==4.40.0", "==1.15.0", None),
        ("==4.39.3", "==0.34.2", None),
        ("==4.39.3", "", False),
        ("==4.39.3", ">=0.34", False),
        ("==4.39.3", ">=1.0", True),
        ("==4.39.3", "<1.0", None),
        (">=4.36,<4.40", ">=1.0", True),
        (">=4.36,<4.41", ">=1.0", None),  # an installer takes 4.40
        (">=4.30,<4.40", ">=1.0", False),
        (">=4.20,<4.40", ">=1.0", False),
        ("<4.40", "==1.2.0", False),
        ("==4.33.0,!=4.33.1", "~=1.0", True),
    ],
)
def test_ranges(first: str, second: str, certain: bool | None) -> None:
    found = asked(TRAINER, first, second)
    assert (found.certain if found is not None else None) is certain
    if found is not None:
        assert (found.needs, found.or_else) == ("<1.0.0", ">=4.40.0")
        assert (found.stop.phase, found.stop.said.partition(":")[0]) == ("Trainer()", "TypeError")


def test_both_sides_of_a_stop() -> None:
    old = asked(("peft", "transformers"), "==0.17.1", "==5.0.0")
    new = asked(("peft", "transformers"), "==0.18.0", "==4.37.2")
    assert old is not None and (old.needs, old.or_else) == ("<5.0.0", ">=0.18.0")
    assert new is not None and new.needs == ">=4.43.0" and new.or_else.startswith("<0.")


def open_ended() -> list[tuple[str, str, str]]:
    """The packages and the words of what stops with every newer release of the second, at a name of that one."""
    open_rows = [(pair[0], pair[1], said) for *pair, _, clauses, _, said in EVERY if "<" not in clauses]
    return sorted({row for row in open_rows if f"from '{row[0]}'" not in row[2]})


@pytest.mark.libs
@pytest.mark.parametrize(("library", "other", "said"), open_ended())
def test_the_newest_says_so(library: str, other: str, said: str) -> None:
    pytest.importorskip(other.replace("-", "_"))
    if name := re.search(r"cannot import name '(\w+)' from '([\w.]+)'", said):
        line = f"from {name[2]} import {name[1]}"
    elif name := re.search(r"module '(\w+)' has no attribute '(\w+)'", said):
        line = f"import {name[1]}; {name[1]}.{name[2]}"
    else:
        keyword = re.search(r"Accelerator.__init__\(\) got an unexpected keyword argument '(\w+)'", said)
        assert keyword is not None, said
        line = f"from accelerate import Accelerator; Accelerator({keyword[1]}=None)"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and said in re.sub(r" \(/\S*\)", "", done.stderr)


@pytest.mark.libs
def test_what_is_installed_goes_together() -> None:
    for pair in clashing():
        try:
            both = [f"=={importlib.metadata.version(package).partition('+')[0]}" for package in pair]
        except importlib.metadata.PackageNotFoundError:
            continue
        assert asked(pair, *both) is None
