"""A run folder as `zerocfg build` leaves it, written by hand."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from tests.nccl.plugin import collectives, pytest_generate_tests

__all__ = ["MODEL", "PARAMETERS", "MakeRun", "collectives", "make_run", "pytest_generate_tests"]

MODEL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
PARAMETERS = 2 * 64 * 64 + 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128 + 2 * 64) + 64


MANY = {"test_hooks.py": 6, "test_injection.py": 2}
"""Modules of many trainings, and among how many groups their tests are: a single worker would be the last to end."""


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in this hook too
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for number, item in enumerate(items):
        groups = MANY.get(item.path.name) if item.path.parent == Path(__file__).parent else None
        if groups is not None:
            item.add_marker(pytest.mark.xdist_group(f"{item.path.name} {number % groups}"))


class MakeRun(Protocol):
    def __call__(self, stage: int | None = 3, **lock: Any) -> Path: ...


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A factory: ZeRO ``stage`` (None: plain DDP, no DeepSpeed), further entries of the lock."""

    def make(stage: int | None = 3, **lock: Any) -> Path:
        folder = tmp_path / "out" / "tiny"
        folder.mkdir(parents=True)
        accelerate: dict[str, Any] = {"compute_environment": "LOCAL_MACHINE", "num_processes": 4, "num_machines": 1}
        plan: dict[str, Any] = {
            "engine": "ddp" if stage is None else "deepspeed",
            "num_processes": 4,
            "train_micro_batch_size_per_gpu": 2,
            "gradient_accumulation_steps": 2,
            "gradient_clipping": 0.5,
            "bf16.enabled": True,
        }
        files = {"launch.sh": "exec accelerate launch --config_file accelerate.yaml train.py\n"}
        if stage is None:
            accelerate["distributed_type"] = "MULTI_GPU"
        else:
            accelerate["distributed_type"] = "DEEPSPEED"
            accelerate["deepspeed_config"] = {"deepspeed_config_file": "ds_config.json"}
            plan |= {"zero_optimization.stage": stage, "train_batch_size": 16}
            zero = {"stage": stage, "stage3_gather_16bit_weights_on_model_save": True}
            zero |= {"stage3_param_persistence_threshold": 64, "reduce_bucket_size": 100000}
            config = {
                "train_batch_size": 16,
                "train_micro_batch_size_per_gpu": 2,
                "gradient_accumulation_steps": 2,
                "gradient_clipping": 0.5,
                "bf16": {"enabled": True},
                "zero_optimization": zero,
            }
            files["ds_config.json"] = json.dumps(config)
        files["accelerate.yaml"] = yaml.safe_dump(accelerate)
        for name, text in files.items():
            (folder / name).write_text(text)
        content = {
            "version": 1,
            "run": "tiny",
            "consumer": "transformers",
            "model": {"config": MODEL, "facts": {"parameters": PARAMETERS}},
            "recipe": {
                "output_dir": "runs",
                "per_device_train_batch_size": 2,
                "gradient_accumulation_steps": 2,
                "max_grad_norm": 0.5,
                "learning_rate": 0.01,
                "bf16": True,
            },
            "plan": plan,
            "files": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()},
            "versions": {},
        }
        (folder / "zerocfg.lock").write_text(json.dumps(content | lock))
        return folder

    return make
