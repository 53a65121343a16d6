"""ZC875: fields of a script's own dataclass that the training arguments have, too. HfArgumentParser is the oracle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from zerocfg.linter.selection import Selection
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

SCRIPT = """\
from dataclasses import dataclass, field
from typing import ClassVar

from transformers import HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ModelArguments{base}:
    name: str = "m"
    {field}


model_args, args = HfArgumentParser({kinds}).parse_args_into_dataclasses()
if args.output_dir == "train":
    Trainer(model=None, args=args, train_dataset=[1]).train()
"""
BOTH = "(ModelArguments, TrainingArguments)"
CASES = [
    # the field, the base class, what is parsed; with transformers 5.23.0 it is refused
    ("resume_from_checkpoint: str = ''", "", BOTH, True),
    ("use_cache: bool = True", "", BOTH, True),
    ("resume_from: str = ''", "", BOTH, False),
    ("evaluation_strategy: str = ''", "", BOTH, False),  # gone since 4.51
    ("use_cache: bool = field(init=False, default=True)", "", BOTH, False),
    ("use_cache: ClassVar[bool] = True", "", BOTH, False),
    ("use_cache: bool = True", "(TrainingArguments)", "(ModelArguments,)", False),
]


def said(folder: Path, requirements: str, monkeypatch: pytest.MonkeyPatch, code: str = "ZC875") -> list[str]:
    monkeypatch.chdir(folder)
    (folder / "train.sh").write_text("torchrun train.py --output_dir out\n", encoding="utf-8")
    (folder / "requirements.txt").write_text(requirements, encoding="utf-8")
    found = Job([folder], Settings(), Selection(select=(code,))).lint().diagnostics
    return [one.severity.value for one in found]


def write(folder: Path, field: str, base: str, kinds: str) -> None:
    kinds = kinds if base == "" else "(ModelArguments,)"
    text = SCRIPT.format(field=field, base=base, kinds=kinds)
    if base:
        text = text.replace("model_args, args =", "(args,) =")
    (folder / "train.py").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(("field", "base", "kinds", "refused"), CASES)
def test_what_is_said(
    field: str, base: str, kinds: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, field, base, kinds)
    assert said(tmp_path, "transformers==5.23.0\n", monkeypatch) == (["error"] if refused else [])


@pytest.mark.libs
@pytest.mark.parametrize(("field", "base", "kinds", "refused"), CASES)
def test_as_the_parser_takes_them(field: str, base: str, kinds: str, refused: bool, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    write(tmp_path, field, base, kinds)
    done = subprocess.run(
        [sys.executable, "train.py", "--output_dir", "out"], cwd=tmp_path, capture_output=True, text=True
    )
    assert ("conflicting option string" in done.stderr) is refused, done.stderr[-400:]
    assert refused or done.returncode == 0, done.stderr[-400:]


@pytest.mark.parametrize(
    ("field", "requirements", "severities"),
    [
        ("use_cache: bool = True", "transformers>=4.40\n", ["warning"]),
        ("use_cache: bool = True", "transformers>=4.40,<5\n", []),
        ("use_cache: bool = True", "transformers>=5\n", ["error"]),
        ("use_cache: bool = True", "", ["warning"]),
        ("resume_from_checkpoint: str = ''", "", ["error"]),
        ("resume_from_checkpoint: str = ''", "transformers>=4.40\n", ["error"]),
    ],
)
def test_by_release(
    field: str, requirements: str, severities: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, field, "", BOTH)
    assert said(tmp_path, requirements, monkeypatch) == severities


def test_what_the_parser_never_comes_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument that the newest release refuses is not reached where that stops at the field."""
    (tmp_path / "train.sh").write_text("", encoding="utf-8")
    for field, expected in (("use_cache: bool = True", []), ("cached: bool = True", ["warning"])):
        write(tmp_path, field, "", BOTH)
        text = (tmp_path / "train.py").read_text().replace("args=args", "args=args, tokenizer=None")
        (tmp_path / "train.py").write_text(text, encoding="utf-8")
        assert said(tmp_path, "transformers>=4.40\n", monkeypatch, "ZC870") == expected
