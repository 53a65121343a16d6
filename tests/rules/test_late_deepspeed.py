"""ZC877: a DeepSpeed config that is assigned to training arguments after they were made. The Trainer is the oracle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zerocfg.linter.selection import Selection
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

START = """\
from setup import config, data
from transformers import LlamaForCausalLM, Trainer, TrainingArguments

args = TrainingArguments(output_dir="out", use_cpu=True, report_to=[]{given})
{late}
trainer = Trainer(model=LlamaForCausalLM(config), args=args, train_dataset=data)
"""
SETUP = """\
from transformers import LlamaConfig

config = LlamaConfig(
    hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, vocab_size=8
)
data = [{"input_ids": [1, 2], "labels": [1, 2]}]
"""
CONFIG = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}'
CASES = [
    # what the arguments are made with, what is done to them, whether the Trainer has DeepSpeed, what is said
    (', deepspeed="ds.json"', "", True, []),
    ("", 'args.deepspeed = "ds.json"', False, ["error"]),
    ("", 'setattr(args, "deepspeed", "ds.json")', False, ["error"]),
    ("", 'args.deepspeed = {"zero_optimization": {"stage": 2}}', False, ["error"]),
    ("", 'args.deepspeed = "missing.json"', False, ["error"]),
    ("", 'if args.deepspeed is None:\n    args.deepspeed = "ds.json"', False, ["warning"]),
    ("", 'args.deepspeed = "ds.json"\nargs.__post_init__()', True, []),
    (', deepspeed="ds.json"', 'args.deepspeed = "missing.json"', True, []),
]
PLAY = """
import builtins, json, os, runpy, sys
import deepspeed, transformers.trainer
opened, plain = [], builtins.open
builtins.open = lambda path, *rest, **more: opened.append(str(path)) or plain(path, *rest, **more)
for name in sys.argv[1:]:
    child = os.fork()  # accelerate keeps its state for as long as a process lives
    if not child:
        trainer = runpy.run_path(name)["trainer"]
        print(json.dumps([trainer.is_deepspeed_enabled, "ds.json" in opened]), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(1)
"""


@pytest.mark.parametrize(("given", "late", "enabled", "said"), CASES)
def test_what_is_said(
    given: str, late: str, enabled: bool, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("setup.py", SETUP), ("train.py", START.format(given=given, late=late)), ("ds.json", CONFIG)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "train.sh").write_text("torchrun --nproc_per_node 2 train.py\n", encoding="utf-8")
    found = Job([tmp_path], Settings(), Selection(select=("ZC877",))).lint().diagnostics
    assert [one.severity.value for one in found] == said
    assert enabled is not bool(said)


@pytest.mark.libs
def test_as_the_trainer_has_it(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    (tmp_path / "setup.py").write_text(SETUP, encoding="utf-8")
    (tmp_path / "ds.json").write_text(CONFIG, encoding="utf-8")
    names = [f"train{number}.py" for number in range(len(CASES))]
    for name, (given, late, _, _) in zip(names, CASES, strict=True):
        (tmp_path / name).write_text(START.format(given=given, late=late), encoding="utf-8")
    assert played(tmp_path, names) == [f"[{enabled}, {enabled}]".lower() for _, _, enabled, _ in CASES]


@pytest.mark.libs
def test_under_the_launcher_of_accelerate(tmp_path: Path) -> None:
    """It switches DeepSpeed on by itself, and what is assigned is not read all the same."""
    pytest.importorskip("deepspeed")
    (tmp_path / "setup.py").write_text(SETUP, encoding="utf-8")
    (tmp_path / "train.py").write_text(START.format(given="", late='args.deepspeed = "ds.json"'), encoding="utf-8")
    plugin = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2"}
    assert played(tmp_path, ["train.py"], plugin) == ["[true, false]"]


def played(folder: Path, names: list[str], more: dict[str, str] | None = None) -> list[str]:
    """Of each script, whether its Trainer has DeepSpeed and whether `ds.json` was opened."""
    single = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", PLAY, *names],
        cwd=folder,
        env={**os.environ, **single, **(more or {}), "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-800:]
    return [line for line in done.stdout.splitlines() if line.startswith("[true") or line.startswith("[false")]
