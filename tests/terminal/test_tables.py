"""Tables and lists at a terminal: no line is longer than it, nothing is lost by wrapping; a pipe gets them whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_plan_table import job
from tests.terminal.conftest import Seen
from zerocfg.terminal.table import TOGETHER, Column, folded, reflowed, table, wrap

Terminal = Callable[..., Seen]
COLUMNS = (Column(hangs=16), Column("size", right=True), Column("parts", right=True, spare=1), Column("why", least=12))
ROWS = [
    ("ds.json", "1.5", "10", "best"),
    ("configs/accelerate_with_a_long_name.yaml", "120.0", "7", "needs at least 170.8 GiB, the card has 79.1"),
    (f"2{TOGETHER}x{TOGETHER}8", "3.0", "1", "ds_config.json:zero_optimization.stage3_gather_16bit_weights"),
]


def test_whole_in_a_pipe() -> None:
    assert table(COLUMNS, ROWS) == [
        "                                             size  parts  why",
        "  ds.json                                     1.5     10  best",
        "  configs/accelerate_with_a_long_name.yaml  120.0      7  needs at least 170.8 GiB, the card has 79.1",
        "  2 x 8                                       3.0      1  "
        "ds_config.json:zero_optimization.stage3_gather_16bit_weights",
    ]


def test_at_sixty_columns() -> None:
    assert table(COLUMNS, ROWS, 60) == [
        "            size  parts  why",
        "  ds.json    1.5     10  best",
        "  configs/accelerate_with_a_long_name.yaml",
        "           120.0      7  needs at least 170.8 GiB, the card",
        "                         has 79.1",
        "  2 x 8      3.0      1  ds_config.json:zero_optimization.",
        "                         stage3_gather_16bit_weights",
    ]


def test_what_is_spare_is_left_out_first() -> None:
    lines = table(COLUMNS, ROWS, 30)
    assert lines[0].split() == ["size", "why"]
    assert lines[1].split() == ["ds.json", "1.5", "best"]


@pytest.mark.parametrize("width", range(46, 130))
def test_nothing_is_lost(width: int) -> None:
    lines = table(COLUMNS, ROWS, width)
    assert all(len(line) <= width for line in lines)
    shown = re.sub(r"\s", "", "".join(lines))
    letters = sorted(shown)
    expected = "".join((*(column.title for column in COLUMNS), *(cell for row in ROWS for cell in row)))
    assert letters == sorted(re.sub(r"\s", "", expected))
    if width >= 118:
        assert len(lines) == 4


@pytest.mark.parametrize("width", range(5, 40))
def test_words_keep_their_order(width: int) -> None:
    text = "needs at least 170.8 GiB of zero_optimization.offload_optimizer.device, the card has 79.1"
    lines = wrap(text, width)
    assert all(len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_two_columns_share_the_room_with_the_fewest_lines() -> None:
    rows = [("a " * 20, "b " * 5), ("a", "b")]
    assert len(table([Column(least=4), Column(least=4)], rows, 46)) == 3
    assert table([Column(least=4), Column(least=4)], [], 46) == []


def test_a_text_goes_on_below_its_words() -> None:
    text = "sft: on 8 cards\n  verdict    fits: needs 35.6 to 47.5 GiB, the card has 79.1\n\nnote: one two\n"
    assert folded(text, None) == text
    assert folded(text, 80) == text
    assert folded(text, 40) == (
        "sft: on 8 cards\n  verdict    fits: needs 35.6 to 47.5\n             GiB, the card has 79.1\n\nnote: one two\n"
    )


def test_a_path_is_broken_at_a_slash() -> None:
    assert wrap("configs/training/zero_2.yaml:7:3", 28) == ["configs/training/", "zero_2.yaml:7:3"]
    assert wrap("a_name_that_is_long_and_has_no_slash", 12) == ["a_name_that_", "is_long_and_", "has_no_slash"]


def test_prose_is_filled_anew_and_examples_stay() -> None:
    text = (
        "Why it is bad\n  The file says what its author wants,\n  and the job does something else.\n\n"
        "  (1) Linted with another consumer than this.\n  (2) Not.\n"
        '    {"train_micro_batch_size_per_gpu": "auto"}\n'
    )
    assert reflowed(text, None) == reflowed(text, 80) == text
    assert reflowed(text, 34) == (
        "Why it is bad\n  The file says what its author\n  wants, and the job does\n  something else.\n\n"
        "  (1) Linted with another consumer\n    than this.\n  (2) Not.\n"
        '    {"train_micro_batch_size_per_gpu": "auto"}\n'
    )


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "words",
    [
        ("plan", ".", "--no-trace"),
        ("rules",),
        ("build", ".", "-o", "out"),
        ("explain", "--run", "ds.json"),
        ("explain", "ZC404"),
        ("explain", "zero_optimization.reduce_bucket_size"),
        ("lint", "--show-runs"),
        ("schema",),
        ("info",),
    ],
)
def test_no_line_is_longer_than_the_terminal(
    words: tuple[str, ...], columns: int, tmp_path: Path, terminal: Terminal
) -> None:
    job(tmp_path)
    seen = terminal(*words, columns=columns, NO_COLOR="1")
    assert seen.code == 0 and seen.lines
    paths = re.compile(r"^(wrote )?\S+$|^ +\S+$|^Python |^zerocfg |^settings ")
    if words[-1] == "ZC404":
        paths = re.compile("^ {4}")  # examples, and the table of releases
    assert [line for line in seen.lines if len(line) > columns and not paths.match(line)] == []


def test_the_plans_at_eighty_columns(tmp_path: Path, terminal: Terminal) -> None:
    """The plan, the most of a device, the time and the verdict stay; what is left out is said."""
    job(tmp_path)
    narrow = terminal("plan", ".", "--no-trace", columns=80)
    wide = terminal("plan", ".", "--no-trace", columns=200)
    assert "(a wider terminal shows more columns" in " ".join(narrow.out.split())
    assert "a wider terminal" not in wide.out
    (head,) = (line for line in narrow.lines if "device  fits" in line and "step" in line)
    assert "tokens/s" not in head and "param" not in head
    (head,) = (line for line in wide.lines if "tokens/s" in line and "param" in line)
    plans, shown = (
        re.findall(r"^.{5}(ZeRO-\d, (?:.*, )?\d+ x \d+)", "\n".join(one.lines), re.M) for one in (wide, narrow)
    )
    assert len(plans) >= 8 and [plan for plan in plans if len(plan) <= 26] == shown
