"""Options below a launch line that the shell takes for commands of their own, held against bash itself."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.text import SourceText

if TYPE_CHECKING:
    from pathlib import Path

START = "torchrun train.py --first 1"
CASES = {
    "every line continued": (" \\\n  --second 2 \\\n  --third 3\n", []),
    "a backslash is missing": ("\n  --second 2 \\\n  --third 3\n", ["--second", "2", "--third", "3"]),
    "two are missing": ("\n  --second 2\n  --third 3\n", ["--second", "2", "--third", "3"]),
    "a comment in between": (" \\\n# --second 2 \\\n  --third 3\n", ["--third", "3"]),
    "an empty line in between": (" \\\n\n  --third 3\n", ["--third", "3"]),
    "a blank behind the backslash": (" \\ \n  --third 3\n", ["--third", "3"]),
    "the words of a variable": ("\nMORE='--third 3'\n$MORE\n", []),
    "a command in between": ("\necho done\n  --third 3\n", []),
    "an array": ("\nMORE=(\n  --third 3\n)\n", []),
    "a here-document": ("\ncat > /dev/null <<'END'\n  --third 3\nEND\n", []),
    "a redirect": (" 2> /dev/null\n  --third 3\n", ["--third", "3"]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_bash_makes_of_it(name: str, tmp_path: Path) -> None:
    rest, expected = CASES[name]
    (line,) = read_launch_lines(SourceText("train.sh", START + rest)).lines
    assert [word.value for word in line.cut_off] == expected
    stub = 'torchrun() { printf "%s\\n" "$@"; }\necho() { :; }\n'
    bash = subprocess.run(
        ["bash", "--norc", "-c", stub + START + rest], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    read = [line.script.value] if line.script is not None else []
    assert bash.stdout.splitlines() == [*read, *(word.value for word in line.arguments)]
    lost = expected[::2] if name == "two are missing" else expected[:1]
    assert [word for word in lost if f"{word}: command not found" not in bash.stderr] == []


def test_an_operator_ends_the_command() -> None:
    (line,) = read_launch_lines(SourceText("train.sh", f"{START} &\n  --third 3\n")).lines
    assert line.cut_off == ()
