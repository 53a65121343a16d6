"""ZC876: imports that releases of a library no longer have, by what the project admits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from zerocfg.linter.selection import Selection
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

Lint = Callable[..., list[tuple[str, str, int]]]
TRAIN = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments
{above}
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(model=model, args=args, train_dataset=data).train()
"""
METRIC = "from datasets import load_metric"


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lint:
    """Severity, message and line of what is found."""

    def ask(above: str, requirements: str = "", **files: str) -> list[tuple[str, str, int]]:
        (tmp_path / "train.py").write_text(TRAIN.format(above=above), encoding="utf-8")
        (tmp_path / "train.sh").write_text("torchrun train.py --output_dir o\n", encoding="utf-8")
        (tmp_path / "requirements.txt").write_text(requirements, encoding="utf-8")
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        found = Job([tmp_path], Settings(), Selection(select=("ZC876",))).lint().diagnostics
        return [(one.severity.value, one.message, one.span.start.line) for one in found]

    return ask


@pytest.mark.parametrize(
    ("above", "requirements", "severities"),
    [
        (METRIC, "", ["warning"]),
        (METRIC, "datasets\n", ["warning"]),
        (METRIC, "datasets>=2.10\n", ["warning"]),
        (METRIC, "datasets>=3\n", ["error"]),
        (METRIC, "datasets==3.0.0\n", ["error"]),
        (METRIC, "datasets==2.21.0\n", []),
        (METRIC, "datasets<3\n", []),
        (METRIC, "datasets @ git+https://github.com/huggingface/datasets\n", []),
        ("from datasets import load_dataset", "", []),
        (f"try:\n    {METRIC}\nexcept ImportError:\n    load_metric = None", "", []),
        ("from transformers.deepspeed import HfDeepSpeedConfig", "transformers>=4.40\n", ["warning"]),
        ("from transformers.deepspeed import HfDeepSpeedConfig", "transformers>=4.46\n", ["error"]),
        ("from transformers.deepspeed import HfDeepSpeedConfig", "transformers<4.46\n", []),
        ("from huggingface_hub import Repository", "", ["warning"]),
        ("from huggingface_hub import Repository", "transformers==4.57.6\n", []),  # which asks for huggingface-hub<1.0
        ("from huggingface_hub import Repository", "transformers>=4.57\n", ["warning"]),
        ("from huggingface_hub import cached_download", "transformers==4.57.6\n", ["warning"]),  # lost in 0.26
        ("from peft import prepare_model_for_int8_training", "", ["warning"]),
        ("from peft import prepare_model_for_int8_training", "torch==1.12.1\n", []),  # peft 0.10 asks for 1.13
        ("from peft import prepare_model_for_int8_training", "torch==1.13.1\n", ["warning"]),
    ],
)
def test_by_what_the_project_admits(above: str, requirements: str, severities: list[str], lint: Lint) -> None:
    assert [severity for severity, *_ in lint(above, requirements)] == severities


def test_the_words(lint: Lint) -> None:
    assert lint(METRIC, "torch\ndatasets>=2.10\n") == [
        (
            "warning",
            "`datasets.load_metric` cannot be imported from datasets 3.0 on: the script stops before it starts "
            "(requirements.txt:2 admits >=2.10)",
            2,
        )
    ]
    ((_, message, line),) = lint(
        "from transformers.trainer import ALL_LAYERNORM_LAYERS\nfrom transformers import AdamW"
    )
    assert line == 3
    assert message == (
        "`transformers.AdamW`, and 1 more of its imports, cannot be imported from transformers 4.50 on: the script "
        "stops before it starts (no release is declared, so that a new install gets the newest)"
    )


def test_a_module_that_the_script_imports(lint: Lint) -> None:
    assert [line for *_, line in lint("from mine import losses", mine=f"losses = 1\n\n{METRIC}\n")] == [3]
    assert lint("x = 1", mine=f"{METRIC}\n") == []
