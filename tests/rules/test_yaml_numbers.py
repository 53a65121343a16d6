"""Numbers without a dot in a DeepSpeed config that is YAML. DeepSpeed reads JSON, so that another program loads it:
PyYAML makes a text of `5e8`, OmegaConf a number."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from zerocfg.linter.selection import Selection
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

DEEPSPEED = "zero_optimization:\n  stage: 2\n  reduce_bucket_size: {}\ntrain_micro_batch_size_per_gpu: 1\n"
ACCELERATE = "distributed_type: DEEPSPEED\nnum_processes: {}\ndeepspeed_config:\n  zero_stage: 2\n"


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (DEEPSPEED.format("5e8"), set()),
        (DEEPSPEED.format('"5e8"'), {"ZC104"}),
        (DEEPSPEED.format("many"), {"ZC104"}),
        (DEEPSPEED.format("5.0e+8"), set()),
        (ACCELERATE.format("2e0"), {"ZC104"}),
    ],
)
def test_a_text_that_may_be_a_number(
    text: str, codes: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    diagnostics = Job([tmp_path], Settings(), Selection(select=("ZC104", "ZC109"))).lint().diagnostics
    assert {item.code for item in diagnostics} == codes


def test_what_pyyaml_makes_of_it() -> None:
    assert yaml.safe_load(DEEPSPEED.format("5e8"))["zero_optimization"]["reduce_bucket_size"] == "5e8"


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ("true,", "remove the comma at the end, which YAML takes for a part of the value"),
        ('"true,"', "write the value without quotes"),
        ('"yes"', "write the value without quotes"),
    ],
)
def test_a_comma_at_the_end_of_a_value(
    value: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"train_batch_size: 8\nzero_optimization: {{stage: 2}}\nzero_allow_untested_optimizer: {value}\n"
    assert yaml.safe_load(text)["zero_allow_untested_optimizer"] == value.strip('"')
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (found,) = Job([tmp_path], Settings(), Selection(select=("ZC109",))).lint().diagnostics
    assert (found.help, found.span.start.line) == (advice, 3)
