"""An option of a launch line knows what the launcher gets, its place, and the edits that are possible there."""

from __future__ import annotations

import shlex

import pytest

from zerocfg.rules.api import Fix
from zerocfg.rules.line import line_fix, line_option, option_at
from zerocfg.run.model import UNKNOWN, Origin, Run, SourceFile
from zerocfg.source.edit import apply_edits
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.text import SourceText, Span

LINE = 'deepspeed -i localhost:0 --num_gpus 2 --include "0,1" --master-port $PORT --no_ssh --num_nodes=4 a.py --x 1\n'


def started(text: str = LINE) -> Run:
    source = SourceText("train.sh", text)
    (line,) = read_launch_lines(source).lines
    return Run("run", launch=line, launch_file=SourceFile("train.sh", "launch", source))


def words(fix: Fix | None) -> list[str]:
    """The words of the line after a fix, as a shell's own rules split them."""
    assert fix is not None
    return shlex.split(apply_edits(LINE, [edit for _, edit in fix.edits]))


@pytest.mark.parametrize(
    ("names", "name", "value", "count"),
    [
        (("num_gpus",), "--num_gpus", "2", 2),
        (("num_nodes",), "--num_nodes", "4", 4),
        (("include", "i"), "--include", "0,1", None),
        (("i",), "-i", "localhost:0", None),
        (("no_ssh",), "--no_ssh", True, None),
        (("master_port",), "--master-port", UNKNOWN, None),
    ],
)
def test_what_the_launcher_gets(names: tuple[str, ...], name: str, value: object, count: int | None) -> None:
    option = line_option(started(), *names)
    assert option and (option.name, option.value, option.count) == (name, value, count)
    assert option.text == (value if isinstance(value, str) else None)


def test_one_that_is_not_given_is_false() -> None:
    for option in (line_option(started(), "hostfile", "x"), line_option(Run("run"), "num_gpus")):
        assert not option and option.value is None and option.count is None and option.raw == ""
        assert option.delete("w") is None and option.with_value("1") is None and option.reworded("--y") is None


def test_of_two_the_last_counts() -> None:
    twice = started("torchrun --nnodes 2 --nproc_per_node 8 --nnodes 4 train.py\n")
    assert line_option(twice, "nnodes").count == 4


def test_a_finding_is_at_the_whole_option() -> None:
    span = line_option(started(), "master_port").finding("m").location.concrete()
    assert LINE[span.start : span.end] == "--master-port $PORT"


def test_edits() -> None:
    run = started()
    gpus, nodes = line_option(run, "num_gpus"), line_option(run, "num_nodes")
    before = shlex.split(LINE)
    assert words(gpus.delete("w")) == [word for word in before if word not in ("--num_gpus", "2")]
    assert words(line_fix(run, "w", nodes.with_value("5"))) == [w.replace("=4", "=5") for w in before]
    assert words(line_fix(run, "w", nodes.reworded("--y 5")))[-5:] == ["--y", "5", "a.py", "--x", "1"]
    deleted, unsafe = gpus.delete("w"), gpus.delete("w", safe=False)
    assert deleted is not None and deleted.safe and unsafe is not None and not unsafe.safe


def test_what_comes_out_of_a_variable_is_not_edited() -> None:
    option = line_option(started("N=gpus\ndeepspeed --num_$N 2 train.py\n"), "num_gpus")
    assert option.count == 2 and option.words is None
    assert option.delete("w") is None and option.with_value("1") is None and option.reworded("--y") is None


def test_its_words_are_those_of_the_file() -> None:
    run = started()
    assert line_option(run, "include").words == '--include "0,1"' and line_option(run, "include").raw == '"0,1"'
    assert line_option(run, "master_port").raw == "$PORT" and line_option(run, "no_ssh").raw == ""


def test_an_option_is_found_by_its_place() -> None:
    run = started()
    for option in (line_option(run, "num_gpus"), line_option(run, "no_ssh")):
        assert option_at(run, option.origin) == option
    assert not option_at(run, Origin("flag", "--num_gpus", None, span=Span(0, 1)))
    assert not option_at(run, Origin("flag", "--num_gpus", run.launch_file, span=Span(0, 1)))
