"""ZC252: an optimizer or a scheduler in the DeepSpeed config and in the script. accelerate is the oracle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from zerocfg.linter.selection import Selection
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

START = """\
import torch
from accelerate import Accelerator
{above}
accelerator = Accelerator()
model = torch.nn.Linear(8, 8)
"""
OPTIMIZER = "optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)\n"
SCHEDULER = "scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)\n"
BOTH = f"{OPTIMIZER}{SCHEDULER}model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)\n"
ONE = f"{OPTIMIZER}model, optimizer = accelerator.prepare(model, optimizer)\n"
DUMMY = "from accelerate.utils import DummyOptim\n"
PLACED = (
    "optimizer = DummyOptim(model.parameters(), lr=1e-4)\nmodel, optimizer = accelerator.prepare(model, optimizer)\n"
)
SECTIONS = {
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 2}},
}
CASES = [
    # imports, the code, the sections, what is refused
    ("", ONE, "", ""),
    ("", ONE, "optimizer", "optimizer"),
    ("", ONE, "scheduler", ""),
    ("", BOTH, "scheduler", "scheduler"),
    ("", BOTH, "optimizer scheduler", "optimizer"),
    (DUMMY, PLACED, "optimizer", ""),
]
PLAY = """
try:
    exec(open("train.py").read())
except ValueError as error:
    print(error)
else:
    print("prepared", type(model).__name__)
"""


def write(folder: Path, above: str, code: str, sections: str) -> None:
    (folder / "train.py").write_text(START.format(above=above) + code, encoding="utf-8")
    config = {name: SECTIONS[name] for name in sections.split()}
    config |= {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 0}}
    (folder / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "accelerate.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    )
    (folder / "run.sh").write_text("accelerate launch --config_file accelerate.yaml train.py\n", encoding="utf-8")


@pytest.mark.parametrize(("above", "code", "sections", "refused"), CASES)
def test_what_is_said(
    above: str, code: str, sections: str, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, above, code, sections)
    monkeypatch.chdir(tmp_path)
    found = Job([tmp_path], Settings(), Selection(select=("ZC252",))).lint().diagnostics
    assert [(one.severity.value, one.message.split("`")[1]) for one in found] == (
        [("error", refused)] if refused else []
    )


def test_an_optimizer_that_may_be_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made by a function of the project, or of two kinds of which one is unknown."""
    monkeypatch.chdir(tmp_path)
    for code in (
        "optimizer = make(model)\nmodel, optimizer = accelerator.prepare(model, optimizer)\n",
        f"optimizer = make(model)\n{OPTIMIZER}model, optimizer = accelerator.prepare(model, optimizer)\n",
        f"{OPTIMIZER}model = accelerator.prepare(model)\n",
        f"{OPTIMIZER}model, optimizer = other.prepare(model, optimizer)\n",
    ):
        write(tmp_path, "from mine import make, other", code, "optimizer")
        assert Job([tmp_path], Settings(), Selection(select=("ZC252",))).lint().diagnostics == []


@pytest.mark.libs
@pytest.mark.parametrize(("above", "code", "sections", "refused"), CASES)
def test_as_accelerate_prepares_it(above: str, code: str, sections: str, refused: str, tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    write(tmp_path, above, code, sections)
    single = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    plugin = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_CONFIG_FILE": "ds.json"}
    done = subprocess.run(
        [sys.executable, "-c", PLAY],
        cwd=tmp_path,
        env={**os.environ, **single, **plugin, "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-600:]
    if refused:
        assert said.startswith(f"You cannot specify a{'n' * (refused == 'optimizer')} {refused} in the config file"), (
            said
        )
    else:
        assert said == "prepared DeepSpeedEngine", said
