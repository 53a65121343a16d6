"""The plain schemas judge real files in any validator as lint judges their keys, types and ranges."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.conftest import ROOT, corpus_folder
from zerocfg.catalog.check import check
from zerocfg.catalog.schema import load_schema
from zerocfg.run.kinds import sniff
from zerocfg.source.load import load

REFUSED = ("unknown-crash", "unknown-ignored", "removed", "type", "range", "choice", "null", "section-type", "missing")
DIFFERENT = {
    "huggingface/accelerate/tests/test_configs/0_34_0_fp8.yaml": (
        "override_linear_precision is the text (false, false, false), which accelerate makes a list of"
    ),
}
"""File -> why the schema refuses what lint takes: a value that YAML gives as text and the library converts."""
NAMES = {"deepspeed": "deepspeed", "accelerate": "accelerate", "recipe": "training-arguments"}


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    text = (ROOT / "schemas" / f"{name}.json").read_text(encoding="utf-8")
    return jsonschema.Draft202012Validator(json.loads(text))


def judged() -> Iterator[tuple[str, str, Any, list[str]]]:
    """Every config of the corpus: file, schema, data, the keys that lint refuses."""
    folder = corpus_folder()
    assert folder is not None
    with (folder / "INDEX.tsv").open(encoding="utf-8", newline="") as index:
        for row in csv.DictReader(index, delimiter="\t"):
            document = load(folder / row["repo"].replace("/", "__") / row["path"])
            data = document.data()
            name = NAMES.get(sniff(data, row["path"]))
            if name == "accelerate" and data.get("compute_environment") not in (None, "LOCAL_MACHINE"):
                name = "accelerate-sagemaker"
            if name is None:
                continue
            schema = load_schema(name)
            issues = [issue for issue in check(document.root, schema) if issue.kind in REFUSED]
            if "shared" in schema.root.facts:  # of another release, says ZC801 in a note
                issues = [issue for issue in issues if issue.kind != "removed"]
            told = [str(issue.path[-1]) for issue in issues if not str(issue.path[-1]).startswith("_")]
            yield f"{row['repo']}/{row['path']}", name, data, told


def test_same_verdict_as_lint(corpus: Path, count: Callable[[str, int], None]) -> None:
    found, refused, wrong = 0, 0, []
    for file, name, data, told in judged():
        errors = [error.message for error in validator(name).iter_errors(data)]
        found, refused = found + 1, refused + bool(errors)
        if bool(errors) is not bool(told or file in DIFFERENT):
            wrong.append(f"{file}: lint refuses {told}, the schema says {errors}")
    count("real files judged by the plain schemas", found)
    assert found > 230 and 5 < refused < 30
    assert wrong == []


def test_the_message_names_the_key_that_lint_names(corpus: Path) -> None:
    for file, name, data, told in judged():
        error = jsonschema.exceptions.best_match(validator(name).iter_errors(data))
        if error is not None and told:
            assert any(key in f"{error.json_path} {error.message}" for key in told), (file, error.message)


WRONG: tuple[tuple[str, dict[str, Any], str, str], ...] = (
    ("deepspeed", {"zero_optimization": {"stagee": 3}}, "$.zero_optimization", "'stagee' was unexpected"),
    ("deepspeed", {"zero_optimization": {"stage": 9}}, "$.zero_optimization.stage",
     "9 is not one of [0, 1, 2, 3, 'auto']"),
    ("deepspeed", {"zero_optimization": {"offload_param": {"device": "CPU"}}},
     "$.zero_optimization.offload_param.device", "'CPU' is not one of ['none', 'cpu', 'nvme', 'auto']"),
    ("deepspeed", {"zero_optimization": {"offload_param": {"pin": 1}}}, "$.zero_optimization.offload_param",
     "'pin' was unexpected"),
    ("deepspeed", {"train_batch_size": 0}, "$.train_batch_size", "0 is less than or equal to the minimum of 0"),
    ("deepspeed", {"bf16": {"enable": True}}, "$.bf16", "'enable' was unexpected"),
    ("deepspeed", {"aio": {"block_sizes": 1}}, "$.aio", "'block_sizes' was unexpected"),
    ("accelerate", {"distributed_type": "NO", "deepspeed_config": {"zero_stage": 7}}, "$.deepspeed_config.zero_stage",
     "7 is greater than the maximum of 3"),
    ("accelerate", {"distributed_type": "FSDP", "fsdp_config": {"fsdp_versio": 2}}, "$.fsdp_config",
     "'fsdp_versio' was unexpected"),
    ("training-arguments", {"accelerator_config": {"split": 1}}, "$.accelerator_config", "'split' was unexpected"),
    ("training-arguments", {"per_device_train_batch_size": 0}, "$.per_device_train_batch_size", "minimum of 1"),
    ("training-arguments", {"learning_rate": "fast"}, "$.learning_rate", "'fast' does not match"),
    ("trl", {"lr_scheduler_type": "cosin"}, "$.lr_scheduler_type", "'cosin' is not one of"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "data", "path", "words"), WRONG)
def test_the_best_error_names_the_wrong_key(name: str, data: dict[str, Any], path: str, words: str) -> None:
    error = jsonschema.exceptions.best_match(validator(name).iter_errors(data))
    assert error is not None and error.json_path == path and words in error.message


@pytest.mark.parametrize(
    "data",
    [
        {"learning_rate": "5e-5", "num_train_epochs": "3", "bf16": "yes", "save_steps": ".5"},
        {"model_name": "mine", "evaluation_strategy": "no", "warmup_ratio": 0.1},
        {"fsdp_config": "fsdp.json", "deepspeed": {"zero_optimization": {"stage": 3}}},
    ],
)
def test_a_recipe_as_its_readers_take_it(data: dict[str, Any]) -> None:
    assert validator("training-arguments").is_valid(data)


def test_check_jsonschema_says_it_first(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    for name, data, path, words in WRONG[:4]:
        file.write_text(json.dumps(data))
        command = [
            sys.executable,
            "-m",
            "check_jsonschema",
            "--schemafile",
            str(ROOT / "schemas" / f"{name}.json"),
            str(file),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        first = next(line for line in done.stdout.splitlines() if "::" in line)
        assert done.returncode == 1 and path in first and words in first
    file.write_text(json.dumps({"zero_optimization": {"stage": 3, "offload_param": None}}))
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
