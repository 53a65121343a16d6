"""The edges of TRL's names: what is played becomes the first release that lets a name through again."""

from __future__ import annotations

from tools.facts.trl_names import edges


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def test_a_name_that_the_newer_side_stops() -> None:
    played = [
        ("0.9.6", names("A B C"), names("A")),
        ("0.10.1", names("A B"), names("A B")),
        ("0.11.4", names("A B C"), names("A B")),
        ("0.12.2", names("A B C"), names("A B C")),
    ]
    assert edges(played) == {"B": "0.10", "C": "0.12"}


def test_a_name_that_neither_side_lets_through_says_nothing() -> None:
    assert edges([("0.9.6", names("A"), names("A")), ("0.10.1", names("A"), names("A"))]) == {}
