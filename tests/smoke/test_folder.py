"""What needs no library: reading run folders, reductions, the device, the command's refusals."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from zerocfg.cli.smoke import command
from zerocfg.smoke import process
from zerocfg.smoke.device import Device, choose
from zerocfg.smoke.folder import SmokeError, read
from zerocfg.smoke.reduce import reduce
from zerocfg.smoke.shrink import shrink

if TYPE_CHECKING:
    from .conftest import MakeRun

CPU = Device("cpu", "cpu")
CARD = Device("cuda", "card", 1, 80 * 2**30)


def change(folder: Path, name: str, **values: Any) -> None:
    content = json.loads((folder / name).read_text())
    content.update(values)
    (folder / name).write_text(json.dumps(content))


def test_reads_what_build_wrote(make_run: MakeRun) -> None:
    run = read(make_run(3))
    assert (run.name, run.consumer, run.changed) == ("tiny", "transformers", {})
    assert run.deepspeed is not None and run.deepspeed["zero_optimization"]["stage"] == 3


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "zerocfg.lock").unlink(), "holds no zerocfg.lock"),
        (lambda folder: (folder / "zerocfg.lock").write_text("{"), "cannot be read"),
        (lambda folder: (folder / "zerocfg.lock").write_text("[]"), "does not hold a mapping"),
        (lambda folder: (folder / "zerocfg.lock").write_bytes(b"\xff\xfe"), "cannot be read"),
        (lambda folder: change(folder, "zerocfg.lock", version=3), "version 3"),
        (lambda folder: change(folder, "zerocfg.lock", plan=[]), "no mapping 'plan'"),
        (lambda folder: (folder / "ds_config.json").unlink(), "ds_config.json is missing"),
        (lambda folder: (folder / "accelerate.yaml").write_text("a: ["), "accelerate.yaml cannot be read"),
    ],
)
def test_unusable_folders_are_refused(spoil: Any, said: str, make_run: MakeRun) -> None:
    folder = make_run(3)
    spoil(folder)
    with pytest.raises(SmokeError, match=said):
        read(folder)
    result = CliRunner().invoke(command, [str(folder)])
    assert result.exit_code in (1, 2) and said in result.output and "Traceback" not in result.output


def test_the_run_below_is_suggested(make_run: MakeRun) -> None:
    folder = make_run(3)
    with pytest.raises(SmokeError, match=r"did you mean .*tiny\?"):
        read(folder.parent)
    with pytest.raises(SmokeError, match="there is no folder"):
        read(folder / "nothing")


def test_missing_libraries_are_told(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "deepspeed" else real(name))
    result = CliRunner().invoke(command, [str(make_run(3))])
    assert "pip install 'zerocfg[smoke]'" in result.output and "deepspeed is not installed" in result.output


def test_a_card_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert choose("auto").kind == "cpu"
    with pytest.raises(SmokeError, match="no NVIDIA card"):
        choose("cuda")


def test_cards_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA A, B, 81920'\necho 'NVIDIA C, 40960'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert choose("auto") == Device("cuda", "NVIDIA A, B", 2, 40960 * 2**20)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert choose("cuda").count == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert choose("auto").kind == "cpu"


def test_what_fits_is_not_reduced(make_run: MakeRun, tmp_path: Path) -> None:
    run = read(make_run(3))
    reduced = reduce(run, CARD, 4, tmp_path)
    assert reduced.model == run.lock["model"]["config"]
    assert reduced.deepspeed == run.deepspeed
    assert [words for words in reduced.words if not words.startswith("sequence length")] == []


def test_reductions_are_told(make_run: MakeRun, tmp_path: Path) -> None:
    big = {"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64}
    big |= {"num_key_value_heads": 8, "vocab_size": 128256, "intermediate_size": 28672, "head_dim": 128}
    folder = make_run(3, model={"config": big, "facts": {"parameters": 70_553_706_496}})
    config = json.loads((folder / "ds_config.json").read_text())
    config["zero_optimization"] |= {"reduce_bucket_size": 5e8, "zero_hpz_partition_size": 4}
    config["zero_optimization"]["offload_optimizer"] = {"device": "nvme", "nvme_path": "/nothing/here"}
    config["fp16"] = {"enabled": True}
    del config["bf16"]
    (folder / "ds_config.json").write_text(json.dumps(config))
    run = read(folder)
    run.plan.update({"bf16.enabled": False, "fp16.enabled": True})
    reduced = reduce(run, CPU, 2, tmp_path)
    text = "\n".join(reduced.words)
    for part in ("num_hidden_layers 80 to 2", "num_key_value_heads 8 to 2", "world size: 4 to 2", "fp16 to bf16"):
        assert part in text
    for part in ("reduce_bucket_size: 500000000 to", "zero_hpz_partition_size: 4 to 2", "offload_optimizer"):
        assert part in text
    assert reduced.deepspeed is not None and run.deepspeed is not None
    assert reduced.deepspeed["zero_optimization"]["stage"] == 3
    assert run.deepspeed["fp16"] == {"enabled": True}, "the run itself is left as it is"
    assert reduced.plan["bf16.enabled"] is True and reduced.deepspeed["bf16"] == {"enabled": True}


def test_small_models_keep_their_shape() -> None:
    config = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 1, "num_hidden_layers": 40}
    config |= {"num_local_experts": 64, "vocab_size": 50000, "layer_types": ["a", "b"] * 20, "eos_token_id": [49999]}
    small, changes = shrink({"text_config": config})
    text = small["text_config"]
    assert text["hidden_size"] % text["num_attention_heads"] == 0
    assert text["num_key_value_heads"] == 1
    assert len(text["layer_types"]) == text["num_hidden_layers"]
    assert text["eos_token_id"][0] < text["vocab_size"]
    assert any(line.startswith("text_config.hidden_size 4096") for line in changes)


def test_locks_of_a_killed_compilation_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch would wait for ever for such a lock; one that was there before the run is not touched."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    old, new = tmp_path / "other" / "lock", tmp_path / "py" / "cpu_adam" / "lock"
    for lock in (old, new):
        lock.parent.mkdir(parents=True)
    old.touch()
    os.utime(old, (1, 1))
    outcome = process.run(["sh", "-c", f"touch {new}; kill -9 $$"], tmp_path, 1, "cpu", 20)
    assert outcome.failure == "the launcher ended with exit code -9"
    assert old.exists() and not new.exists()


def test_parent_imports_no_training_library() -> None:
    code = "import sys, zerocfg.smoke.smoke\nprint('torch' in sys.modules, 'accelerate' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
