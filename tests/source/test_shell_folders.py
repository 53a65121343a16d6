"""Paths that a script puts together from where it lies and where it was started, as bash has them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.launch.line import LaunchLine
from zerocfg.source.text import SourceText

SCRIPT = "examples/scripts/run.sh"
FOLDERS = "examples/scripts/sub", "examples/configs", "tools"

KNOWN = {
    "dirname of the script": 'torchrun $(dirname "$0")/train.py --deepspeed `dirname $0`/ds.json',
    "with the end of the options": 'torchrun "$(dirname -- "${BASH_SOURCE[0]}")/train.py"',
    "a suffix taken away": 'torchrun "${BASH_SOURCE[0]%/*}/train.py" "${0%/*}/../x"',
    "the folder of a variable": 'P=$(realpath $0)\nD=$(dirname ${P})\ntorchrun $D/train.py --name $(basename "$0" .sh)',
    "cd and pwd": 'D="$( cd -- "$( dirname -- "${BASH_SOURCE[0]}" )" &> /dev/null && pwd )"\ntorchrun $D/../train.py',
    "cd and pwd, apart": 'D=$(cd "$(dirname $0)"/..; pwd -P)\ntorchrun "$D/train.py" --x=$D/configs',
    "cd with a way out": 'D=$(cd "$(dirname "$0")" || exit 1; pwd)\ntorchrun "$D/train.py"',
    "nested": "D=$(dirname $(realpath $(dirname $0)))\ntorchrun $D/scripts/train.py",
    "the folder of the start": "D=`pwd`\ntorchrun $D/tools/x.py --config ${PWD}/y.yaml",
    "above the start": 'torchrun $(dirname "$(pwd)")/x.py',
    "moved there": 'cd "$(dirname "$0")"\ntorchrun ../train.py --deepspeed "$PWD/ds.json"',
    "moved above": 'cd "${BASH_SOURCE[0]%/*}/.." || exit 1\ntorchrun scripts/train.py --deepspeed $(pwd)/ds.json',
    "moved twice": 'D=$(cd "$(dirname "$0")" && pwd)\ncd "$D/../.."\ncd $D\ntorchrun train.py $D/sub/x',
    "moved, and from the start": "ROOT=$PWD\ncd tools\ntorchrun $ROOT/examples/train.py --x $ROOT",
    "moved in a subshell": 'R=$(pwd)\n(cd -- "$(dirname "$0")"; torchrun x.py)\ntorchrun "$R/y.py" "$PWD/z"',
    "a default": 'torchrun ${ROOT:-$(pwd)}/t.py --d ${OTHER:-$(dirname "$0")}/x',
    "a text that is a command": 'base=`pwd`\ncmd="torchrun ${base}/examples/train.py --x ${base}/tools"\neval $cmd',
}
"""What `bash examples/scripts/run.sh` gives a program: every word that holds a path exists below the start."""

OPEN = {
    "the output of another program": "torchrun $(git rev-parse --show-toplevel)/train.py",
    "a date in the path": "torchrun $(pwd)/$(date +%s)/train.py",
    "a pipe": "torchrun $(dirname $0 | tr a b)/train.py",
    "a folder that nobody knows": "cd $1\ntorchrun $(pwd)/train.py",
    "moved in the substitution": "torchrun $(cd tools; dirname $PWD)/train.py",
    "two outputs": "torchrun $(pwd; pwd)/train.py",
    "several paths in one word": 'torchrun "$(pwd):$(pwd)/x.py"',
    "home": "torchrun $(cd ~ && pwd)/train.py",
}


def lines(text: str, name: str = SCRIPT) -> list[LaunchLine]:
    return read_launch_lines(SourceText(name, text)).lines


@pytest.mark.parametrize("case", KNOWN)
def test_paths_are_those_of_bash(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = tmp_path / "start"
    for folder in FOLDERS:
        (start / folder).mkdir(parents=True)
    (start / SCRIPT).write_text(KNOWN[case] + "\n", encoding="utf-8")
    program = tmp_path / "bin" / "torchrun"
    program.parent.mkdir()
    program.write_text('#!/bin/bash\n{ printf "%s\\0" "$PWD" "$@"; printf "\\n"; } >> "$TOLD"\n', encoding="utf-8")
    program.chmod(0o755)
    told = tmp_path / "told"
    environment = {"PATH": f"{program.parent}:{os.environ['PATH']}", "TOLD": str(told)}
    subprocess.run(["bash", SCRIPT], cwd=start, env=environment, check=True, timeout=30)
    received = [line.split("\0")[:-1] for line in told.read_text(encoding="utf-8").splitlines()]
    monkeypatch.chdir(start)  # what the name of the script is seen from
    found = lines(KNOWN[case])
    assert len(found) == len(received)
    for line, (directory, *words) in zip(found, received, strict=True):
        here = start / (line.directory or "")
        assert os.path.realpath(here) == os.path.realpath(directory)
        assert line.script is not None
        ours = [line.script.value, *(word.value for word in line.arguments)]
        assert len(ours) == len(words)
        for mine, theirs in zip(ours, words, strict=True):
            assert mine is not None
            assert _place(here, mine) == _place(Path(directory), theirs)


def _place(folder: Path, word: str) -> str:
    """A path may be written in several ways: where it leads."""
    name, equals, value = word.rpartition("=")
    return name + equals + os.path.realpath(folder / value)


@pytest.mark.parametrize("case", OPEN)
def test_what_only_the_shell_knows_stays_open(case: str) -> None:
    (line,) = lines(OPEN[case] + "\n")
    assert line.script is not None
    assert line.script.value is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("run.slurm", 'torchrun "$(dirname "$0")/train.py"\n', id="by its name"),
        pytest.param("run.sh", '#SBATCH -N 2\ntorchrun "$(dirname "$0")/train.py"\n', id="by its first lines"),
        pytest.param("README.md", '```bash\ntorchrun "$(dirname "$0")/train.py"\n```\n', id="of a page"),
    ],
)
def test_what_is_not_started_where_it_lies(name: str, text: str) -> None:
    """A scheduler starts a copy of the script from its own folder; the shell that a page is typed into lies nowhere."""
    (line,) = lines(text, name)
    assert line.script is not None
    assert line.script.value is None


def test_a_scheduler_starts_in_the_folder_of_the_call() -> None:
    (line,) = lines("cd $SLURM_SUBMIT_DIR\nsrun torchrun ${SLURM_SUBMIT_DIR}/scripts/train.py\n", "jobs/run.slurm")
    assert line.script is not None
    assert line.script.value == "scripts/train.py"


def test_variables_that_hold_the_folder_are_not_told_to_the_program() -> None:
    """Where the job is started is known by no name."""
    (line,) = lines('export PYTHONPATH="$(pwd)"\nHF_HOME=$PWD/x torchrun train.py\n')
    assert line.environment == {"PYTHONPATH": None, "HF_HOME": None}
