"""Readers of launch lines and texts, each side of where they change: what make, IPython, argparse and bash do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from zerocfg.budgets import DEPTH, WORD_CHARACTERS
from zerocfg.frontends.registry import programs
from zerocfg.source import boundary, disk, write
from zerocfg.source.edit import Edit, apply_edits, delete_entry, insert_entry, rename_key, replace_value
from zerocfg.source.foreign import one_line
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.launch.launchers import option_like, read_options, split_launcher
from zerocfg.source.launch.line import LaunchLine, Word
from zerocfg.source.launch.makefile import recipes
from zerocfg.source.launch.notebook import cell_at, environment_of, python_of, shell_of
from zerocfg.source.launch.shell_folders import path_for_program
from zerocfg.source.launch.shell_started import read_commands, read_started
from zerocfg.source.launch.shell_words import START, UNKNOWN, Chars
from zerocfg.source.load import OUTSIDE, load_as, read_bytes
from zerocfg.source.node import Problem
from zerocfg.source.text import SourceText, Span
from zerocfg.source.write import write_atomic


def lines(text: str, name: str = "run.sh") -> list[LaunchLine]:
    return read_launch_lines(SourceText(name, text), programs()).lines


def words(line: LaunchLine) -> list[str | None]:
    return [word.value for word in line.arguments]


# --- make -------------------------------------------------------------------------------------------------------------


def made(text: str) -> list[str]:
    """The recipe lines as make hands them to a shell, with `?` for what it is not known to put in."""
    return [chars.text.replace(UNKNOWN, "?").strip() for chars, _ in recipes(text)]


@pytest.mark.parametrize(
    ("before", "recipe", "handed_on"),
    [
        ("A = 1", "x $(A) ${A} $A", "x 1 1 ?"),
        ("A := 1\nA ?= 2\nB ?= 3", "x $(A) $(B)", "x 1 3"),
        ("A = 1\nA += 2\nB += 3", "x $(A) $(B)", "x 1 2 3"),
        ("A ::= 1\nB :::= 2", "x $(A) $(B)", "x 1 2"),
        ("A = 1 # one\nB = a\\#b", "x $(A)", "x 1"),
        ("A = 1\nB = $(A)2", "x $(B)", "x 12"),
        ("", "x $$HOME $(A) $(shell echo $(B)) y", "x $HOME ? ? y"),
        ("A = 1", "@x $(A)", "x 1"),
        ("A = 1", "-@+x $(A)", "x 1"),
        ("ifdef Q\nA = 1\nelse\nA = 2\nendif", "x $(A)", "x ?"),
        ("ifdef Q\nA = 1\nelse\nA = 1\nendif", "x $(A)", "x 1"),
        ("ifdef Q\nB = 1\nendif\nA = 1\nA = 2", "x $(A)", "x 2"),
        ("ifdef Q\nifdef R\nendif\nA = 1\nA = 2\nendif", "x $(A)", "x ?"),
        ("ifeq (1,1)\nA = 1\nendif", "x $(A)", "x 1"),
        ("A = 1\nifneq (1,1)\nA = 2\nendif", "x $(A)", "x ?"),
        ("A = 1\nA += $(shell date)", "x $(A)", "x 1 ?"),
        ("override A = 1", "x $(A)", "x 1"),
    ],
)
def test_variables_of_make(before: str, recipe: str, handed_on: str) -> None:
    assert made(f"{before}\nall:\n\t{recipe}\n") == [handed_on]


def test_what_make_exports() -> None:
    text = "export A = 1\nB = 2\nC = 3\nD = $(shell x)\nexport B D\nall:\n\tx\n"
    ((_, environment),) = recipes(text)
    assert environment == {"A": "1", "B": "2", "D": None}
    ((_, every),) = recipes("B = 2\nC = 3\nexport\nall:\n\tx\n")
    assert every == {"B": "2", "C": "3"}


def test_lines_and_places_of_recipes() -> None:
    text = "A = 22\nall: b\n\tone $(A) \\\n\t  two\n\tthree\n"
    (first, _), (second, _) = recipes(text)
    assert [text[at] for at in first.at[:4]] == list("one ") and first.at[4] == first.at[5] == text.index("$(A)")
    assert first.text == "one 22 \\\n\t  two\n" and second.text == "three\n"
    assert second.at[0] == text.index("three")
    for length, second in ((WORD_CHARACTERS, "x" * WORD_CHARACTERS), (WORD_CHARACTERS + 1, "$(A)")):
        long = "x" * length
        assert made(f"A = {long}\nall:\n\t$(A)$(A)\n") == [long + second], "what is too long is not put in again"


# --- notebooks --------------------------------------------------------------------------------------------------------


def notebook(*cells: str | list[str] | dict[str, Any]) -> SourceText:
    made = [one if isinstance(one, dict) else {"cell_type": "code", "source": one} for one in cells]
    return SourceText("a.ipynb", json.dumps({"metadata": {"x": [1, {"a": "]"}]}, "cells": made}, indent=1))


PAGE: dict[str, Any] = {"cell_type": "markdown", "source": "!torchrun page.py"}


def test_cells_and_lines_of_a_notebook() -> None:
    source = notebook("a = 1\n", PAGE, ["b = 2\n", "c = 3"], "", "d = 4")
    text = source.text
    found = [cell_at(source, text.index(one)) for one in ("a = 1", "b = 2", "c = 3", "d = 4")]
    assert found == [(1, 1), (3, 1), (3, 2), (5, 1)]
    assert cell_at(source, text.index("d = 4") + 5) == (5, 1), "just behind it"
    assert cell_at(source, text.index("d = 4") + 6) is None and cell_at(source, text.index("page.py")) is None
    assert python_of(source).text == "a = 1\nb = 2\nc = 3\n\nd = 4\n"


def test_commands_of_a_notebook() -> None:
    """IPython hands lines after `!` to a shell, and `%pip` and its like start the program."""
    source = notebook(
        "!one a\nx = !two b\n  ! three {y} \\\n  c\nprint('!four')\n%pip install five\n%time six\n?seven\n",
        "%%bash\neight\nnine\n",
        "%%writefile out.sh\nten\n",
        "%%capture\n!eleven\n",
        "%%javascript\n!twelve\n",
        "!thirteen \\",
        "!fourteen \\\n  fifteen",
    )
    told = [chars.text.replace(UNKNOWN, "?") for chars in shell_of(source)]
    assert [one.split() for one in told] == [
        ["one", "a"],
        ["two", "b"],
        ["three", "???", "\\", "c"],
        ["pip", "install", "five"],
        ["eight", "nine"],
        ["eleven"],
        ["thirteen", "\\"],
        ["fourteen", "\\", "fifteen"],
    ]
    for chars in shell_of(source):
        known = [(one, at) for one, at in zip(chars.text, chars.at, strict=True) if one not in ("\n", "\\", UNKNOWN)]
        assert all(source.text[at] == one for one, at in known)


def test_code_around_commands() -> None:
    assert python_of(notebook("if a:\n    !one\nb = 1")).text == "if a:\n    pass\nb = 1\n"
    assert python_of(notebook("!one \\\n  two\nb = 1")).text == "pass\nb = 1\n"
    assert python_of(notebook("b = (\n", "c = 1")).text == "c = 1\n", "no Python is left out"
    assert python_of(SourceText("a.ipynb", "{")).text == python_of(SourceText("a.ipynb", "[]")).text == ""


def test_variables_of_a_notebook() -> None:
    source = notebook("os.environ['A'] = '1'\nos.environ.setdefault( \"B\", x)\n%env C = 1\nenviron2['D']\n%env E\n")
    assert environment_of(source) == {"A": None, "B": None, "C": None}


# --- files that a script writes ---------------------------------------------------------------------------------------

WRITE = "cat > ds.json << EOF\n{}\nEOF\n"


@pytest.mark.parametrize(
    ("between", "known"),
    [
        ("", True),
        ("ls ds.json\n", True),
        ("cat ds.json\n", True),
        ("chmod +x ./ds.json\n", True),
        ("sed -i s/a/b/ ds.json\n", False),
        ("sed -i s/a/b/ ./ds.json\n", False),
        ("sed -i s/a/b/ other.json\n", True),
        ("cp ds.json other.json\n", True),
        ("cp other.json ds.json\n", False),
        ("ds.json\n", True),
        ("echo x > ds.json\n", False),
        ("echo x >> ./ds.json\n", False),
        ("echo x > other.json\n", True),
        ("echo x 2>&1\n", True),
        ("cat >> ds.json << EOF\nx\nEOF\n", False),
        ("tee -a ds.json << EOF\nx\nEOF\n", False),
        ("rm ds.json\n", True),
    ],
)
def test_a_file_that_may_have_changed(between: str, known: bool) -> None:
    (line,) = lines(f"{WRITE}{between}torchrun t.py --deepspeed ds.json\n")
    assert [(one.name, one.text is not None and one.text.text) for one in line.written] == (
        [("ds.json", "{}\n")] if known else []
    )


@pytest.mark.parametrize(
    ("head", "body", "written"),
    [
        ("cat > a << EOF", "$A \\$A `x`\n", "1 $A ?\n"),
        ("cat > a << 'EOF'", "$A\n", "$A\n"),
        ('cat > a << "EOF"', "$A\n", "$A\n"),
        ("cat > a <<- EOF", "\t\tx\n", "x\n"),
        ("cat << EOF > a", '"$A"\n', '"1"\n'),
        ("tee a << EOF", "x\n", "x\n"),
        ("cat > a", None, None),
        ("cat b > a << EOF", "x\n", None),
        ("cat > a > b << EOF", "x\n", None),
        ("cat > $Q/a << EOF", "x\n", "x\n"),
    ],
)
def test_what_a_here_document_holds(head: str, body: str | None, written: str | None) -> None:
    rest = "" if body is None else f"{body}EOF\n"
    (line,) = lines(f"A=1\n{head}\n{rest}torchrun t.py\n")
    told = [one.text.text.replace(UNKNOWN, "?") for one in line.written if one.text is not None]
    assert told == ([] if written is None else [written])


def test_files_of_branches_and_folders() -> None:
    both = f"if x; then\n{WRITE}else\n{WRITE.replace('{}', '[]')}fi\ntorchrun t.py\n"
    assert [one.text and one.text.text for one in lines(both)[0].written] == ["{}\n", "[]\n"]
    again = f"{WRITE}{WRITE.replace('{}', '[]')}torchrun t.py\n"
    assert [one.text and one.text.text for one in lines(again)[0].written] == ["[]\n"]
    inside = f"cd sub\n{WRITE}cd ..\ntorchrun t.py\n"
    assert [one.name for one in lines(inside)[0].written] == ["sub/ds.json"]


# --- commands and launchers -------------------------------------------------------------------------------------------


def chars(text: str) -> Chars:
    return Chars(text, range(len(text)))


def test_every_command_of_a_text() -> None:
    text = "a 1; bash -c 'b 2 && c'; A=1 d $A; eval 'e 3'; if f; then g; fi"
    source = SourceText("x.sh", text)
    found = [[word.value for word in one] for one in read_commands(source, chars(text))]
    assert found == [["a", "1"], ["b", "2"], ["c"], ["d", None], ["e", "3"], ["f"], ["g"]]
    text = "a 1; srun -n 2 bash -c 'torchrun t.py; b'; torchrun u.py; srun torchrun v.py"
    started = read_started(SourceText("x.sh", text), chars(text))
    assert [([word.value for word in one.words], one.launch is not None) for one in started] == [
        (["a", "1"], False),
        (["torchrun", "t.py"], True),
        (["b"], False),
        (["srun", "-n", "2", "bash"], True),
        (["torchrun", "u.py"], True),
        (["srun", "torchrun", "v.py"], True),
    ]
    assert started[4].launch == Span(text.index("torchrun u"), text.index("; srun torchrun"))


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("conda run -n x deepspeed t.py", 1),
        ("conda install deepspeed t.py", 0),
        ("docker exec c deepspeed t.py", 1),
        ("docker build deepspeed t.py", 0),
        ("cd -- x; torchrun t.py", 1),
        ("python -m torch.distributed.run t.py", 1),
        ("python -m torch.distributed.elastic t.py", 0),
        ("python -m accelerate.commands.accelerate_cli launch t.py", 1),
        ("python -m accelerate config t.py", 0),
        ("python -X dev -W ignore -u -m deepspeed t.py", 1),
        ("python -c 'import x' --deepspeed", 0),
        ("python t.py --deepspeed", 1),
        ("python t.py --deepspeed_config ds.json", 1),
        ("llamafactory-cli train x.yaml", 1),
        ("llamafactory-cli chat x.yaml", 0),
        ("swift rlhf --x", 1),
        ("accelerate-launch t.py", 1),
        ("accelerate test t.py", 0),
        ("deepspeed -h t.py", 1),
        ("deepspeed -h", 0),
        ("torchrun", 0),
        ("torchrun --nnodes 2 $ARGS", 1),
        ("bash -x t.sh", 0),
        ("bash -xc 'torchrun t.py'", 1),
        ("bash x -c 'torchrun t.py'", 0),
    ],
)
def test_launches_among_commands(command: str, found: int) -> None:
    assert len(lines(command)) == found


def given(*texts: str | None) -> list[Word]:
    """Words as they stand one behind the other; None: a variable."""
    made, at = [], 0
    for text in texts:
        written = "$X" if text is None else text
        made.append(Word(written, text, Span(at, at + len(written))))
        at += len(written) + 1
    return made


@pytest.mark.parametrize(
    ("launcher", "texts", "options", "script", "module", "rest"),
    [
        ("torchrun", ["--nnodes", "2", "t.py", "--a"], {"--nnodes": "2"}, "t.py", False, 1),
        ("torchrun", ["--nnodes=2", "t.py"], {"--nnodes": "2"}, "t.py", False, 0),
        ("torchrun", ["--nnode", "2", "t.py"], {"--nnode": "2"}, "t.py", False, 0),
        ("torchrun", ["--standalone", "t.py"], {"--standalone": None}, "t.py", False, 0),
        ("torchrun", ["-m", "pkg", "x"], {"-m": None}, "pkg", True, 1),
        ("torchrun", ["--mod", "pkg"], {"--mod": None}, "pkg", True, 0),
        ("deepspeed", ["-m", "t.py"], {"-m": None}, "t.py", False, 0),
        ("torchrun", ["--new", "1", "t.py"], {"--new": "1"}, "t.py", False, 0),
        ("torchrun", ["--new", "t.py"], {"--new": None}, "t.py", False, 0),
        ("torchrun", ["--new", "--nnodes", "1", "t.py"], {"--new": None, "--nnodes": "1"}, "t.py", False, 0),
        ("torchrun", ["--", "--t.py", "x"], {}, "--t.py", False, 1),
        ("torchrun", [None, "t.py"], {}, "t.py", False, 0),
        ("torchrun", [None], {}, None, False, 0),
        ("torchrun", ["--nnodes"], {"--nnodes": None}, None, False, 0),
        ("torchrun", [], {}, None, False, 0),
        ("python", ["-c", "x", "y"], {}, None, False, 2),
        ("python", ["-u", "t.py"], {"-u": None}, "t.py", False, 0),
        ("llamafactory", ["a.yaml", "b=1"], {}, None, False, 2),
    ],
)
def test_where_the_script_begins(
    launcher: Any, texts: list[str | None], options: dict[str, Any], script: str | None, module: bool, rest: int
) -> None:
    found, started, as_module, arguments = split_launcher(launcher, given(*texts))
    assert {one.name: one.value and one.value.value for one in found} == options
    assert ((started and started.value), as_module, len(arguments)) == (script, module, rest)


def test_options_of_a_script_and_their_places() -> None:
    made = given("--a", "1", "--b=2", "-c", "--d", "-1", "--e", "-x", "f", "--", "--g=", "-.5", "-2e-3")
    found = [(one.name, one.value and one.value.value, tuple(one.span)) for one in read_options(tuple(made))]
    assert found == [
        ("--a", "1", (0, 5)),
        ("--b", "2", (6, 11)),
        ("-c", None, (12, 14)),
        ("--d", "-1", (15, 21)),
        ("--e", None, (22, 25)),
        ("-x", "f", (26, 30)),
        ("--g", "", (34, 38)),
    ]
    value = read_options(tuple(made))[1].value
    assert value is not None and (value.text, tuple(value.span)) == ("2", (10, 11))
    quoted = Word('"--b=2"', "--b=2", Span(0, 7))
    (option,) = read_options((quoted,))
    assert option.value is not None and (option.value.span, option.value.exact) == (Span(0, 7), False)
    assert [option_like(one) for one in given("-", "--", "-1", "-1e5", "-a", "a", "-1x")] == [
        *(False, True, False, False, True, False, True),
    ]


# --- texts ------------------------------------------------------------------------------------------------------------


def test_odd_bytes_of_a_name_stay_and_other_halves_do_not() -> None:
    """Python puts U+DC80 to U+DCFF in the place of bytes that are no UTF-8."""
    shown = [one_line(f"a{chr(one)}") for one in (0xDC7F, 0xDC80, 0xDCFF, 0xDD00)]
    assert shown == ["a\\udc7f", "a\udc80", "a\udcff", "a\\udd00"]


@pytest.mark.parametrize(("levels", "problems"), [(DEPTH, []), (DEPTH + 1, ["too-deep"])])
@pytest.mark.parametrize("form", ["flow", "block", "json"])
def test_the_deepest_text_that_is_read(form: Any, levels: int, problems: list[str]) -> None:
    text = "[" * levels + "]" * levels if form != "block" else "- " * levels + "1"
    document = load_as(SourceText("x", text), "json" if form == "json" else "yaml")
    assert [one.kind for one in document.problems if one.fatal] == problems


def test_aliases_of_a_text() -> None:
    text = "a: &x {b: 1}\nc: *x\nd: [*x, &y 2, *y]\n'*': '&'\n"
    document = load_as(SourceText("a.yaml", text), "yaml")
    assert document.data() == yaml.safe_load(text)
    node = document.get(("c",))
    assert node is not None and text[node.span.start : node.span.end] == "*x"


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("a:\n  b: 1\n", "a:\n  b: 1\n  new: 2\n"),
        ("a: {b: 1}\n", "a: {b: 1, new: 2}\n"),
        ("a:\n  {b: 1}\n", "a:\n  {b: 1, new: 2}\n"),
        ("a: &x\n  b: 1\n", "a: &x\n  b: 1\n  new: 2\n"),
        ("a: !!map\n  b: 1\n", "a: !!map\n  b: 1\n  new: 2\n"),
        ("a: !!map {b: 1}\n", "a: !!map {b: 1, new: 2}\n"),
        ("a:\n  b: 1\n  c: 3 # x\nd: 4\n", "a:\n  b: 1\n  c: 3 # x\n  new: 2\nd: 4\n"),
    ],
)
def test_an_entry_goes_where_its_section_is_written(text: str, edited: str) -> None:
    document = load_as(SourceText("a.yaml", text), "yaml")
    assert apply_edits(text, insert_entry(document, ("a",), "new", "2")) == edited
    assert yaml.safe_load(edited)["a"]["new"] == 2


@pytest.mark.parametrize("text", ["a: 1\nb: 2\nc: 3\n", "{a: 1, b: 2, c: 3}\n", "a: 1\r\nb: 2\r\nc: 3\r\n"])
@pytest.mark.parametrize("key", "abc")
def test_an_entry_goes_and_the_others_stay(text: str, key: str) -> None:
    document = load_as(SourceText("a.yaml", text), "yaml")
    left = yaml.safe_load(text)
    del left[key]
    after = apply_edits(text, delete_entry(document, (key,)))
    assert yaml.safe_load(after) == left and after.count("\r") == (text.count("\r") and 2)
    changed = apply_edits(text, replace_value(document, (key,), "7"))
    assert yaml.safe_load(changed) == {**yaml.safe_load(text), key: 7}


# --- files ------------------------------------------------------------------------------------------------------------


def test_answers_that_repeat(tmp_path: Path) -> None:
    with disk.looking() as notes:
        disk.is_file(tmp_path)
    assert disk.repeats(notes) and disk.repeats({})
    assert not disk.repeats({"kind": {"a\0b": "file"}, "real": {"a\0b": "x"}})
    assert not disk.repeats({"real": {"a\0b": ""}})
    assert not disk.repeats({"size": {str(tmp_path): "1"}}) and not disk.repeats({"content 1": {}})
    (tmp_path / "file").write_text("abc")
    with disk.looking() as notes:
        assert disk.content(tmp_path / "file", 3, 1) == (3, b"abc") and disk.content(tmp_path / "file", 2, 1) == (
            3,
            b"a",
        )
    (tmp_path / "file").write_text("abd")
    assert not disk.repeats(notes)
    with disk.looking() as now:
        trusted = {name for asked in notes.values() for name in asked}
        assert disk.still(notes, now, trusted)


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as failed:
        write_atomic(tmp_path / "a", b"x")
    assert failed.value.filename == str(tmp_path / "a") and list(tmp_path.iterdir()) == []


def test_edits_at_one_place_keep_their_order() -> None:
    assert apply_edits("ab", [Edit(Span(1, 1), "x"), Edit(Span(1, 1), "y"), Edit(Span(2, 2), "z")]) == "axybz"


@pytest.mark.parametrize(
    ("path", "directory", "known", "told"),
    [
        ("a/b", "c", False, "a/b"),
        (f"{START}/b", None, True, "b"),
        (f"{START}/b", "a", True, "../b"),
        (f"{START}/a/b", "a", True, "b"),
        (f"{START}/a", "a", True, "."),
        (f"{START}/a/b", "a/c/d", True, "../../b"),
        (f"{START}/b", "a", False, "b"),
        (f"{START}/b", "..", True, "b"),
        (f"{START}/b", "/a", True, "b"),
        (f"--x={START}/b", "a", True, "--x=../b"),
        (f"x={START}/b", "a", True, None),
        (f"{START}/b:{START}/c", "a", True, None),
        (f"--x={START}b", "a", True, None),
    ],
)
def test_a_path_as_a_program_sees_it(path: str, directory: str | None, known: bool, told: str | None) -> None:
    assert path_for_program(path, directory, known) == told


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("l:\n- a: 1\n  b: 2\n", "l:\n- b: 2\n"),
        ("l:\n- a: 1\n  b: 2\n  c: 3\n- 4\n", "l:\n- b: 2\n  c: 3\n- 4\n"),
        ("x: &x {q: 1}\nl:\n- a: 1\n  <<: *x\n", None),
    ],
)
def test_an_entry_behind_a_dash_goes(text: str, after: str | None) -> None:
    document = load_as(SourceText("a.yaml", text), "yaml")
    if after is None:
        with pytest.raises(ValueError, match="does not start a line"):
            delete_entry(document, ("l", 0, "a"))
    else:
        assert apply_edits(text, delete_entry(document, ("l", 0, "a"))) == after


@pytest.mark.parametrize(
    "text",
    [
        "a: !!set {b, c}\n",
        "a: !!omap [b: 1, c: 2]\n",
        "a: !!pairs [b: 1, b: 2]\n",
        "a: !!seq [1]\n",
        "a: !!map {b: 1}\n",
        "a: !!str 1\n",
        "a: !!int '3'\n",
        "a: !!binary aGk=\n",
        "a: 2001-01-01\n",
    ],
)
def test_tags_as_the_safe_loader_reads_them(text: str) -> None:
    assert load_as(SourceText("a.yaml", text), "yaml").data() == yaml.safe_load(text)


@pytest.mark.parametrize(
    "text", ["a: !mine 1\n", "a: !mine [1]\n", "a: !mine {b: 1}\n", "a: !!set [1]\n", "a: !!omap {b: 1}\n"]
)
def test_tags_that_the_safe_loader_refuses(text: str) -> None:
    document = load_as(SourceText("a.yaml", text), "yaml")
    with pytest.raises(yaml.YAMLError):
        yaml.safe_load(text)
    assert [one.fatal for one in document.problems] == [True] and document.root is None


def test_characters_beyond_the_first_plane_in_a_notebook() -> None:
    """JSON writes them as two halves."""
    code = 'x = 1 # \U0001f600 \U00010400 \xe9 \\ / "'
    text = json.dumps({"cells": [{"cell_type": "code", "source": code}]})
    assert "\\ud83d\\ude00" in text and python_of(SourceText("a.ipynb", text)).text == f"{code}\n"


def test_nothing_is_written_outside_of_the_boundary(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with boundary.reading([], exactly=[tmp_path / "in"]):
        with pytest.raises(disk.OutsideError):
            write_atomic(tmp_path / "a", b"x")
        with pytest.raises(disk.OutsideError):
            write_atomic(tmp_path / "in" / ".." / "a", b"x")
        write_atomic(tmp_path / "in" / "a", b"x")
        write_atomic(tmp_path / "b", b"y", anywhere=True)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["b", "in"]


def test_a_key_that_an_anchor_brings_is_not_edited() -> None:
    document = load_as(SourceText("a.yaml", "x: &x {q: 1}\na:\n  <<: *x\n  b: 2\n"), "yaml")
    with pytest.raises(ValueError, match="comes from an anchor"):
        replace_value(document, ("a", "q"), "2")
    assert apply_edits(document.source.text, replace_value(document, ("a", "b"), "3")).endswith("b: 3\n")


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ('{\n  "a": x\n}\n', '{\n  "a": x\n  "new": 2\n}\n'),
        ('{\n  "a": "x"\n}\n', '{\n  "a": "x",\n  "new": 2\n}\n'),
        ('{\n  "a": 1\n}\n', '{\n  "a": 1,\n  "new": 2\n}\n'),
        ('{\n  "a": 1,\n}\n', '{\n  "a": 1,\n  "new": 2,\n}\n'),
        ('{\n  "a": 1 // x\n}\n', '{\n  "a": 1, // x\n  "new": 2\n}\n'),
        ('{\n  "a": 1, // x\n}\n', '{\n  "a": 1, // x\n  "new": 2,\n}\n'),
        ('{\n  "a": 1, "b": 2\n}\n', '{\n  "a": 1, "b": 2, "new": 2\n}\n'),
        ('{"a": 1}', '{"a": 1, "new": 2}'),
        ("{}", '{"new": 2}'),
    ],
)
def test_an_entry_of_a_json(text: str, after: str) -> None:
    """Behind a text without quotes a comma would belong to it."""
    document = load_as(SourceText("a.json", text), "json")
    assert apply_edits(text, insert_entry(document, (), "new", "2")) == after
    again = load_as(SourceText("a.json", after), "json")
    assert again.data() == {**(document.data() or {}), "new": 2}


def test_entries_go_with_their_commas() -> None:
    for text, key, after in (
        ('{"a": 1, "b": 2}', "b", '{"a": 1}'),
        ('{"a": 1, "b": 2}', "a", '{"b": 2}'),
        ('{"a": 1, "b": 2, "c": 3}', "b", '{"a": 1, "c": 3}'),
        ('{"a": 1}', "a", "{}"),
        ('{\n  "a": 1,\n  "b": 2\n}', "b", '{\n  "a": 1\n}'),
        ('{\n  "a": 1,\n  "b": 2\n}', "a", '{\n  "b": 2\n}'),
        ('{\n  "a": 1, // x\n  "b": 2\n}', "b", '{\n  "a": 1 // x\n}'),
    ):
        document = load_as(SourceText("a.json", text), "json")
        assert apply_edits(text, delete_entry(document, (key,))) == after, text


def test_keys_keep_their_letters() -> None:
    document = load_as(SourceText("a.json", '{"a": 1}'), "json")
    assert apply_edits('{"a": 1}', rename_key(document, ("a",), "\xe9")) == '{"\xe9": 1}'
    for key, written in (("new", "new"), ("no", '"no"'), ("a b", '"a b"'), ("1", '"1"'), ("y", '"y"')):
        yaml_text = apply_edits("a: 1\n", rename_key(load_as(SourceText("a.yaml", "a: 1\n"), "yaml"), ("a",), key))
        assert yaml_text == f"{written}: 1\n" and list(yaml.safe_load(yaml_text)) == [key]


@pytest.mark.parametrize(
    ("text", "fatal"),
    [
        ('{"a": 1} // x\n', False),
        ('{"a": 1} x', True),
        ('{"a": 1}}', True),
        ("[1, 2] 3", True),
        ("[1, [2, 3], {}]", False),
        ("[1, 2", True),
        ("[1 2]", True),
    ],
)
def test_what_stands_behind_a_document(text: str, fatal: bool) -> None:
    document = load_as(SourceText("a.json", text), "json")
    assert any(one.fatal for one in document.problems) is fatal
    if not fatal:
        try:
            assert document.data() == json.loads(text)
        except ValueError:
            assert document.data() == {"a": 1}


def test_a_variable_before_the_script_may_be_it() -> None:
    for texts, script in (
        (["--role", "x.py", None], "$X"),
        (["--nnodes", "2", None, "t.py"], "t.py"),
        (["--nnodes", "2", None, "x"], "$X"),
        ([None, "x"], "$X"),
    ):
        found = split_launcher("torchrun", given(*texts))[1]
        assert found is not None and found.text == script, texts


def test_words_of_arrays_and_variables_keep_their_places() -> None:
    text = 'A=(--a "b c" d); B=e; torchrun t.py ${A[@]} $B ${B}f'
    found = [(one.value, one.exact, text[slice(*one.span)]) for one in lines(text)[0].arguments]
    assert found == [
        ("--a", True, "--a"),
        ("b", False, "b"),
        ("c", False, "c"),
        ("d", True, "d"),
        ("e", True, "$B"),
        ("ef", True, "${B}f"),
    ]
    assert not disk.repeats({"content x 5": {}}) and not disk.repeats({"content 5 x": {}})


def test_what_is_left_of_a_write_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file as it was, and nothing beside it."""
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def broken(staged: Path, target: Path) -> None:
        assert staged.read_bytes() == b"new" and target == path.resolve()
        raise OSError("full")

    monkeypatch.setattr(write, "_put", broken)
    with pytest.raises(OSError, match="full"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old" and [one.name for one in tmp_path.iterdir()] == ["a"]


def test_a_file_outside_is_a_problem_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    with boundary.reading([tmp_path / "in"]):
        found = read_bytes(secret)
    assert isinstance(found, Problem) and (found.kind, found.fatal) == (OUTSIDE, True)
    assert found.message == f"not read: {found.brief}" and found.brief.startswith("it lies outside of ")


def test_a_value_on_the_line_below_its_key() -> None:
    for text, after in (
        ("a:\n  1\nb: 2\n", "a:\n  9\nb: 2\n"),
        ("a:\n  [1,\n   2]\nb: 2\n", "a:\n  9\nb: 2\n"),
        ("a: 1 # x\nb: 2\n", "a: 9 # x\nb: 2\n"),
    ):
        document = load_as(SourceText("a.yaml", text), "yaml")
        assert apply_edits(text, replace_value(document, ("a",), "9")) == after
    text = "a:\n  c: 1\n  d: 2\nb: 2\n"
    document = load_as(SourceText("a.yaml", text), "yaml")
    assert yaml.safe_load(apply_edits(text, replace_value(document, ("a",), "9"))) == {"a": 9, "b": 2}


def test_texts_that_are_handed_to_a_shell_have_a_length() -> None:
    for length, found in ((WORD_CHARACTERS, 1), (WORD_CHARACTERS + 1, 0)):
        command = "torchrun t.py".ljust(length)
        read = read_launch_lines(SourceText("run.sh", f"bash -c '{command}'\n"))
        assert len(read.lines) == found
    words = "torchrun t.py " + "x " * ((WORD_CHARACTERS - len("torchrun t.py ")) // 2)
    for more, found in (("", 1), (" y", 0)):
        assert len(read_launch_lines(SourceText("run.sh", f"eval {words}{more}\n")).lines) == found


def test_variables_that_hold_nothing() -> None:
    """Without quotes they are no word."""
    text = "A=\nB='  '\ntorchrun t.py $A x \"$A\" $B y $A$B \"$B\" '' z$A\n"
    (line,) = read_launch_lines(SourceText("run.sh", text)).lines
    assert [word.value for word in line.arguments] == ["x", "", "y", "  ", "", "z"]
