"""fp16 at ZeRO stage 0: when ZC333 speaks, and that the real engine then hardly moves the weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.linter.selection import Selection
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import deepspeed, torch
model = torch.nn.Linear(8, 1)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds.json")
"""


def lint(folder: Path, config: dict[str, Any], pin: str = "deepspeed==0.19.8") -> list[tuple[str, str, int]]:
    """Severity, path and line of what ZC333 finds."""
    given = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 0}, "fp16": {"enabled": True}}
    (folder / "ds.json").write_text(json.dumps(given | config, indent=1))
    (folder / "train.py").write_text(SCRIPT)
    (folder / "run.sh").write_text("deepspeed train.py\n")
    (folder / "requirements.txt").write_text(f"{pin}\n")
    found = Job([folder], Settings(), Selection(select=("ZC333",)), root=folder).lint().diagnostics
    return [(each.severity.value, each.span.path, each.span.start.line) for each in found]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"fp16": {"enabled": True, "loss_scale": 0}},
        {"fp16": {"enabled": True, "loss_scale": 128}},
        {"fp16": {"enabled": True, "initial_scale_power": 8}},
        {"fp16": {"enabled": True, "loss_scale": 0.5}},
    ],
)
def test_a_loss_that_is_not_scaled(tmp_path: Path, config: dict[str, Any]) -> None:
    assert lint(tmp_path, config) == [("error", "fp16.enabled", 7)]


@pytest.mark.parametrize(
    "config",
    [
        {"fp16": {"enabled": True, "loss_scale": 1}},
        {"fp16": {"enabled": False}, "bf16": {"enabled": True}},
        {"fp16": {"enabled": False}},
        {"zero_optimization": {"stage": 1}},
        {"zero_optimization": {"stage": 3}},
        {"fp16": {"enabled": True, "loss_scale": "auto"}},
    ],
)
def test_where_nothing_is_divided_or_known(tmp_path: Path, config: dict[str, Any]) -> None:
    assert lint(tmp_path, config) == []


def test_the_release_that_stopped_scaling(tmp_path: Path) -> None:
    assert lint(tmp_path, {}, "deepspeed==0.18.2") == []
    assert lint(tmp_path, {}, "deepspeed==0.18.3") == [("error", "fp16.enabled", 7)]
    assert lint(tmp_path, {}, "deepspeed==0.16.9") == []


def test_what_is_said(tmp_path: Path) -> None:
    lint(tmp_path, {"fp16": {"enabled": True, "loss_scale": 128}})
    found = Job([tmp_path], Settings(), Selection(select=("ZC333",)), root=tmp_path).lint().diagnostics
    assert "divides the gradients by 128," in found[0].message
    lint(tmp_path, {})
    found = Job([tmp_path], Settings(), Selection(select=("ZC333",)), root=tmp_path).lint().diagnostics
    assert "starts at 2 to the power of 16," in found[0].message


REAL = """
import json, sys
import deepspeed, deepspeed.comm.torch, torch
from deepspeed.accelerator import get_accelerator

sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
get_accelerator().is_fp16_supported = lambda: True
deepspeed.init_distributed("gloo")


def moved(stage, scale):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    config = {
        "train_micro_batch_size_per_gpu": 64,
        "zero_optimization": {"stage": stage},
        "fp16": {"enabled": True, **({} if scale is None else {"loss_scale": scale})},
        "optimizer": {"type": "SGD", "params": {"lr": 0.05}},
        "zero_allow_untested_optimizer": True,
    }
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    given = torch.randn(64, 8)
    wanted = given.sum(1, keepdim=True)
    before = torch.cat([each.detach().float().flatten() for each in engine.module.parameters()])
    for _ in range(20):
        engine.backward(((engine(given.half()).float() - wanted) ** 2).mean())
        engine.step()
    after = torch.cat([each.detach().float().flatten() for each in engine.module.parameters()])
    return (after - before).norm().item(), engine.skipped_steps


print(json.dumps({f"{stage} {scale}": moved(stage, scale) for stage in (0, 1) for scale in (None, 1, 128)}))
"""


@pytest.mark.libs
def test_the_weights_of_the_real_engine(tmp_path: Path) -> None:
    """SGD's step is as large as the gradients. No step is skipped where they hardly move."""
    single = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", REAL],
        cwd=tmp_path,
        env={**os.environ, **single, "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    moved = json.loads(done.stdout.splitlines()[-1])
    whole, skipped = moved["1 1"]
    assert whole > 0.1 and skipped == 0
    assert moved["0 1"][0] == pytest.approx(whole, rel=0.05)
    assert moved["1 128"][0] == pytest.approx(whole, rel=0.05)
    assert moved["1 None"][0] > 0.5 * whole
    far, skipped = moved["0 128"]
    assert 0 < far < whole / 20 and skipped == 0
    assert moved["0 None"][0] < whole / 10_000 and moved["0 None"][1] == 0
