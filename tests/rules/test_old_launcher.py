"""The local rank that torch's old launcher hands a script: how sure ZC754 is depends on the releases of torch.

torch 2.0 writes `--local-rank` where those before it write `--local_rank` (torch/distributed/launch.py of both).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from zerocfg.linter.selection import Selection
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

TRAIN = """import argparse

import deepspeed

parser = argparse.ArgumentParser()
parser.add_argument("{}", type=int, default=-1)
args = parser.parse_args()
deepspeed.initialize(args=args, model=model, config="ds.json")
"""
LINE = "python -m torch.distributed.launch --nproc_per_node 2 {}train.py\n"


@pytest.mark.parametrize(
    ("option", "torch", "use_env", "severities"),
    [
        ("--rank", "", "", ["error"]),  # whichever release it is
        ("--local_rank", "", "", ["warning"]),
        ("--local_rank", "torch==1.13.1", "", []),
        ("--local_rank", "torch==2.0.0", "", ["error"]),
        ("--local_rank", "torch==2.0.0", "--use_env ", []),
        ("--local-rank", "torch==2.0.0", "", []),
        ("--local-rank", "torch==1.13.1", "", ["error"]),
    ],
)
def test_the_local_rank_of_the_old_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, torch: str, use_env: str, severities: list[str]
) -> None:
    files = {
        "train.py": TRAIN.format(option),
        "train.sh": LINE.format(use_env),
        "ds.json": '{"train_micro_batch_size_per_gpu": 1}',
        "requirements.txt": f"{torch}\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    diagnostics = Job([tmp_path], Settings(), Selection(select=("ZC754",))).lint().diagnostics
    assert [item.severity.value for item in diagnostics] == severities
