"""The steps at which a resumed Trainer saves, logs and evaluates: those of the checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.linter.selection import Selection
from zerocfg.resume.read import read_checkpoint
from zerocfg.resume.target import Target
from zerocfg.resume.text import render
from zerocfg.resume.verdict import judge
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

STATE: dict[str, Any] = {"global_step": 10, "save_steps": 5, "logging_steps": 2, "eval_steps": 5}
SCRIPT = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    "trainer = Trainer(model=model, args=args)\n"
    "trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)\n"
)
LINE = (
    "torchrun --nproc_per_node 2 train.py --output_dir out --resume_from_checkpoint out/checkpoint-10 --save_steps 50"
)
RECIPE = (
    "model_name_or_path: org/model\nstage: sft\ndo_train: true\nfinetuning_type: lora\ntemplate: llama3\n"
    "output_dir: out\nresume_from_checkpoint: out/checkpoint-10\n"
)


STARTS = "llamafactory-cli train sft.yaml\n"


def told(folder: Path, state: object = STATE, **files: str) -> list[tuple[str, str]]:
    """Severity and the underlined text of what ZC827 finds."""
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    place = folder / "out" / "checkpoint-10"
    place.mkdir(parents=True, exist_ok=True)
    (place / "trainer_state.json").write_text(state if isinstance(state, str) else json.dumps(state), encoding="utf-8")
    found = Job([folder], Settings(), Selection(select=("ZC827",)), root=folder).lint().diagnostics
    return [
        (one.severity.value, one.span.file.source.text.splitlines()[one.span.start.line - 1].split(" --")[-1])
        for one in found
    ]


def test_a_script_that_hands_the_checkpoint_on(tmp_path: Path) -> None:
    assert told(tmp_path, train__py=SCRIPT, run__sh=LINE) == [("warning", "save_steps 50")]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("save_steps: 50\n", ["save_steps: 50"]),
        ("save_steps: 50\nlogging_steps: 10\n", ["save_steps: 50", "logging_steps: 10"]),
        ("eval_strategy: steps\neval_steps: 100\n", ["eval_steps: 100"]),
        ("eval_steps: 100\n", []),  # there is no evaluation
        ("eval_strategy: epoch\neval_steps: 100\n", []),
        ("save_steps: 5\n", []),
        ("save_steps: 0.1\n", []),  # a part of the steps, which only the training knows
        ("save_strategy: epoch\nsave_steps: 50\n", []),
        ("save_strategy: 'no'\nsave_steps: 50\n", []),
        ("logging_strategy: epoch\nlogging_steps: 50\n", []),
        ("", []),
    ],
)
def test_a_recipe_of_llamafactory(tmp_path: Path, more: str, expected: list[str]) -> None:
    found = told(tmp_path, run__sh=STARTS, sft__yaml=RECIPE + more)
    assert sorted(found) == sorted(("warning", text) for text in expected)


@pytest.mark.parametrize(
    "state",
    [
        {"global_step": 10},
        {"save_steps": "5"},
        {"save_steps": True},
        {"save_steps": 0},
        [],
        "{",
        "[" * 100_000,
        {"save_steps": 5, "log_history": ["x" * (1 << 20)]},
    ],
    ids=["no steps", "a text", "a truth", "nothing", "a list", "cut off", "deep", "large"],
)
def test_a_state_that_says_nothing(tmp_path: Path, state: object) -> None:
    assert told(tmp_path, state, run__sh=STARTS, sft__yaml=RECIPE + "save_steps: 50\n") == []


@pytest.mark.parametrize(
    ("script", "line"),
    [
        (SCRIPT.replace("resume_from_checkpoint=args.resume_from_checkpoint", ""), LINE),
        (SCRIPT, LINE.replace("checkpoint-10", "checkpoint-20")),
        (SCRIPT, LINE.replace("out/checkpoint-10", "$LAST")),
        (SCRIPT, LINE.replace("out/checkpoint-10", "True")),
        (SCRIPT, LINE.replace(" --resume_from_checkpoint out/checkpoint-10", "")),
    ],
)
def test_a_run_that_does_not_resume_from_it(tmp_path: Path, script: str, line: str) -> None:
    assert told(tmp_path, train__py=script, run__sh=line) == []


def test_a_checkpoint_that_lies_outside_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    outside = tmp_path / "checkpoint-10"
    outside.mkdir()
    (outside / "trainer_state.json").write_text(json.dumps(STATE))
    recipe = RECIPE.replace("out/checkpoint-10", "../checkpoint-10")
    (folder / "sft.yaml").write_text(recipe + "save_steps: 50\n")
    (folder / "run.sh").write_text(STARTS)
    command = [sys.executable, "-m", "zerocfg", "lint", "--no-cache", "--output-format", "concise"]
    read = subprocess.run([*command, "--allow-outside", str(outside)], cwd=folder, capture_output=True, text=True)
    assert "ZC827" in read.stdout
    assert "ZC827" not in subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("steps", "note"),
    [
        ({"save_steps": 50, "logging_steps": 2}, "save_steps 5 instead of 50"),
        ({"save_steps": 50, "logging_steps": 10}, "logging_steps 2 instead of 10, save_steps 5 instead of 50"),
        ({"save_steps": 5}, ""),
        ({}, ""),
    ],
)
def test_check_resume(tmp_path: Path, steps: dict[str, int], note: str) -> None:
    (tmp_path / "trainer_state.json").write_text(json.dumps(STATE))
    checkpoint = read_checkpoint(tmp_path)
    target = Target("run", engine="single", world_size=1, trainer=True, steps=dict(sorted(steps.items())))
    told = [one.message.partition(": ")[2] for one in judge(checkpoint, target).findings if one.kind == "steps"]
    assert told == ([note] if note else [])
    other = Target("run", engine="single", world_size=1, trainer=None, steps=steps)
    assert "steps" not in {one.kind for one in judge(checkpoint, other).findings}
    assert ("fix: write" in render(checkpoint, target, judge(checkpoint, target))) is bool(note)


REAL = """
import json, sys, torch
from transformers import Trainer, TrainerCallback, TrainingArguments

folder, changed = sys.argv[1:]
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def forward(self, x=None, labels=None):
        return {"loss": ((self.layer(x) - labels) ** 2).mean()}
class Seen(TrainerCallback):
    def __init__(self):
        self.steps = []
    def on_save(self, args, state, control, **more):
        self.steps.append(state.global_step)
def run(resume, **more):
    quiet = dict(report_to=[], use_cpu=True, disable_tqdm=True)
    args = TrainingArguments(folder, per_device_train_batch_size=1, **quiet, **more)
    seen = Seen()
    data = [{"x": torch.ones(2), "labels": torch.ones(1)}] * 64
    Trainer(Model(), args, train_dataset=data, callbacks=[seen]).train(resume_from_checkpoint=resume)
    return seen.steps
run(None, max_steps=10, save_steps=5)
if changed == "yes":
    path = folder + "/checkpoint-10/trainer_state.json"
    state = json.load(open(path))
    json.dump(state | {"save_steps": 15}, open(path, "w"))
print("SAVED", run(folder + "/checkpoint-10", max_steps=30, save_steps=15))
"""


@pytest.mark.libs
@pytest.mark.parametrize(("changed", "saved"), [("no", "[15, 20, 25, 30]"), ("yes", "[15, 30]")])
def test_as_the_trainer_does(tmp_path: Path, changed: str, saved: str) -> None:
    pytest.importorskip("transformers")
    done = subprocess.run([sys.executable, "-c", REAL, str(tmp_path), changed], capture_output=True, text=True)
    assert f"SAVED {saved}" in done.stdout, done.stderr[-3000:]
