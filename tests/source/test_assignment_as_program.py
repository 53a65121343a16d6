"""`NAME=value` behind a program that runs the rest of its words: each line is started by bash, too."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.text import SourceText

BEFORE = [
    "nohup A=1",
    "nohup A=1 B=2",
    "nice A=1",
    "nice -n 5 A=1",
    "nice --adjustment=5 A=1",
    "timeout 5 A=1",
    "timeout -k 5 5 A=1",
    "stdbuf -oL env A=1",
    "stdbuf -oL nice A=1",
    "timeout 5 env A=1",
    "taskset 1 A=1",
    "exec A=1",
    "command A=1",
    "nohup nice A=1",
    "env A=1",
    "env A=1 nohup",
    "A=1 nohup",
    "time A=1",
    "nohup env A=1",
    "timeout 5 nohup env A=1",
    "nohup",
]


def as_program(line: str) -> tuple[str, str] | None:
    (found,) = read_launch_lines(SourceText("run.sh", line)).lines
    return tuple(word.text for word in found.as_program) if found.as_program is not None else None  # type: ignore[return-value]


@pytest.mark.parametrize(
    "before", [one for one in BEFORE if shutil.which(one.split()[0]) or one[:4] in ("exec", "comm")]
)
def test_as_bash_starts_it(before: str) -> None:
    played = subprocess.run(["bash", "-c", f"{before} true"], capture_output=True, check=False)
    assert played.returncode in (0, 127)
    found = as_program(f"{before} torchrun --nproc_per_node 2 train.py\n")
    assert (found is not None) is (played.returncode == 127)
    assert found is None or found[1] == "A=1"


@pytest.mark.parametrize(
    ("before", "found"),
    [  # srun(1): srun [options] executable [arguments]
        ("srun A=1", ("srun", "A=1")),
        ("srun -N 2 --ntasks=2 A=$X", ("srun", "A=$X")),
        ("/usr/bin/srun A=1", ("/usr/bin/srun", "A=1")),
        ("sudo srun A=1", ("srun", "A=1")),
        ("srun --export ALL,A=1", None),
        ("srun --export A=1", None),
        ("srun --export=A=1", None),
        ("srun -l A=1", None),  # which of srun's options take a value is not known here
        ("srun env A=1", None),
        ("srun $OPTIONS A=1", None),
        ("srun wrapper A=1", None),
        ("A=1 srun", None),
    ],
)
def test_behind_srun(before: str, found: tuple[str, str] | None) -> None:
    assert as_program(f"{before} torchrun --nproc_per_node 2 train.py\n") == found
