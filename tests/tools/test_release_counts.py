"""The kept counts of comparisons with releases: the page says what the data say, of releases that are known, and no
disagreement was kept."""

from __future__ import annotations

from tests.parity import counts
from tests.parity.released import Compared, of_library
from zerocfg.catalog.history import histories


def test_the_page_is_made_of_the_data() -> None:
    assert counts.PAGE.read_text(encoding="utf-8") == counts.page(counts.read())


def test_nothing_that_disagrees_is_kept() -> None:
    kept = counts.read()
    assert kept
    for library, of in kept.items():
        assert set(of) <= {one.version for one in of_library(library, ["all"])}
        assert {version: row for version, row in of.items() if row["disagreements"] or not row["cases"]} == {}


def test_releases_of_a_library() -> None:
    assert [one.version for one in of_library("deepspeed", ["0.16.9", "0.14.5"])] == ["0.14.5", "0.16.9"]
    assert [one.version for one in of_library("trl", ["all"])] == histories("trl").names


def test_a_case_that_differs_twice_is_one_disagreement() -> None:
    found = Compared(3, 0, 1, [("one thing", ("text", 2)), ("another", ("text", 2)), ("one thing", ("other", 2))])
    assert found.failed == 2
