"""ZC755: words of `--lora_target_modules` that keep a comma."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerocfg.linter.fixing import fix_all
from zerocfg.linter.selection import Selection
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

TRAIN = """\
from trl import DPOConfig, DPOTrainer, ModelConfig, ScriptArguments, TrlParser
script, args, model = TrlParser((ScriptArguments, DPOConfig, ModelConfig)).parse_args_and_config()
DPOTrainer(model=model.model_name_or_path, args=args).train()
"""
OWN = """\
from dataclasses import dataclass
from transformers import HfArgumentParser, Trainer, TrainingArguments

@dataclass
class Own:
    lora_target_modules: str = "q_proj"

own, args = HfArgumentParser((Own, TrainingArguments)).parse_args_into_dataclasses()
Trainer(args=args).train()
"""
LINE = "accelerate launch train.py --output_dir out --lora_target_modules {} --logging_steps 2\n"


@pytest.mark.parametrize(
    ("script", "words", "fixed"),
    [
        (TRAIN, "q_proj, k_proj, v_proj", "q_proj k_proj v_proj"),
        (TRAIN, "q_proj, \\\n  k_proj,", "q_proj \\\n  k_proj"),
        (TRAIN, "q_proj k_proj,", "q_proj k_proj"),
        (TRAIN, "q_proj k_proj", None),
        (TRAIN, "q_proj,k_proj", None),  # one word: nothing is known of what was meant
        (OWN, "q_proj,", None),
    ],
)
def test_words_that_keep_a_comma(
    script: str, words: str, fixed: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "run.sh").write_text(LINE.format(words))
    monkeypatch.chdir(tmp_path)
    job = Job([tmp_path], Settings(), Selection(select=("ZC755",)))
    result = job.lint()
    texts, _, _ = fix_all(result, job.lint, unsafe=True)
    assert [diagnostic.severity.value for diagnostic in result.diagnostics] == ["error"] * (fixed is not None)
    assert list(texts.values()) == ([] if fixed is None else [LINE.format(fixed)])
    assert fix_all(result, job.lint)[2] == 0, "not a safe one"
