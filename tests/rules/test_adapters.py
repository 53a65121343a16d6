"""ZC872: adapters under DDP with reentrant checkpointing, by release. What stops was seen on two processes with
transformers 5.23.0 and TRL 1.16.0, 4.57.1 and 0.24.0, 4.45.2 and 0.11.3; the rest is in the libraries' source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.linter.selection import Selection
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """from peft import LoraConfig
from transformers import HfArgumentParser
from trl import {method}Config, {method}Trainer, ModelConfig, get_peft_config
{arguments}
{method}Trainer(model="m", train_dataset=data{given}).train()
"""
TORCHRUN = "torchrun --nproc_per_node 2 train.py\n"
OLD, MIDDLE, NEW = (
    f"transformers=={transformers}\ntrl=={trl}\n"
    for transformers, trl in (("4.45.2", "0.11.3"), ("4.57.1", "0.24.0"), ("5.23.0", "1.16.0"))
)
ON = "gradient_checkpointing=True"
REENTRANT = 'gradient_checkpointing_kwargs={"use_reentrant": True}'
OTHER = REENTRANT.replace("True", "False")
KWARGS, ADAPTER = '{"use_reentrant": True}', "LoraConfig()"


def told(
    folder: Path,
    requirements: str,
    arguments: str | None,
    *,
    line: str = TORCHRUN,
    method: str = "SFT",
    adapter: str | None = ADAPTER,
) -> list[tuple[str, str]]:
    """Severity and underlined text of each finding. ``arguments`` None: the trainer makes its own."""
    made = f'args = {method}Config(output_dir="out", {arguments})' if arguments is not None else ""
    given = (", args=args" if made else "") + (f", peft_config={adapter}" if adapter else "")
    script = SCRIPT.format(method=method, arguments=made, given=given)
    (folder / "train.py").write_text(script, encoding="utf-8")
    (folder / "run.sh").write_text(line, encoding="utf-8")
    (folder / "requirements.txt").write_text(requirements, encoding="utf-8")
    found = Job([folder], Settings(), Selection(select=("ZC872",)), root=folder).lint().diagnostics
    lines = script.splitlines()
    return [
        (one.severity.value, lines[one.span.start.line - 1][one.span.start.column - 1 : one.span.end.column - 1])
        for one in found
    ]


@pytest.mark.parametrize("method", ["SFT", "DPO"])
@pytest.mark.parametrize(
    ("requirements", "arguments", "place"),
    [
        (OLD, None, None),
        (OLD, ON, "True"),
        (OLD, f"{ON}, {REENTRANT}", KWARGS),
        (OLD, f"{ON}, {OTHER}", None),
        (OLD, REENTRANT, None),
        (MIDDLE, None, ADAPTER),
        (MIDDLE, "", ADAPTER),
        (MIDDLE, "gradient_checkpointing=False", None),
        (MIDDLE, OTHER, None),
        (MIDDLE, REENTRANT, KWARGS),
        (MIDDLE, "ddp_find_unused_parameters=False", None),
        (MIDDLE, "ddp_find_unused_parameters=True", ADAPTER),
        (MIDDLE, "ddp_find_unused_parameters=unused", None),
        (NEW, None, None),
        (NEW, ON, None),
        (NEW, REENTRANT, KWARGS),
        (NEW, f"{ON}, {REENTRANT}", KWARGS),
        ("", None, None),
        ("", REENTRANT, KWARGS),
        ("transformers==4.57.3\ntrl==0.26.2\n", None, ADAPTER),
        ("transformers==4.57.3\ntrl==0.27.0\n", None, None),
        ("transformers==5.0.0\ntrl==0.26.2\n", None, None),
        ("transformers<5\ntrl>=0.22,<0.27\n", None, ADAPTER),
        ("transformers==4.57.3\ntrl>=0.21,<0.27\n", None, None),
        ("transformers==4.57.3\ntrl>=0.21,<0.27\n", ON, "True"),
    ],
)
def test_by_release(tmp_path: Path, method: str, requirements: str, arguments: str | None, place: str | None) -> None:
    assert told(tmp_path, requirements, arguments, method=method) == ([("error", place)] if place else [])


@pytest.mark.parametrize(("method", "place"), [("SFT", None), ("DPO", ADAPTER)])
def test_a_trl_that_goes_with_no_transformers_5(tmp_path: Path, method: str, place: str | None) -> None:
    """TRL 0.26.2 imports its DPOTrainer with transformers 4.57.6 and not with 5 (played), its SFTTrainer with both."""
    requirements = "transformers>=4.57\ntrl==0.26.2\n"
    assert told(tmp_path, requirements, None, method=method) == ([("error", place)] if place else [])


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"line": TORCHRUN.replace("2", "1")}, False),
        ({"line": "python train.py\n"}, False),
        ({"line": "torchrun --nproc_per_node $N train.py\n"}, False),
        ({"line": "accelerate launch --num_processes 2 train.py\n"}, True),
        ({"line": "accelerate launch --num_processes 2 --use_deepspeed --zero_stage 2 train.py\n"}, False),
        ({"line": "accelerate launch --num_processes 2 --use_fsdp train.py\n"}, False),
        ({"adapter": None}, False),
        ({"adapter": "None"}, False),
        ({"adapter": "LoraConfig() if lora else None"}, False),
        ({"adapter": "make_config()"}, False),
        ({"method": "GRPO"}, False),
    ],
)
def test_by_run(tmp_path: Path, changed: dict[str, Any], expected: bool) -> None:
    assert told(tmp_path, NEW, REENTRANT, **changed) == ([("error", KWARGS)] if expected else [])


PARSED = """from trl import DPOConfig, DPOTrainer, ModelConfig, TrlParser, get_peft_config
args, model_args = TrlParser((DPOConfig, ModelConfig)).parse_args_and_config()
DPOTrainer(model="m", args=args, train_dataset=data, peft_config=get_peft_config(model_args)).train()
"""


@pytest.mark.parametrize(("use_peft", "expected"), [("true", 1), ("false", 0), (None, 0)])
def test_a_recipe_chooses_the_adapter(tmp_path: Path, use_peft: str | None, expected: int) -> None:
    (tmp_path / "train.py").write_text(PARSED, encoding="utf-8")
    (tmp_path / "run.sh").write_text(TORCHRUN.replace(".py", ".py --config r.yaml"), encoding="utf-8")
    recipe = "output_dir: out\ngradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: true}\n"
    (tmp_path / "r.yaml").write_text(recipe + (f"use_peft: {use_peft}\n" if use_peft else ""), encoding="utf-8")
    found = Job([tmp_path], Settings(), Selection(select=("ZC872",)), root=tmp_path).lint().diagnostics
    assert [(one.span.file.source.name.rsplit("/", 1)[-1], one.span.start.line) for one in found] == [
        ("r.yaml", 3)
    ] * expected
