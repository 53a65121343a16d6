"""Scripts that import unsloth, which puts configs of its own, with more fields, in the place of TRL's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .examples import lint

if TYPE_CHECKING:
    from pathlib import Path

TRL = "from trl import SFTConfig, SFTTrainer\nSFTTrainer(args=SFTConfig('out', max_seq_length=512, warmup_ratio=0.1))\n"
PLAIN = (
    "from transformers import Trainer, TrainingArguments\n"
    "Trainer(args=TrainingArguments('out', warmup_ratio=0.1)).train()\n"
)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (TRL, ["ZC801", "ZC840"]),
        ("import unsloth\n" + TRL, []),
        ("from unsloth import FastLanguageModel\n" + TRL, []),
        ("from unsloth.chat_templates import get_chat_template\n" + TRL, []),
        ("import unslothful\n" + TRL, ["ZC801", "ZC840"]),
        ("import unsloth\n" + PLAIN, ["ZC801"]),
    ],
)
def test_configs_that_a_package_replaces(tmp_path: Path, code: str, told: list[str]) -> None:
    (tmp_path / "train.py").write_text(code)
    found = lint(tmp_path, None).diagnostics
    assert sorted(one.code for one in found if one.code in ("ZC801", "ZC840")) == told
