"""A here-document that `read` puts into a variable, and the programs that launch scripts start besides trainings."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from zerocfg.frontends.registry import programs
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.text import SourceText

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.source.launch.line import LaunchFile

TEXT = "read -r -d '' cmd {mark}\n  tool.py \\\n   --model $NAME --bf16\n\nEOF\ndeepspeed --num_gpus 2 $cmd\n"


def read(text: str) -> LaunchFile:
    return read_launch_lines(SourceText("run.sh", text), programs())


def words(text: str) -> list[str | None]:
    (line,) = read(text).lines
    assert line.script is not None
    return [line.script.value, *(word.value for word in line.arguments)]


@pytest.mark.parametrize("flags", ["-r -d ''", "-rd ''", '-r -d ""', "-d '' -r"])
def test_the_words_of_the_variable(flags: str, tmp_path: Path) -> None:
    """As bash splits them, which a stand-in for the launcher prints."""
    text = "NAME=m\n" + TEXT.format(mark="<<EOF").replace("-r -d ''", flags)
    assert words(text) == ["tool.py", "--model", "m", "--bf16"]
    shown = subprocess.run(
        ["bash", "-c", 'deepspeed() { printf "%s\\n" "$@"; }\n' + text], capture_output=True, text=True, cwd=tmp_path
    )
    assert shown.stdout.split() == ["--num_gpus", "2", "tool.py", "--model", "m", "--bf16"]


def test_quoted_text_keeps_its_dollars() -> None:
    text = "NAME=m\nread -r -d '' cmd <<'EOF'\ntool.py --model $NAME\nEOF\ndeepspeed --num_gpus 2 $cmd\n"
    assert words(text) == ["tool.py", "--model", "$NAME"]


@pytest.mark.parametrize("command", ["read cmd", "read -r cmd", "read -r -d '' first cmd", "read -r -d ';' cmd"])
def test_less_than_the_whole_text_is_not_known(command: str) -> None:
    lines = read(TEXT.format(mark="<<EOF").replace("read -r -d '' cmd", command)).lines
    assert all(line.script is None or line.script.value is None for line in lines)


@pytest.mark.parametrize(
    ("command", "program", "started"),
    [
        ("python3 -m verl.trainer.main_ppo a=1", "verl", "verl.trainer.main_ppo"),
        ("srun torchrun -m torchtitan.train", "torchtitan", "torchtitan.train"),
        ("torchrun /opt/torchtitan/train.py", "torchtitan", "/opt/torchtitan/train.py"),
        ("torchrun Megatron-LM/pretrain_gpt.py --fp16", "Megatron-LM", "Megatron-LM/pretrain_gpt.py"),
        ("ray job submit --address x -- python3 train.py --num-rollout 3", "slime", "train.py"),
        ("ray job submit -- python3 -m openrlhf.cli.train_ppo_ray", "OpenRLHF", "openrlhf.cli.train_ppo_ray"),
    ],
)
def test_other_training_programs(command: str, program: str, started: str) -> None:
    assert [(item.program, item.started) for item in read(command + "\n").others] == [(program, started)]


@pytest.mark.parametrize(
    "command",
    [
        "# python3 -m verl.trainer.main_ppo",
        "echo python3 -m verl.trainer.main_ppo",
        "python3 -m verl.trainers",
        "pip install torchtitan",
        "torchrun my_pretrain_gpt.py",
        "torchrun train.py --num_rollouts 3",
        "ray start --head --num-rollout 3",
        "python3 openrlhf.cli.train_sft.py",
    ],
)
def test_what_only_looks_like_one(command: str) -> None:
    assert read(command + "\n").others == []
