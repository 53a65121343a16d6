"""What is taken for a secret, and what must not be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from zerocfg.source.secrets import masked, masked_words, secret_words

HF = "hf_" + "aB3dE6gH9jK2mN5pQ8sT" + "vW1x"
WANDB = "0123456789abcdef" * 2 + "01234567"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"--hub_token {HF} --bf16", "--hub_token *** --bf16"),
        (f"--wandb_api_key={WANDB}", "--wandb_api_key=***"),
        (f"export WANDB_API_KEY={WANDB}", "export WANDB_API_KEY=***"),
        (f'"hf_token": "{HF}",', '"hf_token": "***",'),
        (f"hub_token: '{WANDB}'", "hub_token: '***'"),
        (f"login({HF!r})", "login('***')"),
        (f"AWS_SECRET_ACCESS_KEY={WANDB}", "AWS_SECRET_ACCESS_KEY=***"),
    ],
)
def test_secrets(text: str, shown: str) -> None:
    assert masked(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "eos_token: <|im_end|>",
        "pad_token: '<pad>'",
        "use_auth_token: true",
        "--hub_token $HF_TOKEN",
        "--token_file /data/user1/tokens/of_training",
        "--tokenizer mistralai/Mistral-7B-v0.1",
        "max_tokens: 4096",
        "hf_dataset_of_the_project",
        "the token counts are 1234567890123456",
        "model: sk-learn",
    ],
)
def test_no_secrets(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize("command", [["lint"], ["lint", "--output-format", "json"], ["explain", "--run", "run.sh:1"]])
def test_a_token_of_a_launch_line_is_not_printed(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps({"train_batch_size": 8, "fp16": {"enabled": "yes please"}}))
    (tmp_path / "run.sh").write_text(f"deepspeed train.py --deepspeed ds.json --nosuch 1 --hub_token {HF}\n")
    (tmp_path / "train.py").write_text("from transformers import HfArgumentParser, TrainingArguments, Trainer\n")
    done = subprocess.run(
        [sys.executable, "-m", "zerocfg", *command], cwd=tmp_path, capture_output=True, text=True, env=dict(os.environ)
    )
    assert "ds.json" in done.stdout and HF not in done.stdout + done.stderr


def test_a_token_beside_a_finding_is_not_printed(tmp_path: Path) -> None:
    """The line of the file that a report shows holds what stands beside the key."""
    (tmp_path / "ds.json").write_text(
        f'{{"train_batch_size": 8, "zero_optimization": {{"stage": 9}}, "hf_token": "{HF}"}}\n'
    )
    words = [sys.executable, "-m", "zerocfg", "lint", "--consumer", "deepspeed", "ds.json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert '{"stage": 9}, "hf_token": "***"}' in done.stdout and HF not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "secrets", "shown"),
    [
        (["--lr", "1e-5"], {}, ["--lr", "1e-5"]),
        (["--hub_token", WANDB], {1: ("", "HUB_TOKEN")}, ["--hub_token", "***"]),
        ([f"--hub-token={WANDB}"], {0: ("--hub-token=", "HUB_TOKEN")}, ["--hub-token=***"]),
        (["--api_key", WANDB, "--lr", "1"], {1: ("", "API_KEY")}, ["--api_key", "***", "--lr", "1"]),
        (["train.py", HF], {1: ("", "SECRET")}, ["train.py", "***"]),
        ([HF], {0: ("", "SECRET")}, ["***"]),
    ],
)
def test_secrets_among_words(words: list[str], secrets: dict[int, tuple[str, str]], shown: list[str]) -> None:
    """Each with what stands before it in its word, and the name of a variable that may stand for it."""
    assert {at: (one.before, one.variable) for at, one in secret_words(words).items()} == secrets
    assert masked_words(words) == shown
