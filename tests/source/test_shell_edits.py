"""Edits of launch lines, and whether nothing but the words that they mean changed; what bash reads is the measure."""

from __future__ import annotations

import json

import pytest

from zerocfg.source.edit import Edit, apply_edits
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.launch.line import LaunchLine, Option
from zerocfg.source.launch.shell_check import _touches_inside, _within, intact, only_comments
from zerocfg.source.launch.shell_edits import before, behind, removed, replaced, with_value, written_option
from zerocfg.source.text import SourceText, Span


def line_of(text: str) -> tuple[SourceText, LaunchLine]:
    source = SourceText("run.sh", text)
    (line,) = read_launch_lines(source).lines
    return source, line


def option_of(line: LaunchLine, name: str) -> Option:
    (option,) = [one for one in (*line.options, *line.script_options) if one.name == name]
    return option


RUN = "torchrun train.py"


@pytest.mark.parametrize(
    ("text", "after"),
    [
        (f"{RUN} --a 1 --b 2 --c 3\n", f"{RUN} --a 1 --c 3\n"),
        (f"{RUN} --a 1 --b=2 --c 3\n", f"{RUN} --a 1 --c 3\n"),
        (f"{RUN} --a 1 --b --c 3\n", f"{RUN} --a 1 --c 3\n"),
        (f"{RUN} --a 1   --b 2\n", f"{RUN} --a 1\n"),
        (f"{RUN} --a 1 --b 2", f"{RUN} --a 1"),
        (f"{RUN} --a 1 \\\n  --b 2 \\\n  --c 3\n", f"{RUN} --a 1 \\\n  --c 3\n"),
        (f"{RUN} --a 1 \\\r\n  --b 2 \\\r\n  --c 3\r\n", f"{RUN} --a 1 \\\r\n  --c 3\r\n"),
        (f"{RUN} --a 1 \\\n  --b 2\n", f"{RUN} --a 1 \n"),
        (f"{RUN} --a 1 \\\n  --b 2", f"{RUN} --a 1 "),
        (f"{RUN} --a 1 \\\n  --b 2 --c 3\n", f"{RUN} --a 1 \\\n --c 3\n"),
        (f"{RUN} --a 1 --b 2 \\\n  --c 3\n", f"{RUN} --a 1 \\\n  --c 3\n"),
        (f"{RUN} --a 1 --b \\\n  2 --c 3\n", None),  # over two lines
        (f'{RUN} --a 1 --b "2" --c 3\n', f"{RUN} --a 1 --c 3\n"),
        (f"{RUN} --a 1 --b $X --c 3\n", f"{RUN} --a 1 --c 3\n"),
    ],
)
def test_an_option_is_taken_out(text: str, after: str | None) -> None:
    source, line = line_of(text)
    edit = removed(source, option_of(line, "--b"))
    if after is None:
        assert edit is None
        return
    assert edit is not None and apply_edits(text, [edit]) == after
    assert intact(source, [edit]) and intact(source, [edit], {line.span}) and not only_comments(source, [edit])
    assert not intact(source, [edit], frozenset()), "a line that is not among those that may change"


@pytest.mark.parametrize(
    ("text", "value", "after"),
    [
        (f"{RUN} --b 2 --c\n", "7", f"{RUN} --b 7 --c\n"),
        (f"{RUN} --b=2 --c\n", "7", f"{RUN} --b=7 --c\n"),
        (f"{RUN} --b  2\n", "$SIZE", f"{RUN} --b  $SIZE\n"),
        (f"{RUN} --b 2\n", "a;b", None),
        (f"{RUN} --b 2\n", "a'b", None),
        (f"{RUN} --b --c\n", "7", None),
    ],
)
def test_an_option_gets_another_value(text: str, value: str, after: str | None) -> None:
    source, line = line_of(text)
    edit = with_value(source, option_of(line, "--b"), value)
    assert (None if edit is None else apply_edits(text, [edit])) == after


def test_words_behind_and_before_and_instead() -> None:
    text = f"{RUN} --b 2 --c 3\n"
    source, line = line_of(text)
    option = option_of(line, "--b")
    assert written_option(source, option) == "--b 2"
    edit = behind(source, option, "--d 4")
    assert edit is not None and apply_edits(text, [edit]) == f"{RUN} --b 2 --d 4 --c 3\n" and intact(source, [edit])
    assert behind(source, option, "--d '4'") is None
    edit = replaced(source, option, "--d")
    assert edit is not None and apply_edits(text, [edit]) == f"{RUN} --d --c 3\n"
    assert line.script is not None
    edit = before(line.script, "--nproc_per_node 2")
    assert edit is not None and apply_edits(text, [edit]) == "torchrun --nproc_per_node 2 train.py --b 2 --c 3\n"
    assert before(line.script, "a | b") is None


TWO = f"A=(--a 1 --b 2)\necho one two  # why\n{RUN} ${{A[@]}} --c '3 4'\nT=\"--x 1 --y 2\"\nls $T\n"


def changed(text: str, old: str, new: str, name: str = "run.sh", **how: bool) -> bool:
    at = text.index(old)
    return intact(SourceText(name, text), [Edit(Span(at, at + len(old)), new)], **how)


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("--b 2", "--b 3", True),  # of an array
        ("--b 2", "", True),
        (" --b 2", "", True),
        ("--b 2)", ")", False),  # the end of the array goes and comes
        ("--b 2", "--b '2", False),  # a quote that nobody closes
        ("--b 2", "--b 2; rm -r x", False),
        ("--x 1", "--x 9", False),  # a text that is split later, for a program that is no training
        ("--x 1", '--x "', False),
        ("one", "three", True),  # a program that only prints
        ("one", "one\nls", False),
        ("# why", "# because", True),
        ("# why", "", True),
        ("# why", "why", True),  # one more word, which is printed
        ("'3 4'", "5", True),
        ("train.py", "train.py | tee log", False),
        ("\nls", " ls", False),  # two commands become one
    ],
)
def test_what_edits_may_change(old: str, new: str, same: bool) -> None:
    assert changed(TWO, old, new) is same


def test_no_edit_changes_nothing() -> None:
    assert intact(SourceText("run.sh", TWO), []) and only_comments(SourceText("run.sh", TWO), [])


def test_comments_alone() -> None:
    def only(old: str, new: str) -> bool:
        at = TWO.index(old)
        return only_comments(SourceText("run.sh", TWO), [Edit(Span(at, at + len(old)), new)])

    assert only("  # why", "  # because") and only("# why", "") and only("  # why\n", "\n# more\n")
    assert not only("# why", "why") and not only("one", "three") and not only("--b 2", "--b 3")


def test_a_block_of_a_page_is_not_opened() -> None:
    page = f"# Run\n\n```bash\n{RUN} --a 1\n```\n\nand\n\n```bash\nls\n```\n"
    assert changed(page, "--a 1", "--a 2", "README.md")
    assert not changed(page, "and\n", "and\n\n```bash\nls\n```\n", "README.md")
    assert not changed(page, "--a 1", "--a 1\n```\n\n```bash\nls", "README.md")


def test_several_edits_of_other_lengths() -> None:
    text = f"{RUN} --a 1 --bb 22 --c 3\n"
    source, line = line_of(text)
    edits = []
    for name, value in (("--a", "1000"), ("--bb", "2"), ("--c", "")):
        option = option_of(line, name)
        edit = with_value(source, option, value) if value else removed(source, option)
        assert edit is not None
        edits.append(edit)
    assert apply_edits(text, edits) == f"{RUN} --a 1000 --bb 2\n"
    assert intact(source, edits) and intact(source, edits[::-1]) and intact(source, edits, {line.span})


def test_other_commands_keep_their_words() -> None:
    """Only a line that starts a training may get other words."""
    text = f"cp a b\n{RUN} --a 1\n"
    source, line = line_of(text)
    at = text.index("a b")
    edit = Edit(Span(at, at + 1), "c")
    assert not intact(source, [edit]) and not intact(source, [edit], {line.span})


def test_notebooks_and_programs_stay_what_they_are() -> None:
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": [f"!{RUN} --a 1\n", "x = 1\n"]}]
    text = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)
    assert changed(text, "--a 1", "--a 2", "a.ipynb")
    assert not changed(text, "--a 1", '--a "', "a.ipynb")
    assert not changed(text, '"nbformat": 4', '"nbformat": 3', "a.ipynb")
    assert not changed(text, "!torchrun train.py --a 1\\n", '", "!ls\\n', "a.ipynb")
    program = f"import os\nos.system('{RUN} --a 1')\n"
    assert changed(program, "--a 1", "--a 2", "run.py")
    assert not changed(program, "--a 1", "--a '", "run.py")


def test_changes_within_a_word() -> None:
    """Behind its first and before its last character; what is put in at either end is beside it."""
    word = Span(5, 9)
    for change, inside in (
        (Span(0, 5), False),
        (Span(5, 5), False),
        (Span(6, 6), True),
        (Span(9, 9), False),
        (Span(9, 12), False),
        (Span(3, 6), True),
        (Span(5, 6), True),
        (Span(8, 12), True),
        (Span(0, 20), True),
    ):
        assert _touches_inside([change], word) is inside, change
    assert _touches_inside([Span(0, 5), Span(7, 7)], word) and not _touches_inside([Span(0, 5), Span(9, 10)], word)
    assert not _touches_inside([], word)
    for ranges, span, within in (
        ([Span(0, 5)], Span(1, 3), True),
        ([Span(0, 5)], Span(0, 5), True),
        ([Span(0, 5)], Span(0, 6), False),
        ([Span(0, 5)], Span(3, 3), False),
        ([Span(0, 2), Span(4, 8)], Span(5, 8), True),
        ([Span(0, 2), Span(4, 8)], Span(1, 5), False),
        ([], Span(0, 1), False),
    ):
        assert _within(ranges, span) is within, (ranges, span)
