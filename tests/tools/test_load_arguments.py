"""What was played of `from_pretrained` becomes the first release that refuses a keyword, and the lax classes."""

from __future__ import annotations

from tools.facts.load_arguments import Played, removed, takes_any


def seen(version: str, taken: str, attributes: str = "", **lax: str) -> tuple[str, Played]:
    known = {name: types.split() for name, types in lax.items()}
    return version, {"taken": taken.split(), "attributes": attributes.split(), "lax": known}


def test_the_first_release_that_refuses() -> None:
    played = [seen("4.36.2", "a b c"), seen("4.57.6", "a b"), seen("5.0.0", "a"), seen("5.23.0", "a d")]
    assert removed(played) == {"b": "5.0", "c": "4.57"}


def test_what_is_taken_again_is_not_removed() -> None:
    assert removed([seen("5.14.1", "a b"), seen("5.15.1", "a"), seen("5.16.1", "a b")]) == {}
    assert removed([seen("5.14.1", "a"), seen("5.15.1", ""), seen("5.16.1", "a"), seen("5.17.0", "")]) == {"a": "5.17"}


def test_an_attribute_of_a_config_is_not_removed() -> None:
    assert removed([seen("4.57.6", "a b", attributes="b"), seen("5.0.0", "")]) == {"a": "5.0"}


def test_classes_from_the_first_refusal_on() -> None:
    played = [seen("4.36.2", "a", Auto="x"), seen("5.0.0", "", Auto="y", Own=""), seen("5.1.0", "", Auto="z")]
    assert takes_any(played, "5.0.0") == {"Auto": ["y", "z"], "Own": []}
