"""`zerocfg.check_or_raise()` at the top of a training script, started by the real launchers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """\
import zerocfg
zerocfg.check_or_raise()
print("the model would load now")
"""
ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_processes: 2
deepspeed_config:
  deepspeed_config_file: ds_config.json
"""
GOOD = '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": "auto"}'
BAD = GOOD.replace('"stage": 2', '"stage": 2, "overlap_com": true')


def started(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ACCELERATE_")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "accelerate.yaml").write_text(ACCELERATE)
    (tmp_path / "good.json").write_text(GOOD)
    (tmp_path / "bad.json").write_text(BAD)
    return tmp_path


def test_a_recipe_and_a_config_on_the_command_line(folder: Path) -> None:
    """Started without a launcher, as `python train.py`."""
    (folder / "recipe.yaml").write_text("output_dir: out\nper_device_train_batch_size: 4\nbf16: true\n")
    good = started(folder, sys.executable, "train.py", "recipe.yaml", "--deepspeed", "good.json")
    assert good.returncode == 0 and "would load now" in good.stdout, good.stderr
    bad = started(folder, sys.executable, "train.py", "recipe.yaml", "--deepspeed", "bad.json")
    assert bad.returncode == 1 and "would load now" not in bad.stdout
    assert "overlap_com" in bad.stderr and "bad.json:1:" in bad.stderr and "ConfigError" in bad.stderr


def test_nothing_to_look_at_is_fine(folder: Path) -> None:
    done = started(folder, sys.executable, "train.py", "--epochs", "3", "it's")
    assert done.returncode == 0 and "would load now" in done.stdout, done.stderr


def test_files_may_be_named(folder: Path) -> None:
    (folder / "train.py").write_text(SCRIPT.replace("raise()", 'raise("bad.json")'))
    done = started(folder, sys.executable, "train.py")
    assert done.returncode == 1 and "overlap_com" in done.stderr


@pytest.mark.libs
@pytest.mark.parametrize("name", ["good", "bad"])
def test_under_accelerate_launch(folder: Path, name: str) -> None:
    """Each rank stops before anything else; the first one alone says why."""
    (folder / "ds_config.json").write_text((folder / f"{name}.json").read_text())
    done = started(
        folder, "accelerate", "launch", "--config_file", "accelerate.yaml", "--main_process_port", "0", "train.py"
    )
    if name == "good":
        assert done.returncode == 0 and done.stdout.count("would load now") == 2, done.stderr
    else:
        assert done.returncode == 1 and "would load now" not in done.stdout
        assert done.stderr.count("`overlap_com`") == 1 and "ds_config.json:1:" in done.stderr
