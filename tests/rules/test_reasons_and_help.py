"""Findings whose reason or help depends on the run: what the libraries do there, and what can be written there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.conftest import ROOT
from zerocfg.cli.main import cli

Found = Callable[..., list[dict[str, Any]]]
TRAINER = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n\n"
    "(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    "Trainer(None, arguments).train()\n"
)
LOOP = (
    "from accelerate import Accelerator\n\naccelerator = Accelerator()\n"
    "model, optimizer = accelerator.prepare(model, optimizer)\naccelerator.backward(loss)\n"
)


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Found:
    """The findings of one rule in some files."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)

    def call(code: str, files: dict[str, str]) -> list[dict[str, Any]]:
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        done = CliRunner().invoke(cli, ["lint", "--select", code, "--output-format", "json", "--no-cache"])
        diagnostics: list[dict[str, Any]] = json.loads(done.stdout)["diagnostics"]
        return diagnostics

    return call


@pytest.mark.parametrize(
    ("line", "said"),
    [
        # accelerate 1.15.0 with a double of torch.cuda: simple_launcher with one device, multi_gpu_launcher otherwise
        ("CUDA_VISIBLE_DEVICES=3 accelerate launch --num_processes 4 train.py", "starts one process, not 4"),
        (
            "CUDA_VISIBLE_DEVICES=3 accelerate launch --multi_gpu --num_processes 4 train.py",
            "shows 1 device to 4 processes",
        ),
        ("CUDA_VISIBLE_DEVICES=3,4 accelerate launch --num_processes 4 train.py", "shows 2 devices to 4 processes"),
        ("CUDA_VISIBLE_DEVICES=3 torchrun --nproc_per_node 4 train.py --deepspeed d", "shows 1 device to 4 processes"),
    ],
)
def test_devices_that_are_too_few(line: str, said: str, found: Found) -> None:
    (one,) = found("ZC743", {"train.py": TRAINER, "run.sh": f"{line} --output_dir out\n"})
    assert one["severity"] == "error" and said in one["message"], one["message"]


def test_a_config_says_how_many_processes_there_are(found: Found) -> None:
    config = "distributed_type: MULTI_GPU\nnum_processes: 4\n"
    line = "CUDA_VISIBLE_DEVICES=3 accelerate launch --config_file a.yaml train.py --output_dir out\n"
    (one,) = found("ZC743", {"train.py": TRAINER, "a.yaml": config, "run.sh": line})
    assert "shows 1 device to 4 processes" in one["message"]


@pytest.mark.parametrize(
    ("processes", "degrees", "said"),
    [
        (8, "megatron_lm_tp_degree: 2", "pairs of processes train on the same samples, each on half of every sequence"),
        (8, "megatron_lm_tp_degree: 2\n  megatron_lm_pp_degree: 2", "pairs of processes train on the same samples"),
        (2, "megatron_lm_tp_degree: 2", "2 processes cannot be shared out by 2 * 1 * 2, and Megatron stops"),
        (6, "megatron_lm_pp_degree: 2", "6 processes cannot be shared out by 1 * 2 * 2, and Megatron stops"),
    ],
)
def test_context_parallel_pairs(processes: int, degrees: str, said: str, found: Found) -> None:
    config = f"distributed_type: MEGATRON_LM\nnum_processes: {processes}\nmegatron_lm_config:\n  {degrees}\n"
    line = "accelerate launch --config_file a.yaml train.py\n"
    (one,) = found("ZC647", {"train.py": LOOP, "a.yaml": config, "run.sh": line})
    assert one["severity"] == "warning" and said in one["message"], one["message"]


@pytest.mark.parametrize(
    ("written", "help"),
    [("[GPT2Block]", "write LlamaDecoderLayer"), ("[LlamaDecoderLayer, LlamaMLP]", "write LlamaDecoderLayer,LlamaMLP")],
)
def test_the_layer_class_that_the_model_has(written: str, help: str, found: Found, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "fsdp", tmp_path / "job", ignore=shutil.ignore_patterns("built"))
    config = tmp_path / "job" / "accelerate.yaml"
    lines = [line for line in config.read_text().splitlines() if "layer_cls_to_wrap" not in line]
    at = next(index for index, line in enumerate(lines) if line.startswith("fsdp_config:"))
    lines.insert(at + 1, f"  fsdp_transformer_layer_cls_to_wrap: {written}")
    config.write_text("\n".join(lines) + "\n")
    (one,) = found("ZC605", {})
    assert one["help"] == help, one


@pytest.mark.parametrize(
    ("script", "help"),
    [
        (TRAINER, "it is an argument of the Trainer: say it in the training arguments"),
        (LOOP, "give it to the training script, whose own loop has to use it"),
    ],
)
def test_an_argument_of_the_trainer_in_an_accelerate_config(script: str, help: str, found: Found) -> None:
    config = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n  logging_steps: 3\n"
    line = "accelerate launch --config_file a.yaml train.py --output_dir out\n"
    (one,) = found("ZC103", {"train.py": script, "a.yaml": config, "run.sh": line})
    assert "`logging_steps`" in one["message"] and one["help"] == help, one


@pytest.mark.parametrize(
    ("admits", "help"),
    [
        # ModelConfig: `torch_dtype` until 0.26, `dtype` from 0.23 on
        (
            "trl>=0.19.1",
            "write dtype, and require trl>=0.23.0: older releases have no `dtype`",
        ),
        ("trl>=0.24", "write dtype"),
        ("trl==1.0.0", "write dtype"),
    ],
)
def test_the_release_that_the_new_name_needs(admits: str, help: str, found: Found) -> None:
    script = (
        "from trl import ModelConfig, ScriptArguments, SFTConfig, SFTTrainer, TrlParser\n\n"
        "s, c, m = TrlParser((ScriptArguments, SFTConfig, ModelConfig)).parse_args_and_config()\n"
        "SFTTrainer(m.model_name_or_path, args=c).train()\n"
    )
    recipe = "model_name_or_path: a/b\ntorch_dtype: bfloat16\noutput_dir: out\nper_device_train_batch_size: 1\n"
    line = "accelerate launch --num_processes 4 train.py --config recipe.yaml\n"
    files = {"train.py": script, "recipe.yaml": recipe, "run.sh": line, "requirements.txt": f"{admits}\n"}
    (one,) = found("ZC840", files)
    assert (one["file"], one["start"]["line"], one["help"]) == ("recipe.yaml", 2, help)


BUCKETS = '{"zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 5e8}%s}\n'
ENGINE = "import deepspeed\n\nengine, *_ = deepspeed.initialize(model=model, config='ds.json')\n"
OPENED = (
    "import json\n\nimport deepspeed\n\nwith open('ds.json') as file:\n    config = json.load(file)\n"
    "config['bf16'] = {'enabled': True}\nengine, *_ = deepspeed.initialize(model=model, config=config)\n"
)


@pytest.mark.parametrize(
    ("precision", "script", "gib"),
    [
        ("", "", None),  # whoever reads it may train in 16 bit: 1.9 GiB
        ("", OPENED, None),
        ("", ENGINE, "3.7"),
        (', "bf16": {"enabled": false}', "", "3.7"),
        (', "bf16": {"enabled": true}', ENGINE, None),
    ],
)
def test_buckets_of_a_precision_that_a_script_adds(precision: str, script: str, gib: str | None, found: Found) -> None:
    files = {"ds.json": BUCKETS % precision}
    if script:
        files |= {"train.py": script, "run.sh": "deepspeed --num_gpus 2 train.py\n"}
    told = [one["message"] for one in found("ZC902", files)]
    assert len(told) == (gib is not None) and all(f"take {gib} GiB" in message for message in told), told
