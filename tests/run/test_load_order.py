"""A model that is loaded before, or behind, the arguments that make ZeRO-3 known to `from_pretrained`."""

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

DS = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": %d}}'
HEAD = "from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments\n"
LOAD = 'model = AutoModelForCausalLM.from_pretrained("m")\n'
ARGS = 'args = TrainingArguments(output_dir="out", deepspeed="ds.json")\n'
TRAIN = "Trainer(model=model, args=args, train_dataset=data).train()\n"


def told(folder: Path, script: str, stage: int = 3, **files: str) -> list[tuple[str, str, str]]:
    """Code, severity and the underlined text."""
    for name, text in {"train__py": script, "ds__json": DS % stage, **files}.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    found = Job([folder], Settings(), Selection(select=("ZC826", "ZC871")), root=folder).lint().diagnostics
    lines = script.splitlines()
    return [
        (
            one.code,
            one.severity.value,
            lines[one.span.start.line - 1][one.span.start.column - 1 : one.span.end.column - 1],
        )
        for one in found
    ]


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


WARNED = [("ZC871", "warning", 'AutoModelForCausalLM.from_pretrained("m")')]
CLASS = (
    "class Run:\n    def load(self):\n        self.model = AutoModelForCausalLM.from_pretrained('m')\n"
    "    def arguments(self):\n        return TrainingArguments(output_dir='out', deepspeed='ds.json')\n"
    "    def train(self):\n        {}\n        {}\n        Trainer(model=self.model, args=args).train()\n\n"
    "Run().train()\n"
)


@pytest.mark.parametrize(
    "script",
    [
        f"{LOAD}{ARGS}{TRAIN}",
        f"def main():\n{indented(LOAD + ARGS + TRAIN)}\nmain()\n",
        f"if __name__ == '__main__':\n{indented(LOAD + ARGS + TRAIN)}",
        f"def get():\n{indented(LOAD)}    return model, 1\n\nmodel, one = get()\n{ARGS}{TRAIN}",
        f'def get():\n    return AutoModelForCausalLM.from_pretrained("m")\n\nmodel = get()\n{ARGS}{TRAIN}',
        f"{LOAD}{TRAIN}".replace("args=args", "args=TrainingArguments(output_dir='out', deepspeed='ds.json')"),
        CLASS.format("self.load()", "args = self.arguments()").replace("'m'", '"m"'),
    ],
)
def test_loaded_first(tmp_path: Path, script: str) -> None:
    assert told(tmp_path, HEAD + script) == WARNED


@pytest.mark.parametrize(
    "script",
    [
        f"{ARGS}{LOAD}{TRAIN}",
        CLASS.format("args = self.arguments()", "self.load()"),
        f"if one:\n{indented(ARGS)}{LOAD}if two:\n{indented(ARGS)}{TRAIN}",  # either may come first
        f"if one:\n{indented(LOAD)}{ARGS}{TRAIN}",
        f"if one:\n{indented(LOAD)}else:\n{indented(ARGS)}{LOAD}{TRAIN}",
        f"{LOAD}model = other()\n{ARGS}{TRAIN}",
        f"{LOAD}{ARGS}{TRAIN}".replace("model = Auto", "teacher = Auto"),
        f"{LOAD}{ARGS}{TRAIN}".replace('("m")', '("m", quantization_config=four_bits)'),
        f"{LOAD}{ARGS}{TRAIN}".replace('("m")', '("m", **more)'),
        "from transformers.integrations import HfDeepSpeedConfig\nkept = HfDeepSpeedConfig('ds.json')\n"
        f"{LOAD}{ARGS}{TRAIN}",
        f"from accelerate import Accelerator\nacc = Accelerator()\n{LOAD}{ARGS}{TRAIN}",
        f"early = TrainingArguments(output_dir='o', deepspeed='ds.json')\n{LOAD}{ARGS}{TRAIN}",
    ],
)
def test_loaded_behind_or_not_certain(tmp_path: Path, script: str) -> None:
    assert told(tmp_path, HEAD + script) == []


def test_below_stage_3(tmp_path: Path) -> None:
    assert told(tmp_path, f"{HEAD}{LOAD}{ARGS}{TRAIN}", stage=2) == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('device_map="auto"', '"auto"'),
        ('device_map={"": 0}', '{"": 0}'),
        ("device_map=None", ""),
        ("device_map=f()", ""),
    ],
)
def test_a_device_map_behind_the_arguments(tmp_path: Path, given: str, expected: str) -> None:
    script = HEAD + ARGS + LOAD.replace('("m")', f'("m", {given})') + TRAIN
    assert told(tmp_path, script) == ([("ZC826", "error", expected)] if expected else [])
    assert told(tmp_path, script, stage=2) == []


REAL = """
import sys
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, TrainingArguments

folder, order = sys.argv[1:]
small = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=32)
LlamaForCausalLM(LlamaConfig(**small)).save_pretrained(folder + "/model")

def load(**more):
    model = AutoModelForCausalLM.from_pretrained(folder + "/model", **more)
    print("ELEMENTS", sum(one.numel() for one in model.parameters()))

def arguments():
    zero = {"stage": 3}
    config = {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": zero}
    return TrainingArguments(output_dir=folder, deepspeed=config, use_cpu=True)

if order == "first":
    load()
kept = arguments()
if order != "first":
    load(**({"device_map": "auto"} if order == "device_map" else {}))
"""


@pytest.mark.libs
@pytest.mark.parametrize(
    ("order", "shown"),
    [
        ("first", "ELEMENTS 3632"),  # 2 x 32 x 16 (embedding, head), 4 x 16 x 16, 3 x 16 x 32, 3 x 16 (norms)
        ("behind", "ELEMENTS 0"),
        ("device_map", "DeepSpeed Zero-3 is not compatible with passing a `device_map`"),
    ],
)
def test_as_the_libraries_do(tmp_path: Path, order: str, shown: str) -> None:
    pytest.importorskip("deepspeed")
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", REAL, str(tmp_path), order],
        capture_output=True,
        text=True,
        env={**os.environ, **place, "ACCELERATE_USE_CPU": "true"},
    )
    assert shown in done.stdout + done.stderr, done.stderr[-3000:]
