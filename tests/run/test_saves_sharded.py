"""A model that ZeRO-3 shards, saved by `save_pretrained` with nothing gathered."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from zerocfg.linter.selection import Selection
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: %d\n%s"
GATHERS = "  zero3_save_16bit_model: true\n"
HEAD = "from accelerate import Accelerator\naccelerator = Accelerator()\n"
PREPARED = "model, optimizer = accelerator.prepare(model, optimizer)\n"
LOOP = "for batch in loader:\n    accelerator.backward(model(batch).loss)\n    optimizer.step()\n"


def told(folder: Path, script: str, stage: int = 3, more: str = GATHERS) -> list[tuple[str, str, int]]:
    """Code, severity and line of what is found in the script, and in the config."""
    (folder / "train.py").write_text(script)
    (folder / "acc.yaml").write_text(CONFIG % (stage, more))
    (folder / "run.sh").write_text("accelerate launch --config_file acc.yaml train.py\n")
    found = Job([folder], Settings(), Selection(select=("ZC401", "ZC468")), root=folder).lint().diagnostics
    return [(one.code, one.severity.value, one.span.start.line) for one in found]


@pytest.mark.parametrize(
    "saves",
    [
        'model.save_pretrained("out")',
        'model.module.save_pretrained("out")',
        'accelerator.unwrap_model(model).save_pretrained("out", is_main_process=True, save_function=accelerator.save)',
        'if accelerator.is_main_process: accelerator.unwrap_model(model).save_pretrained("out")',
    ],
)
def test_saved_as_it_is_sharded(tmp_path: Path, saves: str) -> None:
    script = f"{HEAD}{PREPARED}{LOOP}{saves}\n"
    assert told(tmp_path, script) == [("ZC468", "error", 7)]
    assert told(tmp_path, script, more="") == [("ZC468", "error", 7)]
    assert told(tmp_path, script, stage=2) == []


def test_under_another_name_and_in_a_function(tmp_path: Path) -> None:
    body = f"{PREPARED}plain = accelerator.unwrap_model(model)\nplain.save_pretrained('out')\n"
    inside = "".join(f"    {line}\n" for line in ("accelerator = Accelerator()\n" + body).splitlines())
    assert told(tmp_path, f"from accelerate import Accelerator\ndef main():\n{inside}main()\n") == [
        ("ZC468", "error", 6)
    ]


@pytest.mark.parametrize(
    "rest",
    [
        f'{PREPARED}model.save_pretrained("out", state_dict=accelerator.get_state_dict(model))',
        f'{PREPARED}model.save_pretrained("out", **given)',
        f'{PREPARED}model.save_pretrained("out", True, state)',
        f'model.save_pretrained("out")\n{PREPARED}',
        f'{PREPARED}tokenizer.save_pretrained("out")',
        f'{PREPARED}model = load()\nmodel.save_pretrained("out")',
        f'{PREPARED}with GatheredParameters(model.parameters()):\n    model.save_pretrained("out")',
        f'{PREPARED}if accelerator.distributed_type != "DEEPSPEED":\n    model.save_pretrained("out")',
        f'{PREPARED}accelerator.save_model(model, "out")\nmodel.save_pretrained("config")',
        f'{PREPARED}def later():\n    model.save_pretrained("out")',
        'optimizer = accelerator.prepare(optimizer)\nmodel.save_pretrained("out")',
    ],
)
def test_saved_otherwise_or_perhaps(tmp_path: Path, rest: str) -> None:
    assert told(tmp_path, f"{HEAD}{rest}\n{LOOP}") == []


REAL = """
import sys
import deepspeed, deepspeed.comm.torch, torch
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
from accelerate import Accelerator
from safetensors import safe_open
from transformers import LlamaConfig, LlamaForCausalLM

folder = sys.argv[1]
accelerator = Accelerator()
small = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=32)
model = LlamaForCausalLM(LlamaConfig(**small))
loader = torch.utils.data.DataLoader([0, 1], batch_size=1)
model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters()), loader)

def saved(name, source, **more):
    source.save_pretrained(f"{folder}/{name}", **more)
    with safe_open(f"{folder}/{name}/model.safetensors", "pt") as file:
        print("SAVED", name, sum(file.get_tensor(key).numel() for key in file.keys()))

saved("engine", model)
saved("unwrapped", accelerator.unwrap_model(model))
saved("gathered", accelerator.unwrap_model(model), state_dict=accelerator.get_state_dict(model))
"""


@pytest.mark.libs
def test_as_the_libraries_do(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    launcher = {
        "ACCELERATE_USE_DEEPSPEED": "true",
        "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3",
        "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": "true",
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", REAL, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, **place, **launcher},
    )
    seen = [line for line in done.stdout.splitlines() if line.startswith("SAVED")]
    assert seen == ["SAVED engine 0", "SAVED unwrapped 0", "SAVED gathered 3632"], done.stderr[-3000:]


TRAINED = """\
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("m")
trainer = Trainer(model=model, args=args)
trainer.train()
"""
DERIVED = TRAINED.replace("trainer = Trainer", "class Mine(Trainer): pass\ntrainer = Mine")


@pytest.mark.parametrize("saves", ["model", "trainer.model"])
def test_a_model_that_the_trainer_sharded(tmp_path: Path, saves: str) -> None:
    """Two ranks of transformers 5.23.0 with DeepSpeed 0.19.8 and gloo: 12 tensors, 0 elements."""
    script = f'{TRAINED}{saves}.save_pretrained("out")\n'
    assert told(tmp_path, script) == [("ZC468", "error", 6)]
    assert [code for code, *_ in told(tmp_path, script, more="")] == ["ZC401"]
    assert told(tmp_path, script, stage=2) == []


@pytest.mark.parametrize(
    "script",
    [
        f'{TRAINED}trainer.save_model("out")\nmodel.save_pretrained("out")\n',
        f'{TRAINED}tokenizer.save_pretrained("out")\n',
        f'{TRAINED}model = load()\nmodel.save_pretrained("out")\n',
        f'{TRAINED}model.save_pretrained("out", state_dict=trainer.accelerator.state_dict(model))\n',
        f'{TRAINED.replace("trainer.train()", "pass")}model.save_pretrained("out")\ntrainer.train()\n',
        f'import peft\n{TRAINED}model.save_pretrained("out")\n',
        f'{DERIVED}model.save_pretrained("out")\n',
    ],
)
def test_a_trained_model_that_is_saved_otherwise_or_perhaps(tmp_path: Path, script: str) -> None:
    assert told(tmp_path, script) == []


REAL_TRAINER = """
import sys
import deepspeed, deepspeed.comm.torch, torch
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
from safetensors import safe_open
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

folder = sys.argv[1]
zero = {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True, "stage3_param_persistence_threshold": 0}
config = {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": zero, "zero_allow_untested_optimizer": True}
args = TrainingArguments(
    folder, max_steps=1, per_device_train_batch_size=1, use_cpu=True, save_strategy="no", report_to=[], deepspeed=config
)
small = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=32)
model = LlamaForCausalLM(LlamaConfig(**small))
words = torch.tensor([1, 2, 3])
trainer = Trainer(model, args, train_dataset=[{"input_ids": words, "labels": words}])
trainer.train()
model.save_pretrained(f"{folder}/model")
trainer.model.save_pretrained(f"{folder}/trained")
trainer.save_model(f"{folder}/saved")
for name in ("model", "trained", "saved"):
    with safe_open(f"{folder}/{name}/model.safetensors", "pt") as file:
        print("SAVED", name, sum(file.get_tensor(key).numel() for key in file.keys()))
"""


@pytest.mark.libs
def test_as_the_trainer_does(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    environment = {**os.environ, **place, "DS_ACCELERATOR": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", REAL_TRAINER, str(tmp_path)], capture_output=True, text=True, env=environment
    )
    seen = [line for line in done.stdout.splitlines() if line.startswith("SAVED")]
    assert seen == ["SAVED model 0", "SAVED trained 0", "SAVED saved 3632"], done.stderr[-3000:]
