"""How libraries read values: each way on both sides of what it takes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from zerocfg.catalog.suggest import closest
from zerocfg.catalog.values import RefusedError, as_bool, as_float, as_int, env_bool, kind_of, show, yaml_number


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (True, 1),
        (-3, -3),
        (2.0, 2),
        (float(2**62), 2**62),
        (2.0**63 - 1024, 2**63 - 1024),
        ("12", 12),
        (" -1_000 ", -1000),
        ("+5.00", 5),
    ],
)
def test_whole_numbers(value: Any, number: int) -> None:
    assert as_int(value) == number and type(as_int(value)) is int


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (1.5, "has a fractional part where a whole number is needed"),
        (math.inf, "is not a finite number"),
        (math.nan, "is not a finite number"),
        (2.0**63, "is too large for an integer"),
        (-(2.0**63), "is too large for an integer"),
        pytest.param(1 << 4300, "is too large for an integer", id="large"),
        pytest.param(-(1 << 4300), "is too large for an integer", id="small"),
        pytest.param("1" * 4301, "is too large for an integer", id="digits"),
        ("5e8", "is a string that is not a whole number"),
        ("1.5", "is a string that is not a whole number"),
        ("1__0", "is a string that is not a whole number"),
        (None, "is null, not a whole number"),
        ([1], "is a list, not a whole number"),
    ],
)
def test_what_is_no_whole_number(value: Any, why: str) -> None:
    with pytest.raises(RefusedError) as refused:
        as_int(value)
    assert str(refused.value) == why


def test_the_largest_integer_that_is_read() -> None:
    assert as_int((1 << 4300) - 1) == (1 << 4300) - 1
    assert as_int("1" * 4300) == (10**4300 - 1) // 9


@pytest.mark.parametrize(
    ("value", "number"),
    [(True, 1.0), (2, 2.0), ("5e8", 5e8), ("1_000.5", 1000.5), (".5", 0.5), ("5.", 5.0), ("-inf", -math.inf)],
)
def test_numbers(value: Any, number: float) -> None:
    assert as_float(value) == number and type(as_float(value)) is float


def test_nan_is_a_number_by_name() -> None:
    assert math.isnan(as_float(" NaN ")) and as_float("+Infinity") == math.inf


@pytest.mark.parametrize(
    ("value", "why"),
    [
        pytest.param(10**400, "is too large for a number", id="large"),
        ("one", "is a string that is not a number"),
        ("1e", "is a string that is not a number"),
        ({}, "is a mapping, not a number"),
    ],
)
def test_what_is_no_number(value: Any, why: str) -> None:
    with pytest.raises(RefusedError) as refused:
        as_float(value)
    assert str(refused.value) == why


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("7e9", 7e9),
        ("1_0", 10.0),
        ("7e9x", "7e9x"),
        ("1" * 40, float("1" * 40)),
        ("1" * 41, "1" * 41),
        (7, 7),
        (None, None),
    ],
)
def test_texts_that_look_like_numbers(value: Any, read: Any) -> None:
    assert yaml_number(value) == read and type(yaml_number(value)) is type(read)


@pytest.mark.parametrize(
    ("value", "truth"),
    [(True, True), (False, False), (1, True), (0, False), (1.0, True), (0.0, False)]
    + [(word, True) for word in ("1", "on", "T", "True", "y", "YES")]
    + [(word, False) for word in ("0", "off", "F", "False", "n", "NO")],
)
def test_truth(value: Any, truth: bool) -> None:
    assert as_bool(value) is truth
    if isinstance(value, str):
        assert env_bool(value) is truth


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (2, "is a number, neither true nor false"),
        (0.5, "is a number, neither true nor false"),
        ("2", "is a string that is neither true nor false"),
        ("", "is a string that is neither true nor false"),
        (None, "is null, neither true nor false"),
        ([], "is a list, neither true nor false"),
    ],
)
def test_what_is_neither_true_nor_false(value: Any, why: str) -> None:
    with pytest.raises(RefusedError) as refused:
        as_bool(value)
    assert str(refused.value) == why
    if isinstance(value, str):
        with pytest.raises(RefusedError, match=r"^is neither true nor false$"):
            env_bool(value)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "null"),
        (False, "false"),
        ("", "a string"),
        ({}, "a mapping"),
        ([], "a list"),
        ((), "a list"),
        (1, "a number"),
        (1.5, "a number"),
        (b"", "a bytes"),
    ],
)
def test_kinds_in_words(value: Any, kind: str) -> None:
    assert kind_of(value) == kind


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "true"),
        (False, "false"),
        (None, "null"),
        ("a\nb\x1b", '"a\\nb\\u001b"'),
        ("x" * 58, '"' + "x" * 58 + '"'),
        ("x" * 59, '"' + "x" * 58 + "…"),
        ("x" * 90, '"' + "x" * 58 + "…"),
        (99999.0, "99999.0"),
        (1e5, "100000"),
        (-1e5, "-100000"),
        (1e15, "1000000000000000"),
        (1e16, "1e+16"),
        (100000.5, "100000.5"),
        (math.inf, "inf"),
        (math.nan, "nan"),
        (100000, "100000"),
        pytest.param(10**5000, "a very large number", id="large"),
        ([1, "a"], "[1, 'a']"),
    ],
)
def test_values_as_a_message_shows_them(value: Any, shown: str) -> None:
    assert show(value) == shown


def test_a_shorter_limit() -> None:
    assert show([1, 2, 3], 9) == "[1, 2, 3]" and show([1, 2, 3], 8) == "[1, 2, …"


@pytest.mark.parametrize(
    ("word", "known", "near"),
    [
        ("stage", ["Stage", "steps"], "Stage"),
        ("zero-stage", ["zero_stage"], "zero_stage"),
        ("stege", ["stage"], "stage"),
        ("stxge", ["stxyz"], None),
        ("", ["stage"], None),
        ("abcdefgh", ["abcd____efgh"], "abcd____efgh"),
        ("abcdefgh", ["abcd_____efgh"], None),
        ("x" * 80, ["x" * 79 + "y"], "x" * 79 + "y"),
        ("x" * 81, ["x" * 80 + "y"], None),
        ("gradient", ["gradient_clipping"], "gradient_clipping"),
        ("gradien", ["gradien_clipping"], None),
        ("my_gradient_clipping", ["clipping", "optimizer"], "clipping"),
        ("my_gradient_clippin", ["clippin", "optimizer"], None),
        ("gradient", ["gradient_clipping", "gradient_noise_scale"], None),
    ],
)
def test_did_you_mean(word: str, known: list[str], near: str | None) -> None:
    """Alike in spelling; or, from eight letters on, the only one that holds the other."""
    assert closest(word, known) == near
