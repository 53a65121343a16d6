"""Whether a new install starts the script, and what a finding about some releases is worth where it does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from zerocfg.linter.engine import Result
from zerocfg.linter.selection import Selection
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

Lint = Callable[..., Result]

TRAIN = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments
{above}
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(model=model, args=args, train_dataset=data).train()
"""
LINE = "torchrun --nproc_per_node 2 train.py --output_dir o --evaluation_strategy no\n"
"""transformers refuses the option from 4.51 on: ZC801."""
WARNED, NOTED, SILENT = ["warning"], ["note"], list[str]()


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lint:
    def ask(above: str = "", requirements: str = "") -> Result:
        (tmp_path / "train.py").write_text(TRAIN.format(above=above), encoding="utf-8")
        (tmp_path / "train.sh").write_text(LINE, encoding="utf-8")
        (tmp_path / "requirements.txt").write_text(requirements, encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        return Job([tmp_path], Settings(), Selection(select=("ZC801",))).lint()

    return ask


def severities(result: Result) -> list[str]:
    return [item.severity.value for item in result.diagnostics]


@pytest.mark.parametrize(
    ("above", "requirements", "expected"),
    [
        ("", "transformers>=4.40\n", WARNED),
        ("from datasets import load_dataset", "transformers>=4.40\ndatasets\n", WARNED),
        ("from datasets import load_metric", "transformers>=4.40\ndatasets\n", NOTED),
        ("from datasets import load_metric", "transformers>=4.40\n", NOTED),
        ("from datasets import load_metric", "transformers>=4.40\ndatasets>=2.10\n", NOTED),
        ("from datasets import load_metric", "transformers>=4.40\ndatasets<3\n", WARNED),
        ("from datasets import load_metric", "transformers>=4.40\ndatasets==2.14.7\n", WARNED),
        ("try:\n    from datasets import load_metric\nexcept ImportError:\n    pass", "transformers>=4.40\n", WARNED),
        ("from peft import LoraConfig", "transformers>=4.40\npeft\n", WARNED),
        ("from peft import prepare_model_for_int8_training", "transformers>=4.40\npeft\n", NOTED),
        ("from huggingface_hub import Repository", "transformers>=4.40\n", NOTED),
        ("from transformers.deepspeed import HfDeepSpeedConfig", "transformers>=4.40\n", SILENT),  # < 4.46
    ],
)
def test_an_import_that_the_newest_release_lacks(
    above: str, requirements: str, expected: list[str], lint: Lint
) -> None:
    assert severities(lint(above, requirements)) == expected


@pytest.mark.parametrize(
    ("requirements", "expected"),
    [
        ("transformers>=4.40\ntorch==2.6.0\n", WARNED),
        ("transformers>=4.40\ntorch>=2.1\n", WARNED),
        ("transformers>=4.40\ntorch==2.5.1\n", NOTED),
        ("transformers>=4.40\ntorch<2.6\n", NOTED),
        ("transformers>=4.40,<5\ntorch==2.5.1\n", WARNED),
        ("transformers>=4.40,<5\ntorch==1.13.1\n", NOTED),
    ],
)
def test_a_torch_that_is_too_old_for_the_newest_transformers(
    requirements: str, expected: list[str], lint: Lint
) -> None:
    assert severities(lint("", requirements)) == expected


def test_what_every_admitted_release_refuses_stays_an_error(lint: Lint) -> None:
    assert severities(lint("from datasets import load_metric", "transformers>=4.52\n")) == ["error"]


def test_nothing_is_assumed_where_no_release_is_stated(lint: Lint) -> None:
    assert severities(lint("", "")) == WARNED
    assert severities(lint("from datasets import load_metric", "")) == SILENT


def test_a_trl_that_goes_with_no_new_transformers(lint: Lint) -> None:
    assert severities(lint("from trl import DPOTrainer", "trl==0.12.1\ntransformers\n")) == NOTED
    assert severities(lint("from trl import DPOTrainer", "trl\ntransformers>=4.40\n")) == WARNED


def test_the_message_names_the_reason(lint: Lint) -> None:
    result = lint("from datasets import load_metric", "transformers>=4.40\n")
    (found,) = result.diagnostics
    assert (
        "(from transformers 4.51.0 on; requirements.txt:1 admits >=4.40; a new install stops before: " in found.message
    )
    assert "train.py:2 imports `datasets.load_metric`, which it does not bring)" in found.message
    assert [stop.library for stop in result.new_install_stops] == ["datasets"]
    assert lint("", "transformers>=4.40\n").new_install_stops == []


def test_the_torch_is_named(lint: Lint) -> None:
    (found,) = lint("", "transformers>=4.40\ntorch==2.5.1\n").diagnostics
    assert "the newest transformers does without the torch of requirements.txt:2" in found.message
